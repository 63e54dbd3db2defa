"""Free loopback ports, outside the range from which the kernel gives ports to outgoing connections."""

from __future__ import annotations

import random
import socket
from pathlib import Path

LOWEST = 10240
_given: set[int] = set()
"""Ports that this process was given: who asked may not have bound them yet."""
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def free_ports(count: int) -> list[int]:
    """`count` different ports of 127.0.0.1 on which nobody listens now.

    Taken at random, so that two clusters which start at once hardly meet: between asking and binding anybody may come.
    """
    highest = int(_RANGE.read_text().split()[0]) if _RANGE.exists() else 32768
    chosen: list[int] = []
    candidates = random.SystemRandom().sample(range(LOWEST, highest), min(highest - LOWEST, 50 * count))
    for port in candidates:
        if len(chosen) == count:
            break
        if port not in _given and _is_free(port):
            chosen.append(port)
            _given.add(port)
    return chosen


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
