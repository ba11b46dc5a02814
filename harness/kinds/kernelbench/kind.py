"""KernelBench's problems: one file with Model, get_inputs and get_init_inputs; a submission defines ModelNew.

The file is staged as it is; if its model has another name, a last line calls it Model. Ranks make inputs and
parameters from it and judge by it (rank.py); all else is as for an operator of one rank.
"""

import ast
from dataclasses import replace
from pathlib import Path

from harness.core.checkout import Checkout
from harness.kinds.benchmarks.kind import BenchmarkKind
from harness.kinds.benchmarks.problem import (
    BenchmarkProblem,
    constants,
    defined,
    glue,
    is_python_that,
    smaller,
    suites_of,
)
from harness.kinds.kind import Order
from harness.kinds.op.plan import OpPlan
from harness.problems.problem import Problem
from harness.problems.python_text import read_tree

MODEL, ENTRY = "Model", "ModelNew"
NEEDED = {"get_inputs", "get_init_inputs"}
SEED = 42  # KernelBench's seed_num
STAGED = "problem_file.py"
META = "torch._dynamo.utils"  # imported by the first call on tensors without values, in 0.9 s


class KernelBenchKind(BenchmarkKind):
    """A file of KernelBench's."""

    def claims(self, place: Path) -> bool:
        """A Python file that defines what a problem has, and no ModelNew."""
        return is_python_that(place, NEEDED, lacks=ENTRY) and model_of(read_tree(place)) != ""

    def read(self, place: Path, checkout: Checkout) -> Problem:
        """The problem in that file. Raises BadFileError where it is no Python."""
        place = place.resolve()
        tree = read_tree(place)
        model, staged = model_of(tree), place.read_bytes()
        if model != MODEL:
            staged += f"\n\n{MODEL} = {model}\n".encode()
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == model]
        text = (classes and ast.get_docstring(classes[0])) or place.stem
        return BenchmarkProblem(
            name=f"{place.parent.name}/{place.stem}",
            leaderboard=place.stem,
            description=" ".join(text.split("\n\n")[0].split()),
            root=checkout.root,
            folder=place,
            shapes_path=place,
            submissions_folder=place.parent,
            suites=suites_of([sizes := constants(tree)], SEED, 1, small=smaller(tree, sizes)),
            multi_gpu=False,
            is_one_file=True,
            kind="kernelbench",
            files=glue("kernelbench", "sizes") | {STAGED: staged},
            needed=(STAGED,),
            entry=ENTRY,
            theirs=MODEL,
        )

    def plan(self, order: Order) -> OpPlan:
        """As of any benchmark. On CPU cores judges call Model on tensors without values first (rank.sizes)."""
        plan = super().plan(order)
        return replace(plan, preload=(META,)) if plan.device == "cpu" else plan


def model_of(tree: ast.Module) -> str:
    """The name of a file's model: Model, or else the only class that no other class or function names, as in
    KernelBook; "" where there is neither."""
    if MODEL in defined(tree):
        return MODEL
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    others = {
        name.id
        for node in tree.body
        for name in ast.walk(node)
        if isinstance(name, ast.Name) and name.id != getattr(node, "name", None)
    }
    found = [name for name in classes if name not in others]
    return found[0] if len(found) == 1 else ""
