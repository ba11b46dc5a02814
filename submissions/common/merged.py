"""Products of three times a power of two columns by one instruction (Hopper).

A tensor of Triton's has a power of two columns, so a tile of 192 is three products of 64, each of which reads the
rows' operand from shared memory anew. For 16 of the depth of a tile of 128 x 192 that memory then takes 272 cycles (it
reads and writes 128 bytes a cycle), with one product of 192 columns 208, and the tensor cores 192. So where a kernel
says MARK, the PTX that Triton makes has its next three products as one. Their columns' operands must lie behind each
other in shared memory, as blocks of one allocation do.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import triton
import triton.language as tl

# Triton 3.6 does not ask for the hook's key when it looks for a kernel in its cache: another way needs another mark.
MARK = tl.constexpr("// the next three products are one")
PRODUCTS = 3
PRODUCT = re.compile(r"(wgmma\.mma_async\.sync\.aligned\.m64n)(\d+)(\S+) \{([^}]*)\}, (%\w+), (%\w+), ([^;]*);")
FENCE, COMMIT = "wgmma.fence", "wgmma.commit_group"
WAIT = re.compile(r"(wgmma\.wait_group\.sync\.aligned) (\d+);")


@contextmanager
def merging() -> Iterator[None]:
    """Kernels that are compiled meanwhile have their marked products merged."""
    knobs = triton.knobs.runtime
    before, knobs.add_stages_inspection_hook = knobs.add_stages_inspection_hook, _add_stage
    try:
        yield
    finally:
        knobs.add_stages_inspection_hook = before


def _add_stage(*given: Any) -> tuple[str, str] | None:
    """What Triton calls with a compiler's stages, or without anything for what goes into its cache's keys."""
    if not given:
        return MARK.value, MARK.value
    stages: dict[str, Callable[[Any, Any], Any]] = given[1]
    make = stages.get("ptx")
    if make is not None:
        stages["ptx"] = lambda source, metadata: merged(make(source, metadata))
    return None


def merged(ptx: str) -> str:
    """The PTX with the three products behind each mark as one; ValueError where these are others than expected."""
    lines = ptx.split("\n")
    for mark in [number for number, line in enumerate(lines) if MARK.value in line]:
        _merge(lines, mark)
    return "\n".join(lines)


def _merge(lines: list[str], mark: int) -> None:
    groups: list[list[tuple[int, re.Match[str]]]] = [[]]
    between: list[int] = []  # what begins and ends the products that are no more
    for number in range(mark, len(lines)):
        if found := PRODUCT.search(lines[number]):
            groups[-1].append((number, found))
        elif FENCE in lines[number] and len(groups) < PRODUCTS:
            between.append(number)
        elif COMMIT in lines[number] and len(groups) < PRODUCTS:
            between.append(number)
            groups.append([])
        elif found := WAIT.search(lines[number]):
            lines[number] = f"{found[1]} {int(found[2]) // PRODUCTS};"
            break
    else:
        groups.clear()  # nobody waits for them
    if len({len(group) for group in groups}) > 1 or len(groups) < PRODUCTS:
        raise ValueError(f"line {mark + 1} of the PTX: no three products of as many steps follow")
    for parts in zip(*groups, strict=True):  # of 16 of the depth
        products = [match for _, match in parts]
        if len({match.group(1, 2, 3, 5) for match in products}) > 1:
            raise ValueError(f"line {mark + 1} of the PTX: the next three products are not of the same rows")
        head, columns, kind, _, rows, first, scale = products[0].groups()
        sums = ",".join(match[4] for match in products)
        # In the place of the last one: all addresses are known there.
        lines[parts[-1][0]] = f"{head}{PRODUCTS * int(columns)}{kind} {{{sums}}}, {rows}, {first}, {scale};"
        between += [number for number, _ in parts[:-1]]
    for number in between:
        lines[number] = ""
