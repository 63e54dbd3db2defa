"""The sandbox of a cluster with real nodes: process ids, mounts, interfaces and IPC of its own, gone with its init.

The supervisor of a run folder starts `python -m precision_lab.nodes.sandbox RUN_DIR` as a child of `unshare`. That
process, number 1 of its namespaces, sets the rooms up and is then a supervisor itself: every program of the cluster is
its child, and sees the same process ids and mounts. When it dies, for whatever reason, the kernel kills all that is
left, containers too, and takes mounts and interfaces away.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from precision_lab.processes.processes import ProcessError, Processes
from precision_lab.processes.supervisor import Supervisor

NAME = "sandbox"
SOCKET = "sandbox.sock"
ADDRESS = "10.250.0.1"
"""Of the control plane, inside. Nodes have the following ones of the same network."""
READY_SECONDS = 20.0
STOP_SECONDS = 10.0
PRIVATE = ("/run", "/var/lib", "/var/log", "/dev/shm")
"""Folders in which container runtimes and kubelets write: inside they are empty, and the machine's stay untouched."""
KERNEL_SETTINGS = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1_000_000,
    "kernel/keys/root_maxbytes": 25_000_000,
}
"""Settings of the whole machine that a kubelet changes at its start, and to what: it gets files of our own instead.

They hold these values before any kubelet starts, so none writes: writing empties a file for a moment, and another
kubelet that reads it then ends.
"""


class SandboxSupervisor(Supervisor):
    """The supervisor inside: it lives until it is told to end, and leaves the run folder to the one outside."""

    socket_name = SOCKET

    def _announce(self) -> None:
        """Whoever connects to the socket knows."""

    def _wanted(self) -> bool:
        self._reap()
        return True

    def _reap(self) -> None:
        """Takes the exit status of processes whose parents have gone: number 1 inherits them, such as runtime shims."""
        children = {child.process.pid: child.process for child in self.children.values()}
        while (ended := _peek()) is not None:
            if ended in children:
                children[ended].poll()
            else:
                os.waitpid(ended, 0)

    def _clean_up(self) -> None:
        """The kernel stops all when this process ends: nothing of the cluster outlives it, so nothing need be saved."""
        (self.run_dir / self.socket_name).unlink(missing_ok=True)


def _peek() -> int | None:
    """A child that has ended and was not waited for yet; None where there is none."""
    try:
        status = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    return status.si_pid if status else None


def open_sandbox(outside: Processes, interfaces: Sequence[str]) -> Processes:
    """Starts the sandbox of a run folder; returns what starts programs inside. Raises ProcessError.

    `interfaces`: addresses, in CIDR form, that its network interface shall have.
    """
    inside = Processes(outside.run_dir, SOCKET)
    command = [
        *("unshare", "--fork", "--kill-child", "--pid", "--mount-proc", "--mount", "--net", "--ipc"),
        *(sys.executable, "-m", __name__, str(outside.run_dir), json.dumps(list(interfaces))),
    ]
    outside.start(NAME, command, grace_seconds=STOP_SECONDS)
    deadline = time.monotonic() + READY_SECONDS
    while True:
        try:
            inside.states()
            return inside
        except ProcessError:
            outside.check(NAME)
            if time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def first_process(outside: Processes) -> int:
    """The id, seen from outside, of the sandbox's first process. Raises ProcessError when it is gone."""
    pid = outside.states()[NAME].pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    if not children:
        raise ProcessError(f"the sandbox of {outside.run_dir} has ended: {outside.log(NAME)[-1500:]}")
    return int(children[0])


def _set_up(run_dir: Path, interfaces: Sequence[str]) -> None:
    """Private folders, kernel settings and the network. Raises CalledProcessError with what the command said."""
    for folder in PRIVATE:
        _run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", folder)
    Path("/dev/shm").chmod(0o1777)
    for folder in ("/run/netns", "/run/lock", "/var/lib/kubelet", "/var/lib/cni"):
        Path(folder).mkdir(parents=True, exist_ok=True)
    settings = run_dir / "kernel-settings"
    for name, value in KERNEL_SETTINGS.items():
        copy, original = settings / name, Path("/proc/sys") / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(f"{value}\n")
        _run("mount", "--bind", str(copy), str(original))
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "link", "add", "node0", "type", "veth", "peer", "name", "node1")
    for address in interfaces:
        _run("ip", "address", "add", address, "dev", "node0")
    for end in ("node0", "node1"):
        _run("ip", "link", "set", end, "up")
    _run("ip", "route", "add", "default", "dev", "node0")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def _run(*command: str) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ProcessError(f"{' '.join(command)} failed: {(done.stdout + done.stderr).strip()}")


def main() -> None:
    """Sets the sandbox up and serves the run folder given as the first argument, until SIGTERM."""
    run_dir, interfaces = Path(sys.argv[1]), json.loads(sys.argv[2])
    supervisor = SandboxSupervisor(run_dir)
    signal.signal(signal.SIGTERM, supervisor.end)
    for ignored in (signal.SIGINT, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    _set_up(run_dir, interfaces)
    os.chdir("/")
    supervisor.serve()


if __name__ == "__main__":
    main()
