"""Honest: works in a thread, and waits for it.

expect: ranked
mode: leaderboard
"""

import threading

from reference import ref_kernel


def custom_kernel(data):
    results = []
    thread = threading.Thread(target=lambda: results.append(ref_kernel(data)))
    thread.start()
    thread.join()
    return results[0]
