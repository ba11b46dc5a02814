"""What an agent is told about a problem: the contract, what is judged and how, and the commands. Markdown.

One text for the tools, for Harbor's instruction.md and for the AGENTS.md beside a new submission.
"""

from harness.judging.scoring import SCORINGS
from harness.kinds.checkers import CHECKERS
from harness.problems.problem import OFFICIAL, Problem
from harness.problems.skeleton import submission_text

INSTRUCTION = """\
# {name}

{description}

Write one file{where}. It is judged by kernel-eval: first whether it is right, then how fast it is.

## What the file must do

{contract}

## How it is judged

1. **compile**: the file is read, compiled and imported.
2. **correct**: every output is judged by a process of its own, on fresh random inputs: type, dtype, shape, and an error
   no larger than honest rounding explains. Outputs of timed calls are judged too.
3. **fast**: it is timed in turn with the reference on the same inputs, on every benchmark shape. What earns is the
   speedup over the reference; the score is the {ranking}.

It runs in a sandbox without a network, and may write to its own folder alone. Results that were computed before, work
that goes on after the call, times that do not fit what trusted processes see, and communication that does not happen
are found; such a file is held and earns nothing. A file that is wrong, raises, crashes or hangs earns nothing either.

## Shapes

{shapes}
"""
KERNEL = """\
It defines `custom_kernel(data)`. `data` is what `generate_input` in `reference.py` returns{on_rank}; the result must be
what `ref_kernel(data)` returns there. `task.py` names the types. A submission that calls the reference passes:

```python
from reference import ref_kernel


def custom_kernel(data):
    return ref_kernel(data)
```

The file may import `task`, `reference`, `utils` and installed packages (torch, triton). Compile and cache at will at
import and in the first calls of a shape, but not results."""
OTHER = """\
A first submission, which passes, shows what it defines:

```
{start}
```"""
AGENTS = """\
# For agents that write submissions to {name}

Work on `{file}`. Nothing else is judged.

| command | what it says |
| --- | --- |
| `python -m harness check {name} {file} --json -` | is it right? Seconds, nothing is timed |
| `python -m harness eval {name} {file} --no-record --result -` | stages, verdict, figures, one hint, the reward |
| `python -m harness compare {name} OLD NEW --json -` | is NEW faster than OLD? Measured head to head |
| `python -m harness eval-many {name} FOLDER --out results.jsonl` | a population of candidates, copies once |
{further}
Exit codes: 0 right, 112 wrong, raised, crashed or held, 114 timed out, 2 the request cannot be met, 1 the harness or
the machine failed. Read `next` in the result first, then `evidence`.

Run one evaluation at a time: two at once spoil each other's times. Evaluate nothing outside of the sandbox
(`--unconfined`): such a result is not ranked. An edit of the reference, the shapes or the harness changes no rank.

{instruction}"""

PROFILE = """\
| `python -m harness eval {name} {file} --mode profile --no-record -v` | which kernels or host functions take the time |
"""
ROOFLINE = """\
| `python -m harness roofline {name}` | the limit of every shape |
"""


def instruction(problem: Problem, path: str = "", suite: str = OFFICIAL) -> str:
    """The task's text: contract, judging and the suite's shapes; `path` is the file to write."""
    return INSTRUCTION.format(
        name=problem.name,
        description=" ".join(problem.description.split()),
        where=f", `{path}`" if path else "",
        contract=_contract(problem),
        ranking=SCORINGS[problem.ranking_by].words,
        shapes=_shapes(problem, suite),
    )


def agents_text(problem: Problem, name: str, file: str) -> str:
    """The AGENTS.md for the folder of that submission; `name` is what commands call the problem."""
    further = PROFILE if CHECKERS[problem.checker].has_profile else ""
    further += ROOFLINE if problem.cost_of else ""
    return AGENTS.format(
        name=name, file=file, further=further.format(name=name, file=file), instruction=instruction(problem)
    )


def _contract(problem: Problem) -> str:
    staged = problem.staged().get("reference.py", b"").decode(errors="replace")
    if "def ref_kernel(" not in staged:
        return OTHER.format(start=submission_text(problem).rstrip())
    several = " for this rank of several; torch.distributed is initialised before the first call"
    return KERNEL.format(on_rank=several if problem.multi_gpu else "")


def _shapes(problem: Problem, name: str) -> str:
    suite = problem.suites.get(name) or next(iter(problem.suites.values()))
    return "\n".join(f"- `{case.label}`" for case in suite.benchmarks)
