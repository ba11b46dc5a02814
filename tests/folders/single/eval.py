"""An evaluator in KernelBot's format, written for the tests: cases file in, lines on POPCORN_FD out."""

import concurrent.futures
import math
import multiprocessing
import os
import statistics
import sys
import time
from pathlib import Path

import torch

from reference import check_implementation, generate_input


def read_cases(text, secret):
    cases = []
    for line in text.splitlines():
        case = {}
        for part in line.split(";"):
            key, _, value = part.partition(":")
            value = value.strip()
            case[key.strip()] = int(value) if value.lstrip("-").isdigit() else value
        if secret is not None:
            case["seed"] += (case["seed"] + secret) * (case["seed"] + secret + 1) // 2
        cases.append((line, case))
    return cases


def check_case(case):
    from submission import custom_kernel

    data = generate_input(**case)
    torch.cuda.synchronize()
    found = check_implementation(data, custom_kernel(generate_input(**case)))
    return found if isinstance(found, tuple) else (not found, found)


def time_case(case, fresh):
    from submission import custom_kernel

    took_ns = []
    for _ in range(5):
        data = generate_input(**case)
        began_ns = time.perf_counter_ns()
        output = custom_kernel(data)
        torch.cuda.synchronize()
        took_ns.append(time.perf_counter_ns() - began_ns)
        found = check_implementation(generate_input(**case), output)
        right, message = found if isinstance(found, tuple) else (not found, found)
        if not right:
            return message
        case["seed"] += 13 * fresh
    std = statistics.stdev(took_ns)
    mean = statistics.fmean(took_ns)
    names = ("runs", "mean", "std", "err", "best", "worst")
    values = (len(took_ns), mean, std, std / math.sqrt(len(took_ns)), min(took_ns), max(took_ns))
    return dict(zip(names, values, strict=True))


def main():
    if "POPCORN_FD" not in os.environ:
        return 111
    mode = sys.argv[1]
    secret = os.environ.get("POPCORN_SEED")
    cases = read_cases(Path(sys.argv[2]).read_text(), int(secret) if secret else None)
    passed = True
    with os.fdopen(int(os.environ["POPCORN_FD"]), "w") as lines:
        kind = "test" if mode == "test" else "benchmark"
        print(f"{kind}-count: {len(cases)}", file=lines)
        context = multiprocessing.get_context("spawn")
        with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
            for index, (spec, case) in enumerate(cases):
                print(f"{kind}.{index}.spec: {spec}", file=lines)
                if kind == "test":
                    right, message = pool.submit(check_case, case).result()
                    found = {"status": "pass"} if right else {"status": "fail", "error": message}
                else:
                    found = pool.submit(time_case, case, mode == "leaderboard").result()
                    right = isinstance(found, dict)
                    found = found if right else {"status": "fail", "error": found}
                passed = passed and right
                for key, value in found.items():
                    print(f"{kind}.{index}.{key}: {value}", file=lines)
        print(f"check: {'pass' if passed else 'fail'}", file=lines)
    return 0 if passed else 112


if __name__ == "__main__":
    sys.exit(main())
