"""This container's memory as its control group counts it, of version 2 or 1: at its limit the kernel kills it."""

import math
import re
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
_UNLIMITED = 1 << 60
"""Version 1 tells the largest number of pages where there is no limit."""


def limit_bytes(root: Path = ROOT) -> int | None:
    """The limit; None where there is none, or no control group to read."""
    limit = _number(root / "memory.max", root / "memory" / "memory.limit_in_bytes")
    return limit if limit is not None and limit < _UNLIMITED else None


def used_ratio(root: Path = ROOT) -> float:
    """What can't be given back at once (the working set, as the kubelet counts it) over the limit; NaN without one."""
    limit, used = limit_bytes(root), _number(root / "memory.current", root / "memory" / "memory.usage_in_bytes")
    stat = _text(root / "memory.stat", root / "memory" / "memory.stat")
    files = re.search(r"^total_inactive_file (\d+)", stat, re.M) or re.search(r"^inactive_file (\d+)", stat, re.M)
    return (used - int(files[1] if files else 0)) / limit if limit and used is not None else math.nan


def _number(*paths: Path) -> int | None:
    text = _text(*paths).strip()
    return int(text) if text.isdigit() else None


def _text(*paths: Path) -> str:
    for path in paths:
        try:
            return path.read_text()
        except OSError:
            continue
    return ""
