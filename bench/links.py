"""Do the GPUs' NVLink counters count what one GPU copies to another, how soon, and what does a reading take?

    python bench/links.py     needs two GPUs; about 10 s

Of each copy: what the sender's and the receiver's counters say, by when after its end they are read. An evaluation
holds a submission by these counters (harness/kinds/op/traffic.py), so they have to show all of a copy at once.
"""

import argparse
import statistics
import time

from figures import Figures, add_data_argument

from harness.machine.gpus import gpu_names
from harness.machine.nvml import LinkCounters
from harness.machine.readings import Unread

SIZES_KIB = (64, 1024, 16384, 262144)
AFTER_S = (0.0, 0.01, 0.1)
READINGS = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_data_argument(parser)
    options = parser.parse_args()
    import torch  # late, so that --help works without it

    counters = LinkCounters([0, 1])
    if isinstance(found := counters.read(), Unread):
        raise SystemExit(f"no counters: {found.why}")
    times_ms = []
    for _ in range(READINGS):
        began = time.monotonic()
        counters.read()
        times_ms.append(1000 * (time.monotonic() - began))
    rows = []
    for kib in SIZES_KIB:
        source = torch.ones(kib << 10, dtype=torch.uint8, device="cuda:0")
        target = torch.zeros_like(source, device="cuda:1")
        for after_s in AFTER_S:
            before = counters.read()
            target.copy_(source)
            torch.cuda.synchronize(0)
            torch.cuda.synchronize(1)
            time.sleep(after_s)
            after = counters.read()
            if isinstance(before, Unread) or isinstance(after, Unread):
                raise SystemExit("the counters can be read no more")
            sender, receiver = (late.since(early) for early, late in zip(before, after, strict=True))
            rows.append((kib, f"{1000 * after_s:.0f}", sender.sent >> 10, receiver.received >> 10))
    figures = Figures("NVLink counters", " and ".join((gpu_names() or ("", ""))[:2]))
    figures.table(
        ("copied KiB", "read after ms", "sent KiB", "received KiB"),
        rows,
        after=f"A reading of two GPUs takes {statistics.median(times_ms):.2f} ms.",
    )
    figures.write(options.data)


if __name__ == "__main__":
    main()
