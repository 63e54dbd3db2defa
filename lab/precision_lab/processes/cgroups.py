"""Control groups of real nodes (cgroup v1): one group for each run folder in each hierarchy, named as the folder is.

The kernel ends the processes of a sandbox with its init; the empty groups stay until somebody removes them.
"""

import os
import time
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
NEEDED = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids")
"""Controllers that runc and the kubelet use, each mounted as a hierarchy."""
BUSY_SECONDS = 10.0
"""How long processes that were killed may take to leave their groups."""


def missing(root: Path = ROOT) -> list[str]:
    """Controllers without a cgroup v1 hierarchy on this machine."""
    return [name for name in NEEDED if not (root / name / "cgroup.procs").exists()]


def create(name: str, root: Path = ROOT) -> None:
    """Makes the group `name` (`a/b` is below a) in every hierarchy. Raises OSError where the machine forbids it."""
    for hierarchy in _hierarchies(root):
        group = hierarchy
        for part in Path(name).parts:
            group = group / part
            group.mkdir(exist_ok=True)
            _inherit_cpuset(group)


def remove(name: str, root: Path = ROOT) -> None:
    """Removes the group `name` with all below it from every hierarchy; a group that is not there is no error.

    Waits for killed processes to leave. What is still in use after BUSY_SECONDS stays.
    """
    deadline = time.monotonic() + BUSY_SECONDS
    for hierarchy in _hierarchies(root):
        group = hierarchy / name
        while group.is_dir() and not _remove_tree(group) and time.monotonic() < deadline:
            time.sleep(0.05)


def _hierarchies(root: Path) -> list[Path]:
    """Every mounted hierarchy: the controllers', systemd's and the unified one."""
    return [path for path in sorted(root.glob("*")) if (path / "cgroup.procs").exists() and not path.is_symlink()]


def _remove_tree(group: Path) -> bool:
    """Removes groups from the leaves up; False where one of them is in use."""
    for folder, _, _ in os.walk(group, topdown=False):
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True


def _inherit_cpuset(group: Path) -> None:
    """A new cpuset has no processors and no memory, and takes no process until it has."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        child, parent = group / name, group.parent / name
        if child.exists() and not child.read_text().strip():
            child.write_text(parent.read_text())
