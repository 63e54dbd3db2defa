"""Free loopback ports, outside the range from which the kernel gives ports to outgoing connections."""

import random
import socket
from pathlib import Path

LOWEST = 10240
_reserved: dict[int, socket.socket] = {}
"""Ports that this process was given, each with a name that it holds in the kernel until it ends."""
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """`count` different ports of 127.0.0.1 on which nobody listens now, and which no other process was given here.

    Who asked may not have bound them yet: until this process ends they are reserved for it, and nobody has to clean up.
    """
    highest = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32768
    chosen: list[int] = []
    candidates = random.SystemRandom().sample(range(LOWEST, highest), min(highest - LOWEST, 50 * count))
    for port in candidates:
        if len(chosen) == count:
            break
        if reserve(port) and _is_free(port):
            chosen.append(port)
    return chosen


def reserve(port: int) -> bool:
    """Whether the port is this process's now: an abstract name ends with it, and is of one network, as ports are."""
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0precision-lab/port/{port}")
    except OSError:
        name.close()
        return False
    _reserved[port] = name
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
