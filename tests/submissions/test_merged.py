"""Products of three parts by one instruction: what becomes of the PTX, and what is refused. Whether the instruction is
right shows on a GPU; that kernels have it, test_gemm_warps.py and test_llama_prompt_warps.py."""

import re
from collections.abc import Iterator

import pytest
import triton
from kernel_ranks import imported


@pytest.fixture(scope="module", autouse=True)
def submissions() -> Iterator[None]:
    with imported("ag_gemm"):
        yield


def product(part: int, step: int) -> str:
    sums = ",".join(f"%f{part}{number}" for number in range(4))
    operands = f"%rd1{step}, %rd2{part}{step}"
    return f"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{{sums}}}, {operands}, %p1, 1, 1, 0, 0;"


def marked(parts: int = 3, steps: int = 2) -> str:
    from common.merged import MARK

    lines = ["before", MARK.value]
    for part in range(parts):
        lines += ["wgmma.fence.sync.aligned;", *(product(part, step) for step in range(steps))]
        lines.append("wgmma.commit_group.sync.aligned;")
    return "\n".join([*lines, "wgmma.wait_group.sync.aligned 3;", "behind", "wgmma.wait_group.sync.aligned 0;"])


def test_three_products_are_one_of_as_many_columns() -> None:
    from common.merged import merged

    found = [line for line in merged(marked()).split("\n") if "wgmma" in line]
    sums = ",".join(f"%f{part}{number}" for part in range(3) for number in range(4))
    assert found == [
        "wgmma.fence.sync.aligned;",
        *(
            "wgmma.mma_async.sync.aligned.m64n24k16.f32.bf16.bf16 "
            f"{{{sums}}}, %rd1{step}, %rd20{step}, %p1, 1, 1, 0, 0;"
            for step in range(2)
        ),
        "wgmma.commit_group.sync.aligned;",
        "wgmma.wait_group.sync.aligned 1;",
        "wgmma.wait_group.sync.aligned 0;",
    ]


def test_what_has_no_mark_stays() -> None:
    from common.merged import MARK, merged

    plain = marked().replace(MARK.value, "")
    assert merged(plain) == plain


@pytest.mark.parametrize(
    "text",
    [
        lambda: marked(parts=2),
        lambda: re.sub(r"wgmma\.mma[^\n]*%rd221,[^\n]*\n", "", marked()),  # a step fewer in the last part
        lambda: marked().replace("%rd11, %rd211", "%rd9, %rd211"),  # of other rows
        lambda: marked().split("wgmma.wait_group")[0],
    ],
)
def test_others_than_expected_are_refused(text: object) -> None:
    from common.merged import merged

    with pytest.raises(ValueError, match="line 2 of the PTX"):
        merged(text())  # type: ignore[operator]


def test_the_hook_that_was_there_is_there_again() -> None:
    from common.merged import merging

    def hook(*_: object) -> None: ...

    knobs = triton.knobs.runtime
    before, knobs.add_stages_inspection_hook = knobs.add_stages_inspection_hook, hook
    try:
        with merging():
            assert knobs.add_stages_inspection_hook is not hook
        assert knobs.add_stages_inspection_hook is hook
    finally:
        knobs.add_stages_inspection_hook = before
