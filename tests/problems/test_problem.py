"""Problems and shape files: what is read, and what every kind of bad file is told."""

import math
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from harness.cli import problems
from harness.core import checkout
from harness.core.errors import BadFileError, UsageError
from harness.core.records import Case
from harness.kinds import registry
from harness.kinds.kind import Setting
from harness.machine.hardware import bound, peaks
from harness.problems import problem, shape_file
from harness.problems.drawn import drawn_cases
from harness.problems.problem import Problem

NAMES = ["a2a", "ag_gemm", "gemm_rs", "moe"]  # problems of ranks
ALL = [*NAMES[:3], "iopddl", "llama", "llama_lora", "llama_pretrain", "moe"]
SUITES = ["official", "cpu", "quick"]


def find(name: str, root: Path = checkout.ROOT) -> Problem:
    return shape_file.find(name, checkout.Checkout(root))


def problem_names(root: Path = checkout.ROOT) -> list[str]:
    return shape_file.problem_names(checkout.Checkout(root))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout with params and shapes of some of our problems, and nothing that imports torch."""
    (tmp_path / "shapes").mkdir()
    for name in ALL:
        shutil.copy(checkout.ROOT / "shapes" / f"{name}.yaml", tmp_path / "shapes")
        folder = tmp_path / "reference" / name
        folder.mkdir(parents=True)
        shutil.copy(checkout.ROOT / "reference" / name / "params.py", folder)
        (folder / "reference.py").touch()
        (folder / "task.py").touch()
    return tmp_path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) >= 1, f"{old!r} is not in {path}"
    path.write_text(text.replace(old, new, 1))


def bad_file(root: Path, name: str = "gemm_rs") -> str:
    with pytest.raises(BadFileError) as caught:
        find(name, root)
    return str(caught.value)


def bounds_us(found: Problem, suite: str = "official") -> list[float]:
    mi300x = peaks("MI300X")
    return [bound(found.cost(case), mi300x)[0] for case in found.suite(suite).benchmarks]


def two_decimals(values: list[float]) -> list[str]:
    return [f"{value:.2f}" for value in values]


# Reading what is right


def test_the_checkout_has_our_problems() -> None:
    """`problem_names` lists them in order."""
    assert [name for name in problem_names() if name in NAMES] == NAMES


def test_a_file_that_has_changed_is_read_anew(root: Path) -> None:
    before = find("gemm_rs", root)
    assert find("gemm_rs", root) is before
    edit(root / "shapes" / "gemm_rs.yaml", "m: 64,", "m: 72,")
    after = find("gemm_rs", root)
    assert before.suite("official").tests[0].params["m"] == 64
    assert after.suite("official").tests[0].params["m"] == 72
    edit(root / "reference" / "gemm_rs" / "params.py", "class Params", "class Renamed")
    assert "name 'Params' is not defined" in bad_file(root)


@pytest.mark.parametrize("name", NAMES)
def test_every_problem_of_the_checkout_can_be_read(name: str) -> None:
    """With its own reference.py and task.py beside it."""
    found = find(name)
    assert (found.folder, found.submissions_folder) == (
        checkout.ROOT / "reference" / name,
        checkout.ROOT / "submissions" / name,
    )
    assert list(found.suites) == SUITES + ["nodes"] * (name != "moe") + ["skewed"] * (name == "a2a")
    assert found.ranking_by == "geom"


def test_the_official_suite_holds_every_published_case(root: Path) -> None:
    """Counts, timeouts, world size, and a row of each kind from the field notes."""
    counts = {name: [len(cases) for cases in (s.tests, s.benchmarks)] for name, s in officials(root).items()}
    assert counts == {"a2a": [9, 5], "ag_gemm": [11, 6], "gemm_rs": [11, 6], "moe": [14, 6]}
    for suite in officials(root).values():
        assert {suite.test_timeout_s, suite.benchmark_timeout_s, suite.ranked_timeout_s} == {640.0}
        assert {case.world_size for case in suite.tests + suite.benchmarks} == {8}
    assert officials(root)["a2a"].benchmarks[4] == Case(
        kind="benchmark",
        params={"num_experts": 256, "experts_per_token": 8, "hidden_dim": 7168, "max_num_tokens": 256},
        seed=4,
        world_size=8,
        published_us=104.36,
        short={"num_experts": "E", "experts_per_token": "k", "hidden_dim": "H", "max_num_tokens": "T"},
    )
    assert officials(root)["ag_gemm"].tests[4] == Case(
        kind="test",
        params={"m": 2048, "n": 7168, "k": 4096, "has_bias": False},
        seed=90953,
        world_size=8,
        short={"has_bias": "bias"},
    )


def officials(root: Path) -> dict[str, problem.Suite]:
    return {name: find(name, root).suite("official") for name in NAMES}


def test_params_keep_the_order_of_the_dataclass_whatever_the_file_says(root: Path) -> None:
    """So that labels of the same problem read alike."""
    case = find("gemm_rs", root).suite("quick").tests[0]
    assert list(case.params) == ["m", "n", "k", "has_bias"]
    assert case.label == "m 8  n 72  k 72  bias true"


def test_no_suite_of_ours_carries_a_published_limit(root: Path) -> None:
    """Published limits belong to the official shapes alone."""
    for name, suite in product(NAMES, SUITES):
        limits = [case.published_us for case in find(name, root).suite(suite).benchmarks]
        assert (None in limits) == (suite != "official" or name == "moe")  # nobody has published limits of moe


@pytest.mark.parametrize("alias", ["gemm_rs", "gemm-rs", "GEMM_RS", "amd-gemm-rs", "AMD_gemm-RS"])
def test_a_problem_answers_to_its_name_and_to_its_leaderboard(root: Path, alias: str) -> None:
    """Case and '-' for '_' do not matter."""
    assert find(alias, root).name == "gemm_rs"


def test_a_leaderboard_of_two_problems_is_neithers(root: Path) -> None:
    edit(root / "shapes" / "gemm_rs.yaml", "leaderboard: amd-gemm-rs", "leaderboard: amd_ag_gemm")
    both = "shapes/ag_gemm.yaml and shapes/gemm_rs.yaml: both have the leaderboard"
    with pytest.raises(BadFileError, match=both):
        find("amd-ag-gemm", root)
    assert find("gemm_rs", root).name == "gemm_rs"


def test_a_new_problem_needs_no_harness_code(root: Path) -> None:
    """A folder and a shape file are enough, with other arguments than ours, and no published limits or suites."""
    folder = root / "reference" / "ring"
    folder.mkdir()
    (folder / "reference.py").touch()
    (folder / "task.py").touch()
    (folder / "params.py").write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from harness.core.records import Cost\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Params:\n"
        "    hops: int\n"
        "    wrap: bool = True\n"
        "    def check_world_size(self, world_size: int) -> None: ...\n"
        "def cost(params: Params, world_size: int) -> Cost:\n"
        "    return Cost(flops=0.0, hbm_bytes=0.0, link_bytes=float(params.hops * world_size))\n"
    )
    case = "[{hops: 3, world_size: 2, seed: 0}]"
    (root / "shapes" / "ring.yaml").write_text(
        "problem: ring\nleaderboard: my-ring\ndescription: around\nmulti_gpu: true\nranking_by: mean\n"
        f"test_timeout: 1\nbenchmark_timeout: 1.5\nranked_timeout: 2\ntests: {case}\nbenchmarks: {case}\n"
    )
    found = find("my-ring", root)
    assert found.suite("official").tests[0].params == {"hops": 3, "wrap": True}
    assert found.cost(found.suite("official").tests[0]).link_bytes == 6
    assert problem_names(root) == [*ALL, "ring"]


def test_reading_problems_does_not_import_torch() -> None:
    """The parent process would pay seconds for it."""
    imports = "import sys, harness.machine.hardware; from harness.problems.shape_file import problem_names"
    here = "from harness.core.checkout import Checkout; problem_names(Checkout.here())"
    code = f"{imports}; {here}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=checkout.ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# Asking for what is not there


def test_an_unknown_problem_is_answered_with_the_nearest_and_the_list(root: Path) -> None:
    """Names and leaderboard names both count as near."""
    with pytest.raises(UsageError, match=rf"no problem 'a2b'; did you mean 'a2a'\? \(known: {', '.join(ALL)}\)$"):
        find("a2b", root)
    with pytest.raises(UsageError, match="did you mean 'amd-all2all'"):
        find("amd-all2al", root)


def test_a_broken_problem_does_not_hide_the_others_but_is_named(root: Path) -> None:
    """Its leaderboard name cannot be known, so an unknown name says which file could not be read."""
    (root / "shapes" / "ag_gemm.yaml").write_text("problem: [")
    assert find("a2a", root).name == find("amd-all2all", root).name == "a2a"
    with pytest.raises(UsageError, match=r"no problem 'amd-ag-gemm'.*not readable: shapes/ag_gemm\.yaml: line "):
        find("amd-ag-gemm", root)


def test_an_unknown_suite_is_answered_with_the_nearest_and_the_list(root: Path) -> None:
    """The list is in the file's order."""
    with pytest.raises(
        UsageError, match=r"a2a has no suite 'cpuu'; did you mean 'cpu'\? \(known: official, cpu, quick"
    ):
        find("a2a", root).suite("cpuu")


# Other world sizes


def test_a_suite_moves_to_another_world_size_and_loses_its_published_limits(root: Path) -> None:
    """Params and seeds stay; at the file's own world size nothing changes."""
    found = find("gemm_rs", root)
    suite = found.suite("official")
    moved = found.with_world_size(suite, 4)
    assert {case.world_size for case in moved.tests + moved.benchmarks} == {4}
    assert [case.params for case in moved.benchmarks] == [case.params for case in suite.benchmarks]
    assert {case.published_us for case in moved.benchmarks} == {None}
    assert found.with_world_size(suite, 8) == suite


@pytest.mark.parametrize(
    ("name", "suite", "place"),
    [
        ("gemm_rs", "cpu", "$.suites.cpu.tests[0].m: 8"),
        ("ag_gemm", "official", "$.tests[0].m: 64"),
        ("a2a", "quick", "$.suites.quick.tests[0].num_experts: 8"),
    ],
)
def test_a_world_size_that_does_not_divide_is_refused_with_those_that_do(
    root: Path, name: str, suite: str, place: str
) -> None:
    """The message names file, place and fix."""
    found = find(name, root)
    with pytest.raises(UsageError) as caught:
        found.with_world_size(found.suite(suite), 7)
    message = str(caught.value)
    assert message.startswith(f"shapes/{name}.yaml: {place} is not divisible by the world size 7; choose a multiple of")
    assert f"--ranks that fit suite '{suite}': 1, 2, 4, 8" in message


def test_no_ranks_at_all_are_refused(root: Path) -> None:
    """RANKS=0 and less."""
    found = find("a2a", root)
    for ranks in (0, -8):
        with pytest.raises(UsageError, match="ranks cannot run anything; choose 1 or more"):
            found.with_world_size(found.suite("cpu"), ranks)


@pytest.mark.parametrize(("name", "suite"), list(product(NAMES, ["cpu", "quick"])))
def test_our_suites_run_on_one_two_four_and_eight_ranks(root: Path, name: str, suite: str) -> None:
    """A laptop may have only two."""
    found = find(name, root)
    for ranks in (1, 2, 4, 8):
        assert found.with_world_size(found.suite(suite), ranks).benchmarks[0].world_size == ranks


# Bad shape files

FIRST = "- {world_size: 8, m: 64, n: 2880, k: 2880, has_bias: true, seed: 2035}"
CPU_THIRD = "- {world_size: 8, m: 256, n: 360, k: 360, has_bias: true, seed: 13}"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            FIRST,
            FIRST.replace("true", '"False"'),
            "$.tests[0].has_bias: expected true or false, found 'False'; write it",
        ),
        (FIRST, FIRST.replace("true", "0"), "$.tests[0].has_bias: expected true or false, found 0"),
        (FIRST, FIRST.replace("world_size: 8, ", ""), "$.tests[0]: the key 'world_size' is missing"),
        (FIRST, FIRST.replace(", seed: 2035", ""), "$.tests[0]: the key 'seed' is missing"),
        (
            FIRST,
            FIRST.replace("has_bias", "bias"),
            "$.tests[0].bias: unknown key; did you mean 'has_bias'? (known: m, n, k",
        ),
        (FIRST, FIRST.replace("m: 64", "m: 64.0"), "$.tests[0].m: expected a whole number, found 64.0"),
        (FIRST, FIRST.replace("m: 64", "m: 0"), "$.tests[0].m: expected 1 or more, found 0"),
        (FIRST, FIRST.replace("m: 64", "m: 0x" + "f" * 5000), "$.tests[0].m: too large; choose at most 2147483647"),
        (FIRST, FIRST.replace("2035", "-1"), "$.tests[0].seed: expected 0 to 2147483647, found -1"),
        (FIRST, FIRST.replace("2035", str(2**31)), "$.tests[0].seed: too large; choose at most 2147483647"),
        (FIRST, FIRST.replace("size: 8", "size: 0"), "$.tests[0].world_size: expected 1 or more ranks, found 0"),
        (FIRST, FIRST.replace("size: 8", "size: 7"), "$.tests[0].m: 64 is not divisible by the world size 7; choose"),
        (FIRST, "- [8, 64]", "$.tests[0]: expected a mapping, found a list"),
        (CPU_THIRD, CPU_THIRD.replace("256", "257"), "$.suites.cpu.benchmarks[2].m: 257 is not divisible by the world"),
        (CPU_THIRD, CPU_THIRD.replace("k: 360", "k: 361"), "$.suites.cpu.benchmarks[2].k: 361 is not divisible by the"),
        ("[6.46, ", "[", "$.published_us: 5 values for 6 benchmarks; write one for each"),
        ("[6.46, ", "[-6.46, ", "$.published_us[0]: expected microseconds above 0, found -6.46"),
        ("[6.46, ", "[.nan, ", "$.published_us[0]: expected a finite number, found nan"),
        (
            "ranking_by: geom",
            "ranking_by: best",
            "$.ranking_by: expected one of 'last', 'mean', 'geom', 'relative', 'olympic', 'product', found",
        ),
        ("ranking_by:", "rankingby:", "$.rankingby: unknown key; did you mean 'ranking_by'?"),
        ("multi_gpu: true", "multi_gpu: false", "$.tests[0]: a case of one GPU runs on 1 rank, not on 8"),
        ("{has_bias: bias}", "{bias: b}", "$.short.bias: no such parameter; did you mean 'has_bias'? (known: m, n, k"),
        ("{has_bias: bias}", "{has_bias: m}", "$.short.has_bias: 'm' already stands for another parameter; choose"),
        ("{has_bias: bias}", "{has_bias: ''}", "$.short.has_bias: expected a short name without spaces, found ''"),
        ("published_on: MI300X\n", "", "$.published_on: is missing, and published_us has values; write"),
        ("{has: reduce_scatter}", "{lacks: x}", "$.marks: the key 'has' is missing"),
        ("test_timeout: 60\n", "test_timeout: 0\n", "$.suites.cpu.test_timeout: expected seconds above 0, found 0.0"),
        ("test_timeout: 640", "test_timeout: 1e3", "$.test_timeout: expected a number, found '1e3'"),
        ("problem: gemm_rs", "problem: a2a", "$.problem: expected 'gemm_rs' as the file's name says, found 'a2a'"),
        ("  cpu:\n", "  official:\n", "$.suites.official: the name belongs to the suite at the top"),
        (
            "ranking_by: geom",
            "data: [/etc/*]\nranking_by: geom",
            "$.data[0]: expected files of the problem's folder, fou",
        ),
        (
            "ranking_by: geom",
            "data: [a, ../b]\nranking_by: geom",
            "$.data[1]: expected files of the problem's folder, f",
        ),
        ("ranking_by: geom", "seed: 2024-13-45", "month must be in 1..12"),
    ],
)
def test_a_bad_value_is_named_with_its_file_place_and_fix(root: Path, old: str, new: str, message: str) -> None:
    """Nothing is coerced, guessed or ignored."""
    edit(root / "shapes" / "gemm_rs.yaml", old, new)
    assert bad_file(root).startswith(f"shapes/gemm_rs.yaml: {message}")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("experts_per_token: 2", "experts_per_token: 9", ".experts_per_token: a token's experts are distinct, so 9"),
        ("num_experts: 8,", "num_experts: 12,", ".num_experts: 12 is not divisible by the world size 8; choose"),
        ("max_num_tokens: 4", "max_num_tokens: 1", ".max_num_tokens: expected 2 or more, found 1: a rank has"),
        ("max_num_tokens: 4", "max_num_tokens: 4000000", ".max_num_tokens: expected at most 262144, found 4000000"),
        ("hidden_dim: 6144", "hidden_dim: -1", ".hidden_dim: expected 1 or more, found -1"),
    ],
)
def test_an_impossible_a2a_case_is_named(root: Path, old: str, new: str, message: str) -> None:
    """The problem's own params.py decides what is possible."""
    edit(root / "shapes" / "a2a.yaml", old, new)
    assert bad_file(root, "a2a").startswith(f"shapes/a2a.yaml: $.tests[0]{message}")


def test_an_empty_list_of_cases_is_refused(root: Path) -> None:
    """Else a suite without tests would pass everything."""
    path = root / "shapes" / "gemm_rs.yaml"
    before, _, after = path.read_text().partition("    benchmarks:\n")
    path.write_text(before + "    benchmarks: []\n" + "\n  quick:" + after.split("\n  quick:")[1])
    expected = "shapes/gemm_rs.yaml: $.suites.cpu.benchmarks: the list is empty; write at least one case"
    assert bad_file(root) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("problem: gemm_rs\nleaderboard: [\n", "line 3, column 1: not YAML as expected here: "),
        ("problem: gemm_rs\n\ttests: 3\n", "line 2, column 1: not YAML as expected here: "),
        ("tests: 1\ntests: 2\n", "line 2, column 1: not YAML as expected here: the key 'tests' appears twice"),
        ("tests:\n- {m: 1, n: 2, m: 3}\n", "line 2, column 16: not YAML as expected here: the key 'm' appears twice"),
        ("tests: &all\n- *all\n", ""),
        ("a: 1\n---\nb: 2\n", "line 2, column 1: not YAML as expected here: "),
        ("tests: !!python/object/apply:os.system [ls]\n", "line 1, column 8: not YAML as expected here: "),
        ("tests: \x07\n", ""),
        ("[" * 5000, ""),
        ("tests: " + "[" * 100_000, "nested too deeply"),
        ("- " * 100_000, "nested too deeply"),
        ("- problem\n", "$: expected a mapping, found a list"),
        ("", "$: expected a mapping, found null"),
        ("3: 4\n", "$: expected keys that are texts, found 3"),
    ],
)
def test_a_file_that_is_not_such_yaml_is_refused_with_line_and_column(root: Path, text: str, message: str) -> None:
    """And never with a traceback."""
    (root / "shapes" / "gemm_rs.yaml").write_text(text)
    assert bad_file(root).startswith(f"shapes/gemm_rs.yaml: {message}")


def test_a_file_that_is_not_text_is_refused(root: Path) -> None:
    """Bytes that are not UTF-8."""
    (root / "shapes" / "gemm_rs.yaml").write_bytes(b"problem: \xff\xfe\n")
    assert bad_file(root) == "shapes/gemm_rs.yaml: not UTF-8 at byte 9; save it as UTF-8"


def test_merge_keys_may_repeat_what_they_override(root: Path) -> None:
    """YAML's `<<` is how one case can be written as a change of another."""
    old = "- {world_size: 8, m: 64, n: 64, k: 128, has_bias: false, seed: 42}"
    first = "- {world_size: 8, m: 8, n: 72, k: 72, has_bias: true, seed: 41}"
    edit(root / "shapes" / "gemm_rs.yaml", first, first.replace("- {", "- &first {"))
    edit(root / "shapes" / "gemm_rs.yaml", old, "- {<<: *first, seed: 42}")
    first_case, second_case = find("gemm_rs", root).suite("quick").tests
    assert (first_case.seed, second_case.seed) == (41, 42)
    assert first_case.params == second_case.params


# Bad folders


@pytest.mark.parametrize(
    "missing", ["reference/a2a/reference.py", "reference/a2a/task.py", "reference/a2a/params.py", "shapes/a2a.yaml"]
)
def test_a_missing_file_of_a_problem_is_named(root: Path, missing: str) -> None:
    """The problem is still listed: it is broken, not gone."""
    (root / missing).unlink()
    assert "a2a" in problem_names(root)
    assert bad_file(root, "a2a").startswith(
        f"{missing}: no such file; a problem needs reference/a2a/ with reference.py"
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("class Params:", "class Params", "cannot be imported: SyntaxError: expected ':' (params.py, line"),
        ("from dataclasses", "from dataklasses", "cannot be imported: ModuleNotFoundError: No module named 'datak"),
        ("class Params:", "class Parameters:", "cannot be imported: NameError: name 'Params' is not defined"),
        ("frozen=True, ", "", "Params is missing; write a @dataclass(frozen=True, kw_only=True)"),
        ("has_bias: bool", "has_bias: bytes", "Params.has_bias: expected keyword-only fields of type int, bool"),
        ("has_bias: bool", "seed: int", "Params.seed: expected keyword-only fields of type int, bool, float, str or"),
        ("def check_world_size", "def check", "Params.check_world_size(world_size) is missing; raise DecodeError"),
        ("def cost(", "cost = 3\n\n\ndef costs(", "cost is no function; leave it out, or write `def cost(...)`"),
    ],
)
def test_a_broken_params_file_is_named(root: Path, old: str, new: str, message: str) -> None:
    """And never with a traceback."""
    edit(root / "reference" / "gemm_rs" / "params.py", old, new)
    assert bad_file(root).startswith(f"reference/gemm_rs/params.py: {message}")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("has_bias: bool", "has_bias: 'boole'", "Params: NameError: name 'boole' is not defined"),
        (
            "def __post_init__(self) -> None:",
            "def __post_init__(self) -> None:\n        len(self.m)",
            "Params of a case: T",
        ),
        ("def check_world_size(self, world_size: int)", "def check_world_size(self)", "Params of a case: TypeError: "),
    ],
)
def test_a_params_file_that_fails_for_a_case_is_named_with_its_line(
    root: Path, old: str, new: str, message: str
) -> None:
    """All of these ended with a traceback of the harness."""
    edit(root / "reference" / "gemm_rs" / "params.py", old, new)
    assert re.match(rf"reference/gemm_rs/params\.py(:\d+)?: {message}.*; correct it there$", bad_file(root))


def test_functions_of_a_params_file_that_fail_are_named_with_their_line(root: Path) -> None:
    """And what they return is looked at before it is computed with."""
    path = root / "reference" / "gemm_rs" / "params.py"
    text = path.read_text()
    path.write_text(f"{text}\n\ndef cost(*arguments):\n    return 1 / 0\n\n\ndepends_on = near = cost\n")
    line = len(text.splitlines()) + 4
    found = find("gemm_rs", root)
    suite = found.suite("cpu")
    case = suite.benchmarks[0]
    calls: dict[str, Callable[[], object]] = {
        "cost()": lambda: found.cost(case),
        "depends_on() of rank 1": lambda: found.depends_on(case, 1),
        "near()": lambda: drawn_cases(found, replace(suite, drawn=1, benchmarks=(case,)), "secret"),
    }
    for what, call in calls.items():
        with pytest.raises(BadFileError) as caught:
            call()
        said = (
            f"reference/gemm_rs/params.py:{line}: {what} of {case.label}: ZeroDivisionError: division by zero; correct"
        )
        assert str(caught.value).startswith(said)
    for result, says in (
        ("None", "expected a Cost, found None; write"),
        ("Cost(flops='4', hbm_bytes=1, link_bytes=1)", "expe"),
    ):
        path.write_text(f"{text}\n\ndef cost(params, world_size):\n    return {result}\n")
        with pytest.raises(BadFileError, match=re.escape(f"params.py: cost() of {case.label}: {says}")):
            find("gemm_rs", root).cost(case)


def test_an_empty_text_is_left_out_of_a_case_only_where_it_is_the_default(root: Path) -> None:
    """Without a default the case had lacked its argument, which ended with a traceback."""
    path = root / "reference" / "gemm_rs" / "params.py"
    edit(path, "    has_bias: bool\n", '    has_bias: bool\n    label: str\n    other: str = ""\n')
    shapes = root / "shapes" / "gemm_rs.yaml"
    shapes.write_text(shapes.read_text().replace("world_size: 8, m", 'label: "", world_size: 8, m'))
    shapes.write_text(shapes.read_text().replace("world_size: 16, m", 'label: "", world_size: 16, m'))
    found = find("gemm_rs", root)
    case = found.suite("official").tests[0]
    assert (case.params["label"], "other" in case.params) == ("", False)
    assert found.cost(case).flops > 0


@pytest.mark.parametrize("shared", ["lama_pretrain", "llama_lora", "../llama_pretrain"])
def test_a_problem_that_shares_the_modules_of_none_is_named(root: Path, shared: str) -> None:
    """Its ranks found out, by a module that is missing."""
    edit(root / "shapes" / "llama_lora.yaml", "shares: [llama_pretrain]", f"shares: [{shared}]")
    said = f"shapes/llama_lora.yaml: $.shares[0]: no other problem '{shared}'"
    assert bad_file(root, "llama_lora").startswith(said)


def test_a_params_file_that_imports_torch_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", sys)  # put back at the end
    del sys.modules["torch"]
    first = "from dataclasses"
    edit(root / "reference" / "gemm_rs" / "params.py", first, f"import sys\n\nsys.modules['torch'] = sys\n{first}")
    assert bad_file(root).startswith("reference/gemm_rs/params.py: it imports torch")


# How communication is shown


def test_each_problem_says_how_communication_is_shown(root: Path) -> None:
    """a2a's simulated expert is a factor that every rank knows: there only a delay shows anything."""
    assert {name: find(name, root).communication for name in NAMES} == {
        "a2a": ("delay",),
        "ag_gemm": ("delay", "data"),
        "gemm_rs": ("delay", "data"),
        "moe": ("delay", "data"),
    }
    assert shape_file.communication_words("moe", checkout.Checkout(root)) == "delay, data"
    assert shape_file.communication_words("../moe", checkout.Checkout(root)) == ""


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("[delay, trust]", "$.communication[1]: expected one of 'delay', 'data', found 'trust'"),
        ("delay", "$.communication: expected a list, found 'delay'"),
        ("[data, data]", "$.communication: a word stands there twice; write each once"),
    ],
)
def test_a_wrong_word_for_communication_is_refused(root: Path, value: str, message: str) -> None:
    edit(root / "shapes" / "gemm_rs.yaml", "communication: [delay, data]", f"communication: {value}")
    assert message in bad_file(root)


def test_a_delay_shows_nothing_where_no_rank_depends_on_another(root: Path) -> None:
    edit(root / "reference" / "gemm_rs" / "params.py", "def depends_on(", "def depended_on(")
    assert "$.communication: 'delay' needs depends_on() in reference/gemm_rs/params.py" in bad_file(root)


# Costs


def test_gemm_rs_reproduces_the_published_speed_of_light_to_the_digit(root: Path) -> None:
    """On the MI300X of the hardware table."""
    found = find("gemm_rs", root)
    assert two_decimals(bounds_us(found)) == ["6.46", "8.19", "23.04", "65.54", "131.07", "379.43"]
    assert [case.published_us for case in found.suite("official").benchmarks] == [
        6.46, 8.19, 23.04, 65.54, 131.07, 379.43
    ]  # fmt: skip


def test_ag_gemm_gives_the_bounds_of_a_gather_of_the_input(root: Path) -> None:
    """The right rows of the field notes."""
    assert two_decimals(bounds_us(find("ag_gemm", root))) == ["6.46", "8.19", "23.04", "65.54", "131.07", "379.43"]


def test_published_ag_gemm_rows_two_five_and_six_are_no_bounds(root: Path) -> None:
    """They take m n for the gathered bytes: a call at the true bound would score 3, 3.5 and 2.5 of them."""
    found = find("ag_gemm", root)
    published = [case.published_us for case in found.suite("official").benchmarks]
    ratios = [row / true for row, true in zip(published, bounds_us(found), strict=True) if row is not None]
    assert two_decimals(ratios) == ["1.00", "3.00", "1.00", "1.00", "3.50", "2.49"]
    over = [index for index, ratio in enumerate(ratios, start=1) if ratio > 1.01]
    assert over == [2, 5, 6]
    for index in (2, 5):  # and this is where they come from: the gathered bytes of m n
        params = found.suite("official").benchmarks[index - 1].params
        assert f"{2 * params['m'] * params['n'] * 7 / 8 / 448e9 * 1e6:.2f}" == f"{published[index - 1]:.2f}"


def test_a2a_bounds_lie_below_the_published_model(root: Path) -> None:
    """The published column is a latency and a rate that fit it, not what has to move."""
    found = find("a2a", root)
    assert two_decimals(bounds_us(found)) == ["1.01", "1.54", "6.40", "29.13", "50.55"]
    for case, bound_us in zip(found.suite("official").benchmarks, bounds_us(found), strict=True):
        assert case.published_us is not None
        assert bound_us < case.published_us


def a2a_case(world_size: int = 8, **changes: int) -> Case:
    params = {"num_experts": 64, "experts_per_token": 4, "hidden_dim": 256, "max_num_tokens": 32} | changes
    return Case(kind="benchmark", params=dict(params), seed=0, world_size=world_size)


@pytest.mark.parametrize("name", ["experts_per_token", "hidden_dim", "max_num_tokens"])
def test_a2a_cost_grows_with_tokens_experts_and_width(root: Path, name: str) -> None:
    """In every term (flops and links strictly, memory at least not less)."""
    found = find("a2a", root)
    less, more = (found.cost(a2a_case(**{name: value})) for value in (8, 16))
    assert less.flops < more.flops
    assert less.hbm_bytes < more.hbm_bytes
    assert less.link_bytes < more.link_bytes


def test_a2a_moves_what_a_count_by_hand_says(root: Path) -> None:
    """One token a rank (M = 2), two ranks, both experts chosen: each rank sends a token out and a result back."""
    cost = find("a2a", root).cost(a2a_case(2, num_experts=2, experts_per_token=2, hidden_dim=10, max_num_tokens=2))
    assert cost.link_bytes == 2 * 10 + 2 * 10  # dispatch of its own token, combine of the other's
    assert cost.hbm_bytes == 2 * 10 + 2 * 10 + 2 * 4 + 2 * 4  # x, result, indices, weights
    assert cost.flops == 2 * 10 * 2  # two tokens seen, a multiply and an add per element


def test_a2a_cost_agrees_with_a_simulation_of_tokens_and_experts(root: Path) -> None:
    """The expectation over draws, within its sampling error, of the busiest rank's outgoing bytes."""
    import random

    draw = random.Random(0)
    ranks, experts, chosen, width, most = 4, 16, 3, 1, 6
    total, trials = 0.0, 4000
    for _ in range(trials):
        tokens = [draw.randint(1, most - 1) for _ in range(ranks)]
        busiest = tokens.index(max(tokens))
        for rank, count in enumerate(tokens):
            for _ in range(count):
                owners = {expert // (experts // ranks) for expert in draw.sample(range(experts), chosen)}
                total += 2 * width * (len(owners - {busiest}) if rank == busiest else busiest in owners)
    case = a2a_case(ranks, num_experts=experts, experts_per_token=chosen, hidden_dim=width, max_num_tokens=most)
    assert find("a2a", root).cost(case).link_bytes == pytest.approx(total / trials, rel=0.02)


def test_moe_costs_what_a2a_does_over_links_and_its_experts_matrices_once(root: Path) -> None:
    """The anchors of its cost() on MI300X, and the terms of its largest official shape by hand."""
    found = find("moe", root)
    assert two_decimals(bounds_us(found))[:5] == ["1.01", "1.54", "6.40", "29.13", "50.55"]
    of_both = (find(name, root).suite("official").benchmarks[:5] for name in ("moe", "a2a"))  # moe's last is skewed
    for ours, theirs in zip(*of_both, strict=True):
        assert found.cost(ours).link_bytes == pytest.approx(find("a2a", root).cost(theirs).link_bytes)
    cost = found.cost(found.suite("official").benchmarks[4])
    assert cost.flops == 4 * 16 * 7168 * 8 * 128  # I, H, k, and M / 2 tokens
    assert cost.hbm_bytes == pytest.approx(227.164 * (4 * 7168 + 8 * 8) + 32 * 4 * 16 * 7168, rel=1e-5)


def test_moe_counts_no_more_than_fetching_all_experts_costs(root: Path) -> None:
    """With thousands of tokens a rank it is cheaper to fetch 16 experts' matrices of 16 x H than to send tokens."""
    shape = {"num_experts": 128, "experts_per_token": 8, "hidden_dim": 64, "max_num_tokens": 8192}
    cost = find("moe", root).cost(Case(kind="benchmark", params=shape, seed=0, world_size=8))
    assert cost.link_bytes == 2 * 64 * 7 * 2 * 16 * 16


@pytest.mark.parametrize("name", NAMES)
def test_one_rank_alone_sends_nothing_over_links(root: Path, name: str) -> None:
    """And still has to compute and to touch its memory."""
    found = find(name, root)
    for case in found.with_world_size(found.suite("official"), 1).benchmarks:
        cost = found.cost(case)
        assert cost.link_bytes == 0
        assert 0 < cost.flops < math.inf
        assert 0 < cost.hbm_bytes < math.inf


@pytest.mark.parametrize(
    ("name", "old", "new", "says"),
    [
        (
            "iopddl",
            "kind: program",
            "kind: progam",
            "$.kind: no kind 'progam'; did you mean 'program'? (known: op, program, train, model)",
        ),
        ("iopddl", "kind: program", "kind: replay", "$.kind: no kind 'replay' (known: op, program, train, model)"),
        ("gemm_rs", "multi_gpu", "kind: vendor\nmulti_gpu", "$.kind: no kind 'vendor' (known: "),
        (
            "gemm_rs",
            "multi_gpu",
            "checker: exact\nmulti_gpu",
            "$.checker: kind 'op' has no checker 'exact' (known: strict)",
        ),
        (
            "llama",
            "checker: logits",
            "checker: exact",
            "$.checker: kind 'model' has no checker 'exact' (known: logits)",
        ),
        (
            "gemm_rs",
            "multi_gpu",
            "takes_data: true\nmulti_gpu",
            "$.takes_data: kind 'op' has no --data (kind train has)",
        ),
        ("llama_lora", "checker: quality\n", "", "$.checker: kind 'train' has no checker 'strict' (known: quality)"),
        (
            "gemm_rs",
            "published_on: MI300X",
            "published_on: MI300",
            "$.published_on: no GPU 'MI300' in hardware.yaml; did you mean",
        ),
    ],
)
def test_a_kind_a_checker_and_a_gpu_that_no_shape_file_may_name(
    name: str, old: str, new: str, says: str, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By name, by the folder's path, by GPU MODE's name, and in the list of problems."""
    here = checkout.Checkout(root)
    edit(root / "shapes" / f"{name}.yaml", old, new)
    for called in (name, str(root / "reference" / name), find(name, root).leaderboard):
        with pytest.raises(BadFileError) as caught:
            registry.find(called, here)
        assert str(caught.value).startswith(f"shapes/{name}.yaml: {says}")
    assert problems.run(problems.ProblemsOrder(), here) == BadFileError.exit_code
    assert f"bad      shapes/{name}.yaml: {says}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        (
            "iopddl",
            "    instance: str\n    limit: float\n",
            "Params.limit_s: kind 'program' needs it, as `limit_s: float`",
        ),
        (
            "iopddl",
            "    instance: int\n    limit_s: float\n",
            "Params.instance: kind 'program' needs it, as `instance: st",
        ),
        ("llama_lora", "    size: str\n    target: float\n", "Params.runs: kind 'train' needs it, as `runs: int`"),
    ],
)
def test_what_a_kind_reads_of_a_case_has_to_be_among_its_parameters(
    root: Path, name: str, text: str, says: str
) -> None:
    """It had been a KeyError in the middle of an evaluation."""
    path = root / "reference" / name / "params.py"
    head = "from dataclasses import dataclass\n@dataclass(frozen=True, kw_only=True)\nclass Params:\n"
    path.write_text(f"{head}{text}    def check_world_size(self, world_size): ...\n")
    some = {"str": "x", "int": "1", "float": "1.0"}
    case = ", ".join(f"{field}: {some[kind]}" for field, kind in re.findall(r"(\w+): (\w+)", text))
    shapes = root / "shapes" / f"{name}.yaml"
    kept = re.search(r"(?m)^suites:", shapes.read_text())
    assert kept is not None
    lines = [line for line in shapes.read_text()[: kept.start()].splitlines() if not line.startswith("short:")]
    lines = [f"  - {{{case}, world_size: 1, seed: 1}}" if line.startswith("  - ") else line for line in lines]
    shapes.write_text("\n".join(lines))
    with pytest.raises(BadFileError, match=re.escape(f"reference/{name}/params.py: {says}")):
        registry.find(name, checkout.Checkout(root))


def test_a_score_that_ignores_its_metrics_unit_is_refused(root: Path) -> None:
    """`ranking_by: geom` read tokens a second as microseconds: 1,306 of them were a score of 1.261 ms."""
    edit(root / "shapes" / "llama.yaml", "ranking_by: product", "ranking_by: geom")
    said = (
        "shapes/llama.yaml: $.ranking_by: 'geom' scores values in us, and this problem's are in tokens/s: write product"
    )
    with pytest.raises(BadFileError, match="write product") as caught:
        registry.find("llama", checkout.Checkout(root))
    assert str(caught.value) == said


@pytest.mark.parametrize("name", ["iopddl", "llama_lora", "llama_pretrain"])
def test_a_vendors_profiler_is_no_tool_for_what_is_no_kernel(name: str) -> None:
    found = registry.find(name, checkout.Checkout(checkout.ROOT))
    setting = Setting(problem=found, suite=found.suite("official"), device="cpu", world_size=1, tool="ncu")
    with pytest.raises(UsageError, match=f"--tool ncu profiles one call of a kernel, and a submission to {name} is"):
        registry.kind_of(setting)


@pytest.mark.parametrize("name", ["gemm_rs", "swiglu", "llama"])
def test_a_vendors_profiler_takes_what_is_called(name: str) -> None:
    found = registry.find(name, checkout.Checkout(checkout.ROOT))
    setting = Setting(problem=found, suite=found.suite("official"), device="cpu", world_size=1, tool="ncu")
    assert registry.kind_of(setting) is registry.KINDS["vendor"]
