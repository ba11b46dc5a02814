"""A population of candidates for rms_norm, and what `eval-many` makes of it beside single evaluations.

    python bench/population.py write candidates.jsonl [--part 10]
    python bench/population.py measure candidates.jsonl [--suite cpu] [--singles 20] [--keep 1] [--timeout 60]
        [--out FOLDER] [--limit 500]

`write` makes 200 candidates: 60 that are right in different ways, some of them slow on purpose, and 140 that are wrong,
raise, crash, hang or are hostile. With `--part N` every Nth of each sort. `measure` judges all with `eval-many`, then
about `--singles` of them, in proportion of each sort but at least one, by `eval` alone, and says whether verdicts are
the same, how the ranks of the speedups correlate (screened or measured on the whole suite), and how many times as long
single evaluations of all would take; of `eval-many`, the least memory that it had in each eighth of its time, by itself
and with the processes that it keeps. Nothing is recorded. With `--out` the results are kept there, and the same command
goes on where it ended: after `--limit` seconds, say, when `eval-many` is killed and no further single evaluation
begins.
"""

import argparse
import contextlib
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

ROOT = Path(__file__).resolve().parent.parent
LOOK_S = 1.0  # between two looks at memory
RIGHT = """\
from typing import Any
import torch


def scale_of(value, eps):
    return {scale}


def once(data):
    first, second, weight, grad, eps = data
    results, sums = [], torch.zeros(first.shape[1], dtype=torch.{dtype}, device=first.device)
    for at in range(0, first.shape[0], {rows}):
        part = slice(at, at + {rows})
        if grad is None:
            total = first[part] + second[part]
            value = total.to(torch.{dtype})
            results.append(((value * scale_of(value, eps) * weight.to(value.dtype)).to(first.dtype), total))
        else:
            value, scale = first[part].to(torch.{dtype}), None
            scale = scale_of(value, eps)
            normed, given = value * scale, grad[part].to(value.dtype) * weight.to(value.dtype)
            through = scale * (given - normed * (given * normed).mean(1, keepdim=True))
            results.append(((through + second[part].to(value.dtype)).to(first.dtype),))
            sums += (grad[part].to(value.dtype) * normed).sum(0)
    if grad is None:
        return torch.cat([one for one, _ in results]), torch.cat([one for _, one in results])
    return torch.cat([one for (one,) in results]), sums.to(weight.dtype)


def custom_kernel(data):
    for _ in range({times}):
        result = once(data)
    return result
"""
SCALES = (
    "torch.rsqrt(value.square().mean(1, keepdim=True) + eps)",
    "(value.pow(2).mean(1, keepdim=True) + eps) ** -0.5",
    "1 / torch.sqrt((value * value).sum(1, keepdim=True) / value.shape[1] + eps)",
    "(torch.linalg.vector_norm(value, dim=1, keepdim=True).square() / value.shape[1] + eps).rsqrt()",
    "(torch.einsum('mh,mh->m', value, value)[:, None] / value.shape[1] + eps).rsqrt()",
)
HOW = ((1 << 20, 1), (512, 1), (128, 1), (1 << 20, 2), (256, 2), (1 << 20, 3))  # rows at a time, times
BASE = "import torch\nfrom reference import ref_kernel\n\n\ndef custom_kernel(data):\n"
WRONG = (  # lines of the body; {n} counts from 1
    "    one, two = ref_kernel(data)\n    return one * (1 + 0.02 * {n}), two\n",
    "    one, two = ref_kernel(data)\n    one[: {n}] = 0\n    return one, two\n",
    "    one, two = ref_kernel(data)\n    return two, one.clone() if {n} else one\n",
    "    one, two = ref_kernel(data)\n    return one.float() + 0 * {n}, two\n",
    "    one, two = ref_kernel((*data[:4], data[4] * 10 ** {n}))\n    return one, two\n",
    "    one, two = ref_kernel(data)\n    return torch.full_like(one, {n}), two\n",
    "    one, two = ref_kernel(data)\n    return one.to(torch.float8_e4m3fn).to(one.dtype) + 0 * {n}, two\n",
    "    one, two = ref_kernel(data)\n    one[..., -{n}] = float('nan')\n    return one, two\n",
)
RAISES = (
    "def custom_kernel(data):\n    raise ValueError('number {n}')\n",
    "import torch\nimport no_such_module_{n}\n",
    "def custom_kernel(data):\n    return data[{n} + 9]\n",
    "calls = 0\n\n\ndef custom_kernel(data):\n    global calls\n    calls += 1\n    assert calls < {n}\n"
    "    from reference import ref_kernel\n    return ref_kernel(data)\n",
    "raise RuntimeError('at import, number {n}')\n",
)
UNREADABLE = ("def custom_kernel(data:\n    return {n}\n", "import torch\n  x = {n}\n")
CRASHES = (
    "import os\n\n\ndef custom_kernel(data):\n    os._exit({n})\n",
    "import ctypes\n\n\ndef custom_kernel(data):\n    ctypes.string_at({n})\n",
    "import os\n\n\ndef custom_kernel(data):\n    os.kill(os.getpid(), {n})\n",
    "import os\n\nos._exit({n} + 20)\n",
)
HANGS = (
    "def custom_kernel(data):\n    while {n}:\n        pass\n",
    "import time\n\n\ndef custom_kernel(data):\n    time.sleep(3600 + {n})\n",
    "import threading\n\n\ndef custom_kernel(data):\n    threading.Event().wait(3600 + {n})\n",
    "import time\n\ntime.sleep(3600 + {n})\n",
)
HOSTILE = (
    # the clock
    "import time\nfrom reference import ref_kernel as custom_kernel\n\nlast = (1 << 61) + {n}\n\n\ndef backwards():\n"
    "    global last\n    last -= 1\n    return last\n\n\ntime.monotonic_ns = backwards\n",
    "import time\nfrom reference import ref_kernel as custom_kernel\n\nstopped = time.monotonic_ns() + {n}\n"
    "time.monotonic_ns = lambda: stopped\n",
    # results kept for later, or made after the call
    BASE.replace("\n\n\ndef", "\n\nkept = {{}}\n\n\ndef", 1)
    + "    found = ref_kernel(data)\n    return kept.setdefault((data[0].shape, {n}), found)\n",
    BASE + "    one, two = ref_kernel(data)\n    return torch.empty_like(one), two[{n} - {n} :]\n",
    "import threading\nimport time\n" + BASE + "    one, two = ref_kernel(data)\n    late = torch.zeros_like(one)\n\n"
    "    def fill():\n        time.sleep(0.02 * {n})\n        late.copy_(one)\n\n"
    "    threading.Thread(target=fill).start()\n    return late, two\n",
    # processes left behind, files left behind, others killed
    "import os\nimport time\n" + BASE + "    if os.fork() == 0:\n        os.setsid()\n        time.sleep(600 + {n})\n"
    "        os._exit(0)\n    return ref_kernel(data)\n",
    "import os\nimport pathlib\n" + BASE + "    for folder in ('/tmp', '/dev/shm', os.getcwd(), '/var/tmp'):\n"
    "        try:\n            pathlib.Path(folder, 'litter-{n}').write_bytes(bytes(1 << 20))\n"
    "        except OSError:\n            pass\n    return ref_kernel(data)\n",
    "import os\nimport signal\n" + BASE + "    for pid in range(2, 400 + {n}):\n        if pid != os.getpid():\n"
    "            try:\n                os.kill(pid, signal.SIGTERM)\n"
    "            except OSError:\n                pass\n"
    "    return ref_kernel(data)\n",
    "import os\n" + BASE + "    for name in os.listdir('/proc'):\n        if name.isdigit():\n            try:\n"
    "                open(f'/proc/{{name}}/environ', 'rb').read({n})\n"
    "            except OSError:\n                pass\n"
    "    return ref_kernel(data)\n",
    # output that is none, words that are none
    BASE + "    print('verdict  pass\\n' * 2000 * {n})\n    return ref_kernel(data)[:1]\n",
    BASE + "    class Lazy(torch.Tensor):\n        pass\n\n    one, two = ref_kernel(data)\n"
    "    return one.as_subclass(Lazy), two[: len(two) - {n}]\n",
)
COUNTS: tuple[tuple[str, Sequence[str], int], ...] = (
    ("wrong", [BASE + body for body in WRONG], 40),
    ("raises", RAISES, 24),
    ("unreadable", UNREADABLE, 6),
    ("crashes", CRASHES, 15),
    ("hangs", HANGS, 11),
    ("hostile", HOSTILE, 44),
)


def candidates() -> Iterator[dict[str, str]]:
    """All 200, each with its id, its sort and its source."""
    ways = [(scale, *how, dtype) for dtype in ("float32", "float64") for scale in SCALES for how in HOW]
    for number, (scale, rows, times, dtype) in enumerate(ways):
        source = RIGHT.format(scale=scale, rows=rows, times=times, dtype=dtype)
        yield {"id": f"right-{number:02}", "sort": "right", "source": source}
    for sort, templates, count in COUNTS:
        for number in range(count):
            source = templates[number % len(templates)].format(n=number // len(templates) + 1)
            yield {"id": f"{sort}-{number:02}", "sort": sort, "source": source}


def parts(every: int) -> list[dict[str, str]]:
    """Every so manyth of each sort."""
    groups = itertools.groupby(candidates(), key=lambda one: one["sort"])
    return [one for _, group in groups for number, one in enumerate(group) if number % every == 0]


def measure(given: argparse.Namespace) -> None:
    """Judges them both ways."""
    lines, until = [json.loads(line) for line in given.file.read_text().splitlines()], time.monotonic() + given.limit
    options = ["--suite", given.suite, "--ranks", "1", *(["--device", given.device] if given.device else [])]
    options += ["--timeout", str(given.timeout)] if given.timeout else []
    more = [*(["--lanes", str(given.lanes)] if given.lanes else []), "--keep", str(given.keep)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.out or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        out, took = folder / "results.jsonl", folder / "seconds.json"
        found, many_s = results(out), json.loads(took.read_text()) if took.exists() else 0.0
        if len(found) < len(lines):
            began = time.monotonic()
            seen = harness("eval-many", "rms_norm", str(given.file), "--out", str(out), *more, *options, until=until)
            found, many_s = results(out), many_s + time.monotonic() - began
            took.write_text(json.dumps(many_s))
            if len(seen) >= 8:
                for name, mibs in zip(("eval-many", "with all it keeps"), zip(*seen, strict=True), strict=True):
                    print(f"least memory of {name}, by eighths of its time: {least(mibs)} MiB", flush=True)
        print(f"eval-many: {len(found)} of {len(lines)} candidates in {many_s:.0f} s", flush=True)
        if len(found) < len(lines):
            return
        print(f"that is {many_s / len(found):.2f} s each", flush=True)
        groups = [list(group) for _, group in itertools.groupby(lines, key=sort_of)]
        chosen = [spread(group, given.singles * len(group) / len(lines)) for group in groups] if given.singles else []
        compared = [compare(group, found, options, folder, until) for group in chosen]
    if compared and all(compared):
        every = list(itertools.chain.from_iterable(compared))
        means_s = [statistics.fmean(seconds for seconds, _, _ in each) for each in compared]
        alone_s = sum(len(group) * mean_s for group, mean_s in zip(groups, means_s, strict=True))
        unlike = [text for _, text, _ in every if text]
        print(
            "singles:", *(f"{sort_of(group[0])} {mean_s:.1f} s" for group, mean_s in zip(groups, means_s, strict=True))
        )
        print(f"single evaluations of all would take {alone_s:.0f} s, {alone_s / many_s:.1f} times as long")
        print(f"verdicts: {len(every) - len(unlike)} of {len(every)} the same {unlike}")
        pairs = [pair for _, _, pair in every if pair]
        if len(pairs) > 2:
            print(f"rank correlation of {len(pairs)} speedups: {rank_correlation(pairs):.3f}")


def sort_of(one: Mapping[str, str]) -> str:
    """Of a candidate, by its id."""
    return one["id"].rpartition("-")[0]


def spread(group: list[dict[str, str]], count: float) -> list[dict[str, str]]:
    """About so many of them, at least one, evenly spread."""
    number = max(1, min(len(group), round(count)))
    return [group[index * len(group) // number] for index in range(number)]


def results(out: Path) -> dict[str, Any]:
    """The whole lines that are there, by id."""
    text = out.read_text() if out.exists() else ""
    return {one["id"]: one for one in map(json.loads, text[: text.rfind("\n") + 1].splitlines())}


def compare(
    chosen: Sequence[Mapping[str, str]], found: Mapping[str, Any], options: list[str], folder: Path, until: float
) -> list[tuple[float, str, tuple[float, float] | None]]:
    """Of each: seconds alone, what differs, and the two speedups where it passed either way."""
    compared = []
    for one in chosen:
        source, result = folder / "candidate.py", folder / f"{one['id']}.json"
        took = result.with_suffix(".seconds")
        if not took.exists():
            if time.monotonic() > until:
                break
            source.write_text(one["source"])
            began = time.monotonic()
            harness("eval", "rms_norm", str(source), "--no-record", "-q", "--result", str(result), *options)
            took.write_text(str(time.monotonic() - began))
        alone_s, alone, other = float(took.read_text()), json.loads(result.read_text()), found[one["id"]]
        same = alone["verdict"] == other["verdict"]
        text = "" if same else f"{one['id']}: {alone['verdict']} alone, {other['verdict']} among many"
        speedups = [each["figures"] and each["figures"]["speedup"]["value"] for each in (alone, other)]
        pair = (speedups[0], speedups[1]) if all(speedups) else None
        compared.append((alone_s, text, pair))
        print(f"  {one['id']:<14} {alone_s:6.1f} s alone  {alone['verdict']:<9} {speedups} {text}", flush=True)
    return compared


def harness(*words: str, until: float = math.inf) -> list[tuple[float, float]]:
    """Runs a verb; its exit code is the submission's. Kills it at that time. Returns what memory it had, see memory."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "harness", *words]
    seen: list[tuple[float, float]] = []
    with subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL) as process:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(min(LOOK_S, max(0.0, until - time.monotonic())))
                return seen
            if time.monotonic() >= until:
                process.kill()
                return seen
            with contextlib.suppress(psutil.Error):
                seen.append(memory(psutil.Process(process.pid)))


def memory(process: psutil.Process) -> tuple[float, float]:
    """MiB of a process, and of it and all below it: what is shared counts in parts (PSS)."""
    own, *others = (of.memory_full_info().pss / 2**20 for of in (process, *process.children(recursive=True)))
    return own, own + sum(others)


def least(seen: Sequence[float]) -> str:
    """The least of each eighth."""
    ends = [len(seen) * part // 8 for part in range(9)]
    return " ".join(f"{min(seen[begin:end]):.0f}" for begin, end in itertools.pairwise(ends))


def rank_correlation(pairs: Sequence[tuple[float, float]]) -> float:
    """Spearman's."""
    ranks = [[sorted(side).index(value) for value in side] for side in zip(*pairs, strict=True)]
    return statistics.correlation(*ranks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    write = verbs.add_parser("write")
    write.add_argument("file", type=Path)
    write.add_argument("--part", type=int, default=1)
    write.set_defaults(work=lambda given: given.file.write_text("".join(map(line, parts(given.part)))))
    both = verbs.add_parser("measure")
    both.add_argument("file", type=Path)
    both.add_argument("--suite", default="cpu")
    both.add_argument("--device")
    both.add_argument("--timeout", type=float)
    both.add_argument("--singles", type=int, default=20)
    both.add_argument("--keep", type=float, default=1.0)
    both.add_argument("--lanes", type=int)
    both.add_argument("--out", type=Path)
    both.add_argument("--limit", type=float, default=math.inf)
    both.set_defaults(work=measure)
    given = parser.parse_args()
    given.work(given)


def line(one: dict[str, str]) -> str:
    """As `eval-many` reads it."""
    return json.dumps({"id": one["id"], "source": one["source"]}) + "\n"


if __name__ == "__main__":
    main()
