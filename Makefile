# Every target makes what it needs. PYTHON=python3 uses that interpreter as it is, without a .venv.
#
#   make eval PROBLEM=a2a [SUBMISSION=path] [RANKS=8] [SUITE=cpu] [MODE=leaderboard] [TOOL=ncu] [DEVICE=cpu] [AUTHOR=name] [JSON=file] [ENGINE=slurm] [NODES=2] [LAUNCHES=4]
#   make eval PROBLEM=path/to/folder [EVAL=theirs]     a problem folder of GPU MODE's, with its task.yml
#   make eval PROBLEM=llama_pretrain DATA=folder [TARGET=q] [VOCABULARY=n]     trains on your token files (docs/training.md)
#   make check PROBLEM=a2a [SUBMISSION=path]     correctness only, in seconds
#   make merge PROBLEM=a2a [SUBMISSION=path] [OUT=file]      one file of it and its local modules that GPU MODE takes
#   make bundle ENTRY=<file or run id> [OUT=file]            a result that others can audit and run again (docs/bundles.md)
#   make competition FILE=amd_distributed.yaml    all problems of a KernelBot competition; ARGS=--list shows them
#   make contest ARGS="list"                     contests: teams, submissions, standings, awards (docs/contest.md)
#   make board [PROBLEM=a2a]                     the local leaderboard
#   make peers PROBLEM=rms_norm                  evaluates and records what libraries offer for it (docs/kernels.md)
#   make compare PROBLEM=a2a A=a.py B=b.py        head to head: is B as fast as A? A=RUN B=RUN: recorded runs
#   make verify ENTRY=run [LAUNCHES=5] [PROBLEM=a2a]     does an entry's source reproduce what it claims?
#   make settle PROBLEM=a2a [TOP=4] [ROUNDS=64]   the leading entries head to head: in which order are they?
#   make rejudge [PROBLEM=a2a] [APPLY=1]         what are entries worth by today's problem and checks?
#   make page [OUT=file]                         the boards with charts, as one HTML file: build/page.html
#   make serve [PORT=8000] [SUITE=cpu]           popcorn-cli's API and the page, live, on this machine
#   make history [PROBLEM=a2a] [AUTHOR=name]     how each file's score moved over its runs
#   make roofline PROBLEM=a2a [HARDWARE=h200]     the limit of every benchmark shape
#   make export OUT=rows.csv [PROBLEM=a2a]       runs and leaderboard as CSV, JSON lines or parquet
#   make plot ID=run OUT=run.svg                 one recorded run as SVG or PNG
#   make problems                                what there is
#   make new NAME=name                           the files of a new problem, which evaluate at once
#   make new-submission PROBLEM=a2a [FILE=my.py] a submission that calls the reference
#   make test                                    lint, tests and their coverage, as CI runs them
#   make coverage                                what the tests execute of harness/: build/coverage/index.html
#   make test-agents                             the tests that need mcp, readers of Harbor tasks, or minutes
#   make test-slow                               the tests that take many seconds each, and more cases of others
#   make test-slurm                              the tests that start a Slurm cluster on this machine
#   make prune [APPLY=1]                         what in runs/ and the compile caches nothing needs; APPLY=1 deletes it
#   make doctor                                  what on this machine changes results
#   make fuzz [INPUTS=1000000]                   inputs for every decoder of what a submission or a user wrote
#   make bench                                   the figures of docs/measurements.md, measured on this machine
#   make measurements                            docs/measurements.md, made of the files in docs/measurements/
#   make clean [RUNS=1]                          deletes .venv, build and caches; with RUNS=1 runs/ too, with it the sources of entries

# A variable that nothing reads is a misspelt one: `make check RANK=2` would run 8 ranks.
KNOWN := PROBLEM SUBMISSION RANKS SUITE MODE TOOL DEVICE AUTHOR JSON ENGINE NODES EVAL DATA TARGET VOCABULARY OUT ENTRY FILE A B \
  FAIL_IF ARGS FORMAT LAUNCHES TOP ROUNDS APPLY HOST PORT TOKEN HARDWARE ID NAME INPUTS RUNS PYTHON BASE_PYTHON SHELL MAKEFLAGS
GIVEN := $(foreach name,$(.VARIABLES),$(if $(findstring command line,$(origin $(name))),$(name)))
UNKNOWN := $(firstword $(filter-out $(KNOWN),$(GIVEN)))
ifneq ($(UNKNOWN),)
NEAR := $(strip $(foreach one,$(filter-out A B ID,$(KNOWN)),$(if $(or $(findstring $(one),$(UNKNOWN)),$(findstring $(UNKNOWN),$(one))),$(one))))
$(error $(UNKNOWN): no target reads this variable$(if $(NEAR),; did you mean $(NEAR)?,; these are read: $(KNOWN)))
endif

# To make, a word without = is a target: `make eval PROBLEM=a2a my.py` would evaluate the shipped submission.
ifneq ($(filter %.py,$(MAKECMDGOALS)),)
$(error $(firstword $(filter %.py,$(MAKECMDGOALS))) is no target; SUBMISSION=path names the file)
endif

PROBLEM ?=
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c

ifdef PYTHON
RUN := $(PYTHON)
SETUP :=
else
RUN := .venv/bin/python
SETUP := .venv/.installed
BASE_PYTHON ?= $(shell command -v python3.11 || command -v python3)
endif

# A variable as one word of the shell, whatever is in it; $(call flag,NAME,VARIABLE): --name and that word, where it is set
quoted = $(if $(value $(1)),'$(subst ','\'',$(value $(1)))')
flag = $(if $(value $(2)),--$(1) $(call quoted,$(2)))
WHERE = $(call flag,engine,ENGINE)
OWN_DATA = $(call flag,data,DATA) $(call flag,target,TARGET) $(call flag,vocabulary,VOCABULARY)
SPREAD = $(call flag,nodes,NODES)
OPTIONS = $(call flag,ranks,RANKS) $(call flag,suite,SUITE) $(call flag,device,DEVICE)

.PHONY: help setup need-file eval check merge bundle compare competition contest board peers verify settle rejudge page serve history roofline export plot problems new new-submission prune doctor test coverage test-agents test-slow test-slurm lint style types fuzz bench measurements clean

help:
	@sed -n 's/^#   //p' Makefile

setup: $(SETUP)

.venv/.installed: pyproject.toml
	@$(or $(BASE_PYTHON),false) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(or $(BASE_PYTHON),python3) is no Python 3.11 or newer; BASE_PYTHON=path names one" >&2; exit 2; }
	$(BASE_PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-compile -e '.[dev]'
	@.venv/bin/python -m compileall -q -q -j 0 -x '/tests?/' .venv/lib || true  # pip would do it on one core
	touch $@

# A submission's `#!POPCORN leaderboard` line names its problem too. FILE is what other targets read: without a word the
# shipped submission would be evaluated in place of that file.
need-file:
	$(if $(value FILE),$(error make $(MAKECMDGOALS) reads no FILE; SUBMISSION=path names the file))
	@$(if $(value PROBLEM)$(value SUBMISSION),,echo "which problem? make $(MAKECMDGOALS) PROBLEM=a2a (make problems lists them)" >&2; exit 2)

eval: need-file $(SETUP)
	@$(RUN) -m harness eval $(call quoted,PROBLEM) $(call quoted,SUBMISSION) $(OPTIONS) $(SPREAD) $(OWN_DATA) $(call flag,eval,EVAL) \
	  $(call flag,mode,MODE) $(call flag,tool,TOOL) $(call flag,launches,LAUNCHES) $(call flag,author,AUTHOR) $(call flag,json,JSON) $(WHERE) $(ARGS)

check: need-file $(SETUP)
	@$(RUN) -m harness check $(call quoted,PROBLEM) $(call quoted,SUBMISSION) $(OPTIONS) $(SPREAD) $(OWN_DATA) $(call flag,eval,EVAL) $(call flag,json,JSON) $(WHERE) $(ARGS)

merge: need-file $(SETUP)
	@$(RUN) -m harness merge $(call quoted,PROBLEM) $(call quoted,SUBMISSION) $(call flag,out,OUT) $(ARGS)

# `make bundle PROBLEM=a2a` is what `make merge` was called; it still works
bundle: $(SETUP)
	@$(if $(value ENTRY)$(value PROBLEM)$(value SUBMISSION),,echo "which result? make bundle ENTRY=<file or run id> (make board shows them)" >&2; exit 2)
	@$(RUN) -m harness bundle $(if $(value ENTRY),make $(call quoted,ENTRY),$(call quoted,PROBLEM) $(call quoted,SUBMISSION)) $(call flag,out,OUT) $(ARGS)

compare: $(SETUP)
	@$(if $(and $(value A),$(value B)),,echo "which two? make compare PROBLEM=a2a A=a.py B=b.py, or A=RUN B=RUN" >&2; exit 2)
	@$(RUN) -m harness compare $(call quoted,A) $(call quoted,B) $(call flag,problem,PROBLEM) $(OPTIONS) $(call flag,fail-if,FAIL_IF) \
	  $(call flag,json,JSON) $(WHERE) $(ARGS)

competition: $(SETUP)
	@$(if $(value FILE),,echo "which competition? make competition FILE=amd_distributed.yaml" >&2; exit 2)
	@$(RUN) -m harness competition $(call quoted,FILE) $(OPTIONS) $(call flag,author,AUTHOR) $(call flag,json,JSON) $(WHERE) $(ARGS)

contest: $(SETUP)
	@$(RUN) -m harness contest $(or $(ARGS),list)

board: $(SETUP)
	@$(RUN) -m harness board $(call flag,problem,PROBLEM) $(call flag,json,JSON) $(if $(FORMAT),--$(FORMAT) -) $(ARGS)

# A peer that cannot run here says why, and the others go on.
peers: $(SETUP)
	@test -d submissions/$(call quoted,PROBLEM)/peers || { echo "whose peers? make peers PROBLEM=rms_norm (submissions/*/peers has them)" >&2; exit 2; }
	@for file in submissions/$(call quoted,PROBLEM)/peers/*.py; do \
	  library=$$(sed -n '1s/^# library: //p' "$$file"); echo "$$library  $$file"; \
	  $(RUN) -m harness eval $(call quoted,PROBLEM) "$$file" $(OPTIONS) --author "$$library" --quiet $(WHERE) $(ARGS) || true; done
	@$(RUN) -m harness board --problem $(call quoted,PROBLEM)

verify: $(SETUP)
	@$(if $(value ENTRY),,echo "which entry? make verify ENTRY=<file or run id> (make board shows them)" >&2; exit 2)
	@$(RUN) -m harness verify $(call quoted,ENTRY) $(call flag,problem,PROBLEM) $(call flag,launches,LAUNCHES) \
	  $(call flag,json,JSON) $(WHERE) $(ARGS)

settle: $(SETUP)
	@$(if $(value PROBLEM),,echo "whose entries? make settle PROBLEM=a2a (make board lists them)" >&2; exit 2)
	@$(RUN) -m harness settle $(call quoted,PROBLEM) $(call flag,top,TOP) $(call flag,rounds,ROUNDS) $(call flag,suite,SUITE) \
	  $(call flag,ranks,RANKS) $(call flag,json,JSON) $(WHERE) $(ARGS)

rejudge: $(SETUP)
	@$(RUN) -m harness rejudge $(call flag,problem,PROBLEM) $(call flag,entry,ENTRY) $(if $(APPLY),--apply) \
	  $(call flag,json,JSON) $(WHERE) $(ARGS)

page: $(SETUP)
	@$(RUN) -m harness page $(call flag,out,OUT) $(ARGS)

serve: $(SETUP)
	@$(RUN) -m harness serve $(call flag,problem,PROBLEM) $(call flag,host,HOST) $(call flag,port,PORT) $(call flag,token,TOKEN) $(OPTIONS) $(WHERE) $(ARGS)

history: $(SETUP)
	@$(RUN) -m harness history $(call flag,problem,PROBLEM) $(call flag,author,AUTHOR) $(call flag,json,JSON) $(ARGS)

roofline: $(SETUP)
	@$(RUN) -m harness roofline $(call flag,problem,PROBLEM) $(call flag,hardware,HARDWARE) $(call flag,suite,SUITE) \
	  $(call flag,ranks,RANKS) $(call flag,json,JSON) $(ARGS)

export: $(SETUP)
	@$(RUN) -m harness export $(call flag,problem,PROBLEM) $(call flag,format,FORMAT) $(call flag,out,OUT) $(call flag,suite,SUITE) $(call flag,device,DEVICE) $(ARGS)

plot: $(SETUP)
	@$(if $(and $(value ID),$(value OUT)),,echo "which run, and where to? make plot ID=<run id> OUT=run.svg" >&2; exit 2)
	@$(RUN) -m harness plot $(call quoted,ID) $(call flag,out,OUT) $(ARGS)

problems: $(SETUP)
	@$(RUN) -m harness problems $(call flag,json,JSON) $(ARGS)

new: $(SETUP)
	@$(if $(value NAME),,echo "which name? make new NAME=my_problem" >&2; exit 2)
	@$(RUN) -m harness new $(call quoted,NAME) $(ARGS)

new-submission: $(SETUP)
	$(if $(value SUBMISSION),$(error make new-submission reads no SUBMISSION; FILE=path names the file))
	@$(if $(value PROBLEM),,echo "for which problem? make new-submission PROBLEM=a2a (make problems lists them)" >&2; exit 2)
	@$(RUN) -m harness new-submission $(call quoted,PROBLEM) $(call quoted,FILE) $(ARGS)

prune: $(SETUP)
	@$(RUN) -m harness prune $(if $(APPLY),--apply) $(call flag,json,JSON) $(ARGS)

doctor: $(SETUP)
	@$(RUN) -m harness doctor $(call flag,json,JSON) $(ARGS)

lint: style types

style: $(SETUP)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -c "from importlinter.cli import lint_imports_command; lint_imports_command()" --no-logo

types: $(SETUP)
	$(RUN) -m mypy

TESTS = -m pytest -m 'not slurm and not slow'

# An interpreter that is used as it is may have no linters and no pytest-xdist. Else mypy, which takes half a minute of
# one core, runs beside the tests, and what it says comes after what they say; and of all tests, coverage is measured.
ifdef PYTHON
test:
	$(RUN) $(TESTS) $(ARGS)
else
test: style
	@said=$$(mktemp); $(RUN) -m mypy >$$said 2>&1 & types=$$!; trap "kill $$types 2>/dev/null; rm $$said" EXIT; \
	$(if $(ARGS),,$(RUN) -m coverage erase;) \
	$(RUN) $(TESTS) $(if $(ARGS),,-p tests.covered) -n 2 --dist loadgroup $(ARGS); code=$$?; \
	$(if $(ARGS),,$(RUN) tests/covered.py || code=$$?;) \
	wait $$types || code=$$?; echo "mypy: $$(cat $$said)"; exit $$code
endif

# what starts with a confined rank's environment is not counted: CONTRIBUTING.md
coverage: $(SETUP)
	@$(RUN) -m coverage erase
	@$(RUN) -m coverage run $(TESTS) -n 2 --dist loadgroup $(ARGS); code=$$?; \
	$(RUN) -m coverage combine --quiet && $(RUN) -m coverage html --quiet && $(RUN) -m coverage report && exit $$code

test-slow: $(SETUP)
	$(RUN) -m pytest -m slow -n 2 --dist loadgroup $(ARGS)

# a real cluster of this machine alone, as whoever calls this; two minutes
test-slurm: $(SETUP)
	@PATH="$$PATH:/usr/sbin" command -v slurmctld slurmd sbatch >/dev/null || { echo "no Slurm here: sudo apt-get install --no-install-recommends slurmctld slurmd slurm-client" >&2; exit 2; }
	$(RUN) -m pytest -m slurm $(ARGS)

# harbor needs Python 3.12; without one its readers' test is skipped
READERS_PYTHON = $(shell for one in python3.13 python3.12; do $$one -c '' 2>/dev/null && echo $$one && break; done)
READERS := .cache/readers/bin/python
test-agents: $(SETUP)
	$(RUN) -m pip install --quiet --disable-pip-version-check 'mcp==2.3.0'
	@if [ -n "$(READERS_PYTHON)" ] && [ ! -x $(READERS) ]; then $(READERS_PYTHON) -m venv .cache/readers && \
	  $(READERS) -m pip install --quiet harbor==0.25.0 verifiers==0.4.0 inspect-harbor==1.0.0; fi
	AGENTS_ALL=1 READERS=$$(test -x $(READERS) && realpath --no-symlinks $(READERS)) \
	  $(RUN) -m pytest -p no:xdist tests/agents tests/evaluation/test_pool.py $(ARGS)

fuzz: $(SETUP)
	@$(RUN) bench/fuzz.py $(call flag,inputs,INPUTS) $(ARGS)

bench: $(SETUP)
	$(RUN) bench/run.py $(ARGS)

measurements: $(SETUP)
	@$(RUN) bench/measurements.py $(ARGS)

clean:
	rm -rf .venv .cache build $(if $(RUNS),runs)
	@test ! -d runs || echo "runs/ is kept: entries are verified from the sources in it; make prune shows what of it nothing needs, make clean RUNS=1 deletes all of it"
