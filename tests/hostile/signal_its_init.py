"""Sends the first process of its PID namespace, which forks, stops and ends its group, every signal that there is.

expect: harmless|raised: Operation not permitted
devices: cpu
"""

import os
import signal

from reference import ref_kernel

sent = False


def custom_kernel(data):
    global sent
    for number in () if sent else signal.valid_signals():
        os.kill(1, number)
    sent = True
    return ref_kernel(data)
