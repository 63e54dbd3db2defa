"""What this machine lacks for real nodes, in words that say what to do: `python -m precision_lab.nodes.support`.

With `--install` Debian's packages are installed first, where this is root on a machine with apt-get.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from precision_lab.nodes.node import CNI_PROGRAMS
from precision_lab.processes import cgroups

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
APT_INSTALL = ("apt-get", "install", "-y", "--no-install-recommends")
OVERLAY = Path("/proc/filesystems")


def missing(user_id: int | None = None) -> list[str]:
    """One sentence for each thing that real nodes need and this machine lacks; empty where they can run.

    `user_id`: who asks; by default the user of this process.
    """
    if (os.geteuid() if user_id is None else user_id) != 0:
        return ["Real nodes need root: namespaces, mounts and control groups. Run `make test-node` as root."]
    packages = packages_to_install()
    lacking = [f"Debian packages are missing: {shlex.join([*APT_INSTALL, *packages])}"] if packages else []
    return [*lacking, *_missing_kernel_features()]


def packages_to_install() -> list[str]:
    """Debian packages of what is not on this machine, sorted."""
    packages = {package for program, package in PACKAGES.items() if shutil.which(program) is None}
    if not (CNI_PROGRAMS / "bridge").exists():
        packages.add("containernetworking-plugins")
    asked = shutil.which("pkg-config") and subprocess.run(["pkg-config", "--exists", "libseccomp"], check=False)
    if not asked or asked.returncode != 0:
        packages.add("libseccomp-dev")
    return sorted(packages)


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


def main() -> None:
    """Prints what is missing, a line each. Always ends with 0: whoever needs real nodes decides what follows."""
    packages = packages_to_install() if "--install" in sys.argv[1:] else []
    if packages and os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["apt-get", "update", "-qq"], [*APT_INSTALL, "-qq", *packages]):
            subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False)
    for sentence in missing():
        print(f"precision-lab: {sentence}", file=sys.stderr)


if __name__ == "__main__":
    main()
