"""By which of its networks other machines reach this one."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
from ipaddress import ip_address

NAMED = "GLOO_SOCKET_IFNAME"
"""The variable that tells gloo where to listen."""

_SIOCGIFADDR = 0x8915
"""Asks Linux for a network's address (netdevice(7))."""


def unreached() -> bool:
    """Whether gloo would listen where this machine alone reaches it, since nobody names a network.

    It takes the first address that the machine's name leads to and that it can listen at: on Debian 127.0.1.1.
    """
    if NAMED in os.environ:
        return False
    with contextlib.suppress(OSError):
        for family, *_, address in socket.getaddrinfo(socket.gethostname(), None, type=socket.SOCK_STREAM):
            with contextlib.suppress(OSError), socket.socket(family) as listening:
                listening.bind(address)
                return ip_address(address[0]).is_loopback
    return True


def address_of(host: str) -> str:
    """The IPv4 address that a name leads to from here; empty if none, or one that leads back to this machine alone."""
    with contextlib.suppress(OSError):
        address = socket.gethostbyname(host)
        return "" if ip_address(address).is_loopback else address
    return ""


def towards(address: str) -> str | None:
    """The name of the network by which this machine reaches an IPv4 address, its own too; None if it is not found."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))  # which sends nothing
        own = probe.getsockname()[0]
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # of one without an address
                asked = struct.pack("256s", name.encode()[:15])
                if socket.inet_ntoa(fcntl.ioctl(probe, _SIOCGIFADDR, asked)[20:24]) == own:
                    return name
    return None
