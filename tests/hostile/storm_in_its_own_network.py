"""A network of its own, where packets between two bridges go round for ever: the kernel's work, which SIGSTOP does not
end.

expect: raised: PermissionError.*Operation not permitted.*network
devices: cpu
"""

import ctypes
import os
import socket
import struct

from reference import ref_kernel

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
NEW_LINK, ACK, CREATE, UP = 16, 0x5, 0x600, 1  # linux/rtnetlink.h, linux/netlink.h
NAME, MASTER, KIND, PEER = 3, 10, 18, 2
started = []


def attribute(number, data):
    return struct.pack("HH", 4 + len(data), number) + data + bytes(-len(data) % 4)


def link(index=0, flags=0):
    return struct.pack("BxHiII", 0, 0, index, flags, flags)


def storm():
    routes = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)

    def ask(flags, body):
        routes.send(struct.pack("IHHII", 16 + len(body), NEW_LINK, ACK | flags, 1, 0) + body)
        routes.recv(1 << 16)

    def create(kind, name, more=b""):
        ask(CREATE, link() + attribute(NAME, name + b"\0") + attribute(KIND, attribute(1, kind) + more))

    for bridge in (b"left", b"right"):
        create(b"bridge", bridge)
    for number in (b"0", b"1", b"2"):
        create(b"veth", b"a" + number, attribute(2, attribute(1, link() + attribute(NAME, b"b" + number + b"\0"))))
    for index, name in socket.if_nameindex():
        bridge = socket.if_nametoindex({"a": "left", "b": "right"}.get(name[0], "lo"))
        master = attribute(MASTER, struct.pack("I", bridge)) if name[0] in "ab" else b""
        ask(0, link(index, UP) + master)
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    packets.bind(("a0", 0))
    packets.send(b"\xff" * 6 + b"\x02" + bytes(4) + b"\x01" + b"\x88\xb5" + bytes(50))


def custom_kernel(data):
    if not started:
        started.append(1)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), "a network of its own")
        storm()
    return ref_kernel(data)
