"""docs/gpumode.md leads from a KernelBot checkout to a local result: its first commands, as they stand there."""

import re
import shutil
import subprocess
from pathlib import Path

import preloaded
from places import SINGLE

from harness.core.checkout import ROOT

COMPETITION = """\
name: Distributed
deadline: "2025-10-14"
problems:
  - {directory: amd_distributed/gemm-rs, name: amd-gemm-rs, deadline: "2025-10-15", gpus: [MI300x8]}
"""
# make's variables that the commands leave open, to be quick; a folder's problem has ranks of its own
OURS = ("ARGS=--seconds 0.05", "AUTHOR=reader", "PYTHON=./python")
QUICK = (OURS, OURS[1:], ("RANKS=2", *OURS), OURS[2:])


def test_a_fresh_user_comes_from_a_kernelbot_checkout_to_a_local_result(checkout: Path) -> None:
    problems = checkout.parent / "reference-kernels" / "problems"
    shutil.copytree(SINGLE, problems / "pmpp_v2")
    (problems / "pmpp_v2" / "wired").rename(problems / "pmpp_v2" / "vectoradd_py")  # "cuda" is written in it too
    evaluator = problems / "pmpp_v2" / "eval.py"
    text = evaluator.read_text()
    assert '"spawn"' in text
    evaluator.write_text(text.replace('"spawn"', '"fork"'))  # which does not import torch once more in each mode
    (problems / "amd_distributed.yaml").write_text(COMPETITION)
    shutil.copy(ROOT / "Makefile", checkout)
    preloaded.interpreter(f"{checkout}/python")  # the README's first command is run by the real one
    text = (ROOT / "docs" / "gpumode.md").read_text()
    first = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)[0].splitlines()
    printed = []
    for line, options in zip(first, QUICK, strict=True):
        command = [*line.partition("#")[0].split(), *options]
        ran = subprocess.run(command, cwd=checkout, capture_output=True, text=True, timeout=120, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        printed.append(ran.stdout)
    ours, theirs, competition, boards = printed
    assert "\nverdict  pass" in ours
    assert "\nverdict  pass" in theirs
    assert "verdict  1 of 1 problems passed, 1 late" in competition
    assert re.search(r"^pmpp_v2/vectoradd_py  suite official", boards, re.MULTILINE)
    assert re.search(r"^pmpp_v2/vectoradd_py  suite theirs", boards, re.MULTILINE)
    assert re.search(r"^gemm_rs  suite quick", boards, re.MULTILINE)
