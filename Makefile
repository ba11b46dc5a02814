# Every target makes what it needs. PYTHON=python3 uses that interpreter as it is, without a .venv.
#
#   make eval PROBLEM=a2a [SUBMISSION=path] [RANKS=8] [SUITE=cpu] [MODE=leaderboard] [DEVICE=cpu] [AUTHOR=name] [JSON=file]
#   make check PROBLEM=a2a [SUBMISSION=path]     correctness only, in seconds
#   make bundle PROBLEM=a2a [SUBMISSION=path] [OUT=file]     one file of it and its local modules, for GPU MODE
#   make board [PROBLEM=a2a]                     the local leaderboard
#   make compare PROBLEM=a2a A=a.py B=b.py        head to head: is B as fast as A? A=RUN B=RUN: recorded runs
#   make page [OUT=file]                         the boards with charts, as one HTML file: build/page.html
#   make history [PROBLEM=a2a] [AUTHOR=name]     how each file's score moved over its runs
#   make problems                                what there is
#   make test                                    lint and tests, as CI runs them
#   make doctor                                  what on this machine changes results
#   make bench                                   the figures of docs/measurements.md, measured on this machine

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

# $(call flag,NAME,VALUE): --name 'value' where the value is set
flag = $(if $(2),--$(1) '$(2)')
OPTIONS = $(call flag,ranks,$(RANKS)) $(call flag,suite,$(SUITE)) $(call flag,device,$(DEVICE))

.PHONY: help setup need-problem eval check bundle compare board page history problems doctor test lint bench clean

help:
	@sed -n 's/^#   //p' Makefile

setup: $(SETUP)

.venv/.installed: pyproject.toml
	$(BASE_PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

need-problem:
	@test -n "$(PROBLEM)" || { echo "which problem? make $(MAKECMDGOALS) PROBLEM=a2a (make problems lists them)" >&2; exit 2; }

eval: need-problem $(SETUP)
	@$(RUN) -m harness eval '$(PROBLEM)' $(if $(SUBMISSION),'$(SUBMISSION)') $(OPTIONS) \
	  $(call flag,mode,$(MODE)) $(call flag,author,$(AUTHOR)) $(call flag,json,$(JSON)) $(ARGS)

check: need-problem $(SETUP)
	@$(RUN) -m harness check '$(PROBLEM)' $(if $(SUBMISSION),'$(SUBMISSION)') $(OPTIONS) $(ARGS)

bundle: need-problem $(SETUP)
	@$(RUN) -m harness bundle '$(PROBLEM)' $(if $(SUBMISSION),'$(SUBMISSION)') $(call flag,out,$(OUT)) $(ARGS)

compare: $(SETUP)
	@test -n "$(A)" -a -n "$(B)" || { echo "which two? make compare PROBLEM=a2a A=a.py B=b.py, or A=RUN B=RUN" >&2; exit 2; }
	@$(RUN) -m harness compare '$(A)' '$(B)' $(call flag,problem,$(PROBLEM)) $(OPTIONS) $(call flag,fail-if,$(FAIL_IF)) \
	  $(call flag,json,$(JSON)) $(ARGS)

board: $(SETUP)
	@$(RUN) -m harness board $(call flag,problem,$(PROBLEM)) $(call flag,format,$(FORMAT)) $(ARGS)

page: $(SETUP)
	@$(RUN) -m harness page $(call flag,out,$(OUT)) $(ARGS)

history: $(SETUP)
	@$(RUN) -m harness history $(call flag,problem,$(PROBLEM)) $(call flag,author,$(AUTHOR)) $(ARGS)

problems: $(SETUP)
	@$(RUN) -m harness problems

doctor: $(SETUP)
	@$(RUN) -m harness doctor $(ARGS)

lint: $(SETUP)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy
	$(RUN) -c "from importlinter.cli import lint_imports_command; lint_imports_command()" --no-logo

# an interpreter that is used as it is may have no linters
test: $(if $(PYTHON),,lint)
	$(RUN) -m pytest $(ARGS)

bench: $(SETUP)
	$(RUN) bench/run.py $(ARGS)

clean:
	rm -rf .venv .cache build runs
