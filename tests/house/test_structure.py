"""How harness/ is built: what import-linter's contracts in pyproject.toml cannot say."""

import ast
import functools
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import TESTS

from harness.core.checkout import ROOT
from harness.kinds.registry import KINDS

HARNESS = ROOT / "harness"


def package_of(name: str) -> str:
    """`harness.ranks` for `harness.ranks.wire`."""
    return ".".join(name.split(".")[:2])


def module_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def reached(source: str, module: str) -> Iterator[str]:
    """The private names of other packages that a module's source imports, or takes from what it imports."""
    tree = ast.parse(source)
    elsewhere: dict[str, str] = {}  # a name here, and what it is bound to in another package
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("harness"):
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if package_of(full) != package_of(module):
                    elsewhere[alias.asname or alias.name] = full
                    if any(map(private, full.split("."))):
                        yield full
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.startswith("harness") and any(map(private, alias.name.split("."))):
                    yield alias.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and private(node.attr):
            holder = ast.unparse(node.value)
            if holder.split(".")[0].split("(")[0] in elsewhere:
                yield f"{holder}.{node.attr}"


@pytest.mark.parametrize("file", sorted(HARNESS.rglob("*.py")), ids=lambda file: str(file.relative_to(HARNESS)))
def test_no_package_reaches_into_the_private_names_of_another(file: Path) -> None:
    assert list(reached(file.read_text(), module_of(file))) == []


@functools.cache
def nodes(file: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(file.read_text())))


def private_members(file: Path) -> set[str]:
    """The private methods and attributes that a file's classes define."""
    names: set[str] = set()
    for node in nodes(file):
        if isinstance(node, ast.ClassDef):
            names |= {
                item.name
                for item in ast.walk(node)
                if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and private(item.name)
            }
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and private(node.attr):
            names.add(node.attr)
    return names


def test_no_object_of_another_package_is_asked_for_a_private_member() -> None:
    """`session._ranks`, where only another package's classes have such a member."""
    files = sorted(HARNESS.rglob("*.py"))
    packages: dict[str, set[str]] = {}
    for file in files:
        packages.setdefault(package_of(module_of(file)), set()).update(private_members(file))
    found = []
    for file in files:
        own = packages[package_of(module_of(file))]
        others = set().union(*packages.values()) - own
        for node in nodes(file):
            if isinstance(node, ast.Attribute) and node.attr in others:
                found.append(f"{file.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}")
    assert found == []


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("from harness.ranks.group import _named", ["harness.ranks.group._named"]),
        ("from harness.ranks import group\ngroup._named([1])", ["group._named"]),
        ("from harness.ranks.group import Group\nGroup()._called(1)", ["Group()._called"]),
        ("import harness.ranks._secret", ["harness.ranks._secret"]),
        ("from harness.ranks import group\ngroup.named([1])\nself._named()", []),
        ("from harness.board.runs import _mine", []),
    ],
)
def test_what_reaches_into_another_package_is_found(source: str, names: list[str]) -> None:
    """And what is a module's own, or its package's, is not."""
    assert list(reached(source, "harness.board.places")) == names


KIND_NAMES = "|".join(KINDS)
ON_KINDS = re.compile(
    rf"isinstance\([^)]*\b(TaskProblem|[A-Z]\w+(Plan|Kind|Session))\b"  # of a class that one kind has
    rf"|(\.kind|checker|evaluator)\s*(==|!=|in)\s*[\"'(\[{{]+({KIND_NAMES}|strict|ours|theirs)\b"  # of its name
    rf"|Literal\[[^\]]*[\"']({KIND_NAMES})[\"']"
)


def test_only_kinds_know_which_kind_a_problem_is_of() -> None:
    """No isinstance, Literal or comparison on kinds elsewhere: a further kind is one module and one line of KINDS."""
    found = [
        f"{path.relative_to(HARNESS)}:{number}: {line.strip()}"
        for path in sorted(HARNESS.rglob("*.py"))
        if path.relative_to(HARNESS).parts[0] != "kinds"
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if ON_KINDS.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "    if isinstance(problem, TaskProblem):",
        '    if setting.problem.kind == "folder":',
        '    if report.checker in ("folder", "theirs"):',
        'Kind = Literal["op", "folder"]',
    ],
)
def test_such_a_line_is_found(line: str) -> None:
    assert ON_KINDS.search(line)


MOST_LINES, MOST_CLASS_LINES = 450, 200


def too_long(source: str) -> Iterator[str]:
    """The file, or a class in it, where it has more lines than a reader takes in."""
    if (count := len(source.splitlines())) > MOST_LINES:
        yield f"{count} lines"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and node.end_lineno is not None:
            count = node.end_lineno - node.lineno + 1
            if count > MOST_CLASS_LINES:
                yield f"class {node.name}: {count} lines"


@pytest.mark.parametrize("file", sorted(HARNESS.rglob("*.py")), ids=lambda file: str(file.relative_to(HARNESS)))
def test_no_file_and_no_class_is_too_long_to_read(file: Path) -> None:
    assert list(too_long(file.read_text())) == []


def test_what_is_too_long_is_found() -> None:
    line = "    x = 1\n"
    assert list(too_long("class A:\n" + line * (MOST_CLASS_LINES - 1))) == []
    assert list(too_long("class A:\n" + line * MOST_CLASS_LINES)) == [f"class A: {MOST_CLASS_LINES + 1} lines"]
    assert list(too_long("x = 1\n" * (MOST_LINES + 1))) == [f"{MOST_LINES + 1} lines"]


RANKS_SIDE = re.compile(r"^\s*(from|import) (torch\b|harness\.kinds\.\w+(\.| import )rank)", re.MULTILINE)


def test_only_what_runs_in_ranks_imports_torch_or_a_wings_rank_files() -> None:
    """In kinds, these are named rank*.py; ranks find them by the checker's entry, or run them as modules."""
    files = [path for path in (HARNESS / "kinds").rglob("*.py") if not path.stem.startswith("rank")]
    assert [str(path) for path in files if RANKS_SIDE.search(path.read_text())] == []


ONE_PROTOCOL = {"Reference"}  # of other benchmarks' problems, each as its ranks have it


def test_no_class_name_is_defined_twice() -> None:
    homes: dict[str, set[str]] = {}
    for path in HARNESS.rglob("*.py"):
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, set()).add(str(path.relative_to(HARNESS)))
    assert {name: found for name, found in homes.items() if len(found) > 1 and name not in ONE_PROTOCOL} == {}


@pytest.mark.parametrize(
    ("call", "homes"),
    [
        ("flock(", {"core/files.py", "engine/child.py"}),  # the child runs without the harness
        ("killpg(", {"core/processes.py"}),
    ],
)
def test_locks_and_the_ends_of_groups_are_written_once(call: str, homes: set[str]) -> None:
    found = {str(path.relative_to(HARNESS)) for path in HARNESS.rglob("*.py") if call in path.read_text()}
    assert found == homes


def test_metrics_are_defined_in_one_place() -> None:
    found = {str(path.relative_to(HARNESS)) for path in HARNESS.rglob("*.py") if "Metric(name=" in path.read_text()}
    assert found == {"core/metrics.py"}


def test_every_test_lies_in_the_folder_of_what_it_tests() -> None:
    packages = {path.name for path in HARNESS.iterdir() if path.is_dir()}
    others = {"bench", "docs", "house", "reference", "submissions"}
    found = {path.parent.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py")}
    assert found <= packages | others


@pytest.mark.parametrize("file", sorted((ROOT / "bench").glob("*.py")), ids=lambda file: file.stem)
def test_what_a_bench_takes_from_the_harness_is_there(file: Path) -> None:
    """Most benches need GPUs, so nothing else would notice."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "harness":
            module = importlib.import_module(node.module or "")
            for name in (one.name for one in node.names):
                if not hasattr(module, name):
                    importlib.import_module(f"{node.module}.{name}")


@pytest.mark.xdist_group("groups")
def test_tests_of_a_group_are_sent_to_one_process(request: pytest.FixtureRequest) -> None:
    """pytest-xdist knows a group by the end of a test's id, and says nothing where pytest does not let it add one."""
    if getattr(request.config.option, "loadgroup", False):
        assert request.node.nodeid.endswith("@groups")
