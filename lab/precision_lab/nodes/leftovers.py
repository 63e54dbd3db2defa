"""Shows that real nodes leave nothing behind: `python -m precision_lab.nodes.leftovers` (root).

What the machine has is compared before and after: mounts, processes, namespaces, control groups, interfaces, the
folder of the machine's own kubelet, and kernel settings. Nothing else of that kind may begin or end meanwhile. Once for
a lab that ends politely; then three times for a lab of which a part is killed with SIGKILL at a random moment, and
which is started again and ended. With a command (`python -m precision_lab.nodes.leftovers pytest tests/node`) it shows
instead what that command leaves behind.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path

from precision_lab.lab import KubectlError, LabSettings
from precision_lab.nodes.cluster import start_real_lab
from precision_lab.nodes.sandbox import KERNEL_SETTINGS
from precision_lab.nodes.support import missing
from precision_lab.processes.processes import PREFIX, ProcessError, supervisor_of, ticks

NAME = "leftovers"
MODULE = "precision_lab.nodes.leftovers"
VICTIMS = ("keeper", "owner", "both")
SETTLE_SECONDS = 20.0
"""How long the kernel and the supervisor may take to clear up after the end."""
LONGEST_SECONDS = 15.0
"""A lab is up after some ten seconds on two quiet cores: kills come while it starts, and after."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the machine has now, each as lines."""

    mounts: frozenset[str]
    processes: frozenset[str]
    namespaces: frozenset[str]
    cgroups: frozenset[str]
    interfaces: frozenset[str]
    files: frozenset[str]
    settings: frozenset[str]

    @classmethod
    def take(cls) -> "Snapshot":
        return cls(
            mounts=frozenset(line.split(" ", 2)[2] for line in _lines("/proc/self/mountinfo")),
            processes=frozenset(_lab_processes()),
            namespaces=frozenset(_namespaces()),
            cgroups=frozenset(folder for root in Path("/sys/fs/cgroup").glob("*") for folder, _, _ in os.walk(root)),
            interfaces=frozenset(os.listdir("/sys/class/net")),
            files=frozenset(_lab_files()),
            settings=frozenset(f"{name}={Path('/proc/sys', name).read_text().strip()}" for name in _SETTINGS),
        )

    def differences(self, later: "Snapshot") -> list[str]:
        """What came and what went until `later`, a line each."""
        lines = []
        for part in fields(self):
            before, after = getattr(self, part.name), getattr(later, part.name)
            lines += [f"{part.name}: + {line}" for line in sorted(after - before)]
            lines += [f"{part.name}: - {line}" for line in sorted(before - after)]
        return lines


_SETTINGS = (*KERNEL_SETTINGS, "net/ipv4/ip_forward")


def check(seed: int) -> list[str]:
    """The rounds; returns the differences, each with its round. Raises ProcessError where no lab can be started."""
    chance = random.Random(seed)
    before = Snapshot.take()
    problems = _round("polite end", before)
    for victim in VICTIMS:
        seconds = chance.uniform(0.5, LONGEST_SECONDS)
        what = f"{victim} killed after {seconds:.1f} s"
        _kill_one(victim, seconds)
        problems += _round(f"{what}, then started again", before)
    return problems


def check_command(command: Sequence[str]) -> tuple[int, list[str]]:
    """The exit code of a command, and the differences that it left behind. Raises OSError where it can't be started."""
    before = Snapshot.take()
    return subprocess.run(command, check=False).returncode, _settled(before)


def _round(what: str, before: Snapshot) -> list[str]:
    """One lab from start to polite end; what then differs, also after a while."""
    began = time.monotonic()
    with start_real_lab({}, settings=LabSettings(simulate=False, name=NAME)) as real:
        nodes = real.lab.kubectl("get", "nodes", "--output=name").split()
    differences = _settled(before)
    print(f"{what}: {len(nodes)} nodes, {len(differences)} leftovers, {time.monotonic() - began:.0f} s", flush=True)
    return [f"{what}: {line}" for line in differences]


def _settled(before: Snapshot) -> list[str]:
    for _ in ticks(SETTLE_SECONDS, 0.2):
        if not (differences := before.differences(Snapshot.take())):
            break
    return differences


def _kill_one(victim: str, seconds: float) -> None:
    """Starts a lab in a process of its own and kills that process, its supervisor, or both, after so many seconds."""
    owner = subprocess.Popen([sys.executable, "-m", MODULE, "--hold"], stdout=subprocess.DEVNULL)
    time.sleep(seconds)
    supervisor = supervisor_of(Path(tempfile.gettempdir()) / f"{PREFIX}{os.getuid()}-{NAME}")
    if victim != "owner" and supervisor:
        supervisor.signal(signal.SIGKILL)
    if victim != "keeper":
        owner.kill()
    owner.wait(60)
    for _ in ticks(SETTLE_SECONDS, 0.1):  # its owner is gone: it ends by itself
        if not (supervisor and supervisor.alive()):
            break


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def _lab_processes() -> Iterator[str]:
    """Processes of a lab: in other process ids than this one, or with a run folder in the command line."""
    pid_namespace = os.readlink("/proc/self/ns/pid")
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_text().replace("\0", " ").strip()
            namespace = os.readlink(folder / "ns" / "pid")
        except OSError:
            continue
        if namespace != pid_namespace or f"/{PREFIX}" in command:
            yield f"{folder.name} {command[:200]}"


def _namespaces() -> Iterator[str]:
    """Those that processes are in, and those that are mounted."""
    for folder in Path("/proc").glob("[0-9]*/ns"):
        try:
            for link in folder.iterdir():
                if link.name in ("cgroup", "ipc", "mnt", "net", "pid", "uts"):
                    yield os.readlink(link)
        except OSError:
            continue
    yield from (line.split()[3] for line in _lines("/proc/self/mountinfo") if " nsfs " in line)


def _lab_files() -> Iterator[str]:
    """Run folders, and what is in the folder of the machine's own kubelet."""
    yield from (str(path) for path in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"))
    for root in ("/var/lib/kubelet", "/var/lib/cni", "/run/containerd", "/run/netns", "/var/log/pods"):
        yield from (str(path) for path in [Path(root), *Path(root).glob("*")] if path.exists())


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: 0 where nothing was left, 1 where something was (listed) or no lab could be started.

    With a command: its own exit code where that is not 0.
    """
    parser = argparse.ArgumentParser("python -m precision_lab.nodes.leftovers", description=__doc__)
    parser.add_argument("--seed", type=int, default=None, help="of the moments; default: another one each time")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what may leave nothing behind, in place of labs")
    parser.add_argument("--hold", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    lacking = missing()
    if lacking:
        print(f"leftovers: {' '.join(lacking)}", file=sys.stderr)
        return 1
    if options.hold:
        settings = LabSettings(simulate=False, name=NAME)
        # until its keeper is killed, or this process: that is the round
        with suppress(ProcessError, KubectlError), start_real_lab({}, settings=settings) as real:
            while True:
                real.lab.processes.states()
                time.sleep(0.2)
        return 0
    try:
        code, problems = check_command(options.command) if options.command else (0, check(_seed(options.seed)))
    except (ProcessError, OSError) as problem:
        print(f"leftovers: {problem}", file=sys.stderr)
        return 1
    print("\n".join(line[:200] for line in problems) or "Nothing was left.")
    if problems:
        print("Where another cluster of this machine began or ended meanwhile, these may be its.")
    return code or int(bool(problems))


def _seed(chosen: int | None) -> int:
    """The one that was given, or another one each time; printed, so that a failed run can be repeated."""
    seed = random.SystemRandom().randrange(10_000) if chosen is None else chosen
    print(f"seed {seed}", flush=True)
    return seed


if __name__ == "__main__":
    sys.exit(main())
