"""The network interface of processes that have no other: what they send on it is read from a descriptor, and what is
written there comes to them. Linux's TUN device; whoever has the descriptor carries the packets to other nodes.
"""

import fcntl
import ipaddress
import os
import socket
import struct

INTERFACE = "eval0"
DEVICE = "/dev/net/tun"
PREFIX_BITS = 24
MTU = 65_000  # bytes of a packet; the larger, the fewer there are to carry
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x1, 0x1000  # linux/if_tun.h
SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFNETMASK, SIOCSIFMTU = 0x8914, 0x8916, 0x891C, 0x8922  # linux/sockios.h
SIOCGIFADDR, IFF_UP, IFF_RUNNING = 0x8915, 0x1, 0x40


def open_link(address: str) -> int:
    """Makes INTERFACE in this process's network, with that IPv4 address, and returns its descriptor: a packet a read or
    write. Raises OSError where this process may not."""
    fd = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", INTERFACE.encode(), IFF_TUN | IFF_NO_PI))
        mask = str(ipaddress.ip_network(f"0.0.0.0/{PREFIX_BITS}").netmask)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            for what, value in ((SIOCSIFADDR, _address(address)), (SIOCSIFNETMASK, _address(mask))):
                fcntl.ioctl(sock, what, struct.pack("16s16s8x", INTERFACE.encode(), value))
            fcntl.ioctl(sock, SIOCSIFMTU, struct.pack("16si20x", INTERFACE.encode(), MTU))
            fcntl.ioctl(sock, SIOCSIFFLAGS, struct.pack("16sH22x", INTERFACE.encode(), IFF_UP | IFF_RUNNING))
    except BaseException:
        os.close(fd)
        raise
    return fd


def interface_of(address: str) -> str:
    """The interface of this host that has that IPv4 address; "" if none has."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        for _, name in socket.if_nameindex():
            try:
                found = fcntl.ioctl(sock, SIOCGIFADDR, struct.pack("16s24x", name.encode()))
            except OSError:  # it has no IPv4 address
                continue
            if socket.inet_ntoa(found[20:24]) == address:
                return name
    return ""


def _address(text: str) -> bytes:
    return struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(text))
