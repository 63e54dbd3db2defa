"""What this machine lacks for real nodes, in words that say what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from precision_lab import cgroups
from precision_lab.real_nodes.node import CNI_PROGRAMS

PACKAGES = {
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "iptables": "iptables",
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "ip": "iproute2",
    "cc": "gcc",
    "pkg-config": "pkg-config",
}
"""Program -> the Debian package that has it."""
OVERLAY = Path("/proc/filesystems")


def missing() -> list[str]:
    """One sentence for each thing that real nodes need and this machine lacks; empty where they can run."""
    if os.geteuid() != 0:
        return ["Real nodes need root: namespaces, mounts and control groups. Run `make test-node` as root."]
    return [*_missing_packages(), *_missing_kernel_features()]


def _missing_packages() -> list[str]:
    packages = {package for program, package in PACKAGES.items() if shutil.which(program) is None}
    if not (CNI_PROGRAMS / "bridge").exists():
        packages.add("containernetworking-plugins")
    if shutil.which("pkg-config") and subprocess.run(["pkg-config", "--exists", "libseccomp"], check=False).returncode:
        packages.add("libseccomp-dev")
    if not packages:
        return []
    names = " ".join(sorted(packages))
    return [f"Debian packages are missing: apt-get install -y --no-install-recommends {names}"]


def _missing_kernel_features() -> list[str]:
    sentences = []
    controllers = cgroups.missing()
    if controllers:
        sentences.append(
            f"No cgroup v1 hierarchy for {', '.join(controllers)}: the lab's real nodes were tried on cgroup v1 alone."
        )
    if "overlay" not in OVERLAY.read_text().split():
        sentences.append("The kernel has no overlay file system: containerd needs it (modprobe overlay).")
    if not sentences and (refusal := _namespaces_refused()):
        sentences.append(f"Namespaces or mounts are not allowed here: {refusal}. A container must be privileged.")
    return sentences


def _namespaces_refused() -> str:
    """What the kernel said to a trial of everything that the sandbox needs; empty where all of it works."""
    trial = "mount -t tmpfs tmpfs /var/lib && ip link add node0 type veth peer name node1 && ip link add b0 type bridge"
    command = ["unshare", "--fork", "--pid", "--mount-proc", "--mount", "--net", "--ipc", "sh", "-c", trial]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode != 0 else ""
