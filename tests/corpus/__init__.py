"""The corpus: submissions that are wrong in one known way, and honest ones, for every problem.

wrong.py and honest.py hold one short function a variant; its docstring says what is wrong, or why it is honest. Each
takes (data), or (right, data) where it spoils a right kernel's inputs or output, and so fits several problems.
`submission` makes an ordinary submission file of a variant: parts.py, the function, and a custom_kernel that calls it.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.corpus import honest, parts, wrong

PROBLEMS = ("a2a", "moe", "gemm_rs", "ag_gemm")


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One submission of the corpus. `needs_bias`: it is wrong only where there is one."""

    problem: str
    name: str
    is_honest: bool
    needs_bias: bool
    function: Callable


def variants(problem: str) -> list[Variant]:
    """All variants of a problem: the honest first."""
    return [
        Variant(
            problem=problem,
            name=name,
            is_honest=module is honest,
            needs_bias=name == "bias_forgotten",
            function=function,
        )
        for module in (honest, wrong)
        for name, function in vars(module).items()
        if problem in getattr(function, "problems", ())
    ]


def submission(variant: Variant) -> str:
    """The source of an ordinary submission file."""
    arguments = (
        "data" if len(inspect.signature(variant.function).parameters) == 1 else f"RIGHT[{variant.problem!r}], data"
    )
    return (
        f'"""{variant.function.__doc__}"""\n\n'
        f"{inspect.getsource(parts)}\n\n"
        f"{inspect.getsource(variant.function)}\n\n"
        f"def custom_kernel(data):\n    return {variant.name}({arguments})\n"
    )


def write_submission(problem: str, name: str, folder: Path) -> Path:
    """Writes the named variant as `<folder>/<name>.py` and returns the path."""
    (variant,) = (variant for variant in variants(problem) if variant.name == name)
    path = Path(folder) / f"{name}.py"
    path.write_text(submission(variant), encoding="utf-8")
    return path
