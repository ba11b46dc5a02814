"""Looks for services of the host that listen on its loopback.

expect: raised: only itself
"""

import socket


def custom_kernel(data):
    names = [name for _, name in socket.if_nameindex()]
    raise OSError("only itself" if names == ["lo"] and not any(map(listens, (22, 80, 443, 8080))) else f"found {names}")


def listens(port):
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0
