"""Memory of a GPU that is a NUMA node of the operating system, as on Grace superchips in the driver's NUMA mode.

There NVML's figure of used memory is the operating system's accounting: "pages allocated from FB memory are not
released even after the process terminates", and under pressure the system puts pages of its own there (NVML API
Reference, Known Issues). So much of it may be in use on a GPU that nobody uses.
"""

from __future__ import annotations

import re
from pathlib import Path

NODES = Path("/sys/devices/system/node")
_OWN = ("AnonPages", "FilePages", "Slab")
"""Pages of processes, of files, and of the kernel. What CUDA allocates is in none of them."""


def system_bytes(node: int, nodes: Path = NODES) -> int | None:
    """Bytes of the node that hold pages of the operating system's own; None where that can't be read."""
    try:
        text = (nodes / f"node{node}" / "meminfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    sizes = {name: int(kib) for name, kib in re.findall(r"^Node \d+ (\w+):\s+(\d+) kB$", text, re.MULTILINE)}
    return sum(sizes[name] for name in _OWN) * 1024 if set(_OWN) <= set(sizes) else None
