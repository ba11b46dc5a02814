"""Proves lower bounds and keeps them in bounds.json: `python reference/iopddl/prove.py SECONDS INSTANCE...`.

The bound is HiGHS's, of the mixed-integer program in reference.py: the optimum where it came to its end, else the
relaxation over the nodes that were left. A bound is kept with the sha256 of the instance that it is of.

Instances that are too large for it have bounds of message passing: `./solver INSTANCE.json SECONDS COST`, built by
submissions/iopddl/build.sh, raises one towards the cost of a known answer.
"""

import hashlib
import json
import math
import sys

from task import HERE, content, cost, find, load

from reference import by_milp

TOLERANCE = 1e-6  # HiGHS's own, of a bound's size


def proved(name: str, seconds: float) -> dict[str, object] | None:
    """The record of bounds.json; None where nothing was proved."""
    text = content(find(name))
    instance = load(text)
    found = by_milp(instance, seconds)
    if found is None or not math.isfinite(found[1]) or found[1] <= 0:
        return None
    answer, least = found
    value, how = math.floor(least * (1 - TOLERANCE)), f"relaxation, scipy.optimize.milp (HiGHS), {seconds:g} s"
    if answer is not None and (reached := cost(instance, str(answer))) <= least * (1 + TOLERANCE):
        value, how = reached, "optimum, scipy.optimize.milp (HiGHS)"
    return {"value": value, "how": how, "sha256": hashlib.sha256(text).hexdigest()}


if __name__ == "__main__":
    path = HERE / "bounds.json"
    for name in sys.argv[2:]:
        known = json.loads(path.read_text())
        if (record := proved(name, float(sys.argv[1]))) is not None:
            path.write_text(json.dumps(known | {name: record}, indent=2) + "\n")
        print(name, record)
