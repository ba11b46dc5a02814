"""Which texts are copies of each other: whatever a copy changes that changes nothing, and what is no copy."""

import ast
import time
from pathlib import Path

import pytest

from harness.core.checkout import ROOT
from harness.core.records import Module
from harness.problems.same_code import same_code
from harness.problems.submission import MAX_BYTES

ORIGINAL = '''"""Adds the bias."""
import torch
import triton
import triton.language as tl
from task import input_t

CUDA = """
// doubles
__global__ void twice(float *x) { x[0] *= 2; /* in place */ }
"""


@triton.autotune(configs=[triton.Config({"BLOCK": 128})], key=["n"])
@triton.jit
def add(x_ptr, n, BLOCK: tl.constexpr):
    """One program a block."""
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + where, tl.load(x_ptr + where) + 1, where < n)


class Cache:
    size = 1

    def get(self, key):
        return [key for key in range(key) if (last := key)] + [last]


def custom_kernel(data: input_t):
    x, bias = data
    total = 0
    for index, row in enumerate(x):
        try:
            total += row.sum(dim=0)
        except ValueError as error:
            print(error)
    grid = (triton.cdiv(x.numel(), 128),)
    add[grid](x, n=x.numel())
    return torch.add(x, bias, alpha=total)
'''


def changed(*pairs: tuple[str, str]) -> str:
    text = ORIGINAL
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    ast.parse(text)
    return text


COPIES = {
    "a blank line": changed(("    total = 0\n", "\n    total = 0\n\n")),
    "comments": changed(("    total = 0\n", "    # from zero\n    total = 0  # on\n")),
    "a comment in a kernel's text": changed(("// doubles\n", "// makes it twice as much\n\n")),
    "other docstrings": changed(('"""Adds the bias."""', '"""Mine."""'), ('    """One program a block."""\n', "")),
    "a text that does nothing": changed(("    total = 0\n", '    "here"\n    total = 0\n    pass\n')),
    "names of locals": changed(
        ("total", "sum_of_all"), ("index", "i"), ("row", "line"), ("error)", "e)"), (" error", " e")
    ),
    "a local of one function": changed(("where", "offsets")),
    "a parameter that is named in calls": changed(
        (" n,", " count,"), ("< n)", "< count)"), ("n=x", "count=x"), ('["n"]', '["count"]')
    ),
    "a parameter that configurations name": changed(("BLOCK", "SIZE")),
    "a function and a global": changed(("add[", "plus["), ("def add(", "def plus("), ("CUDA", "TEXT")),
    "a name in a comprehension": changed(
        ("[key for key in range(key) if (last := key)]", "[k for k in range(key) if (last := k)]")
    ),
    "imports in another order": changed(("import torch\nimport triton\n", "import triton\nimport os\nimport torch\n")),
    "imports under other names": changed(("import torch\n", "import torch as t\n"), ("torch.add", "t.add")),
    "other white space": changed(
        ("x, bias = data", "(x,   bias) = (\n        data\n    )"), ("total = 0", "total = 0x0")
    ),
}
OTHERS = {
    "another number": changed(("128})", "256})")),
    "another operator": changed(("+ 1", "- 1")),
    "another function of torch": changed(("torch.add(", "torch.sub(")),
    "arguments exchanged": changed(("torch.add(x, bias", "torch.add(bias, x")),
    "variables exchanged": changed(("x, bias = data", "bias, x = data")),
    "another import of the same name": changed(("import triton.language as tl", "import triton.interpreter as tl")),
    "another kernel's text": changed(("*= 2", "*= 3")),
    "another attribute": changed(("size = 1", "width = 1")),
    "a decorator less": changed(("@triton.jit\n", "")),
    "a default": changed(("def get(self, key)", "def get(self, key=1)")),
    "a local that is a global": changed(("    total = 0\n", "    global total\n    total = 0\n")),
    "nothing": "",
}

TWICE = "def {}(x):\n    return x\n\n\ndef {}(x):\n    return x + 1\n"


@pytest.mark.parametrize("name", COPIES)
def test_what_changes_nothing_hides_no_copy(name: str) -> None:
    assert COPIES[name] != ORIGINAL
    assert same_code(COPIES[name]) == same_code(ORIGINAL)


@pytest.mark.parametrize("name", OTHERS)
def test_another_program_is_no_copy(name: str) -> None:
    assert same_code(OTHERS[name]) != same_code(ORIGINAL)


def test_a_renaming_in_one_scope_cannot_meet_another_name() -> None:
    twice = "def f(x, y):\n    return x - {}\n\n\ndef g(x, y):\n    return y - x\n"
    assert same_code(twice.format("y")) != same_code(twice.format("x"))
    inner = "def f(x):\n    def g({}):\n        return x\n    return g\n"
    assert same_code(inner.format("y")) == same_code(inner.format("z")) != same_code(inner.format("x"))


@pytest.mark.parametrize("entry", ["custom_kernel", "ModelNew", "solution", "run", "build", "train"])
def test_two_functions_that_exchange_their_names_are_another_program_where_one_is_called(entry: str) -> None:
    assert same_code(TWICE.format(entry, "old")) == same_code(TWICE.format(entry, "older"))
    assert same_code(TWICE.format(entry, "old")) != same_code(TWICE.format("old", entry))


def test_all_but_the_imports_may_be_nothing() -> None:
    alone = "from reference import {} as custom_kernel\n"
    assert same_code(alone.format("ref_kernel")) != same_code(alone.format("other"))
    used = "x = 1\n" + alone
    assert same_code(used.format("ref_kernel")) != same_code(used.format("other"))
    assert same_code("import a\n") != same_code("import b\n")


def test_a_module_may_have_another_name_but_not_another_text() -> None:
    def of(name: str, text: str) -> str:
        return same_code(f"from {name} import F\nprint(F)\n", [Module(name=name, file=f"{name}.py", source=text)])

    assert of("tuning", "F = 1\n") == of("table", "F = 1  # that is it\n") != of("tuning", "F = 2\n")


@pytest.mark.parametrize(
    "use",
    [
        "from kernels import fast\n\n\ndef custom_kernel(x):\n    return fast(x)\n",
        "import kernels\n\n\ndef custom_kernel(x):\n    return kernels.fast(x)\n",
    ],
)
def test_functions_of_a_module_that_exchange_their_names_are_another_program(use: str) -> None:
    def of(one: str, other: str) -> str:
        text = TWICE.format(one, other)
        return same_code(use, [Module(name="kernels", file="kernels.py", source=text)])

    assert of("fast", "old") == of("fast", "older") != of("old", "fast")


def test_modules_or_files_of_a_build_that_exchange_their_texts_are_another_program() -> None:
    use = "from {} import f\nfrom {} import f as g\n\n\ndef custom_kernel(x):\n    return g(f(x))\n"

    def of(source: str, texts: dict[str, str]) -> str:
        return same_code(source, [Module(name=name, file=name, source=text) for name, text in texts.items()])

    one, other = "def f(x):\n    return x + 1\n", "def f(x):\n    return 2 * x\n"
    first = of(use.format("a", "b"), {"a": one, "b": other})
    assert first == of(use.format("z", "b"), {"b": other, "z": one})
    assert first != of(use.format("a", "b"), {"a": other, "b": one})
    build = "gcc -o submission ./fast.c\n"
    assert of(build, {"./fast.c": "1;", "./old.c": "2;"}) != of(build, {"./fast.c": "2;", "./old.c": "1;"})


def test_a_solution_says_in_its_last_line_which_function_is_called() -> None:
    said = "\n\nKERNEL_EVAL_SPEC = {'entry': 'gemm', 'fills': None}\n"
    assert same_code(TWICE.format("gemm", "old") + said) == same_code(TWICE.format("gemm", "older") + said)
    assert same_code(TWICE.format("gemm", "old") + said) != same_code(TWICE.format("old", "gemm") + said)


def test_what_is_no_python_is_compared_without_comments_and_white_space() -> None:
    source = '#include <x.h>\nint main() { puts("a // b"); return 0; } // ends\n'
    assert same_code(source) == same_code(source.replace("// ends", "/* that\n is all */").replace("{ ", "{\n\t"))
    assert same_code(source) != same_code(source.replace("a // b", "a // c"))


@pytest.mark.parametrize(
    "source", ["-" * 5000 + "1", "(" * 500, "x = [" * 90 + "]" * 90, "\0", "match x:\n  case [a, *b]: a\n"]
)
def test_every_text_has_a_digest(source: str) -> None:
    assert len(same_code(source)) == 16


@pytest.mark.parametrize(
    "part",
    [
        "/*",
        '"\\"',
        "\\",
        " ",
        "'",
        "(",
        "//\n",
        "def f():0\n",
        pytest.param("x=[y for y in z]\n", marks=pytest.mark.slow),
    ],
)
@pytest.mark.untraced
def test_the_longest_text_takes_seconds(part: str) -> None:
    source = part * (MAX_BYTES // len(part.encode()))
    began_s = time.process_time()
    assert same_code(source)
    assert same_code(f"x = '''\n{source}\n'''\n")
    assert time.process_time() - began_s < 30


@pytest.mark.untraced
def test_many_calls_of_a_function_of_many_parameters_take_seconds() -> None:
    parameters = ",".join(f"a{number}" for number in range(50_000))
    began_s = time.process_time()
    assert same_code(f"def f({parameters}): return 1\n" + "f(1)\n" * 50_000)
    assert time.process_time() - began_s < 30


@pytest.mark.untraced
def test_no_two_submissions_of_the_checkout_are_copies() -> None:
    files = [file for file in sorted((ROOT / "submissions").glob("*/*.py")) if file.name != "__init__.py"]
    found: dict[str, list[Path]] = {}
    for file in files:
        if file.is_symlink() or not file.read_text().strip():
            continue
        found.setdefault(same_code(file.read_text()), []).append(file)
    assert [names for names in found.values() if len({one.read_text() for one in names}) > 1] == []
