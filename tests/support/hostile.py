"""A program that tries what no agent may, and prints a line of JSON for each act: what it got, or what refused it.

It runs by itself (no package but Python's own): in the agent's container, and for control in a pod that is protected by
nothing. Then it says that it measures, as an agent would, and stays.
"""

import ctypes
import json
import os
import ssl
import stat
import threading
import time
import urllib.request
from pathlib import Path

TOKEN = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
THREADS = 2000


def read_token() -> str:
    return f"{len(TOKEN.read_text())} characters"


def ask_the_api_server() -> str:
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    request = urllib.request.Request(f"https://{host}:{port}/api/v1/namespaces/kube-system/secrets")
    if TOKEN.exists():
        request.add_header("Authorization", f"Bearer {TOKEN.read_text()}")
    context = ssl._create_unverified_context()
    with urllib.request.urlopen(request, timeout=10, context=context) as answer:
        return f"status {answer.status}"


def write_to_the_image() -> str:
    Path("/opt/mine").write_text("x")
    return "a file in /opt"


def become_root() -> str:
    os.setuid(0)
    return f"user {os.getuid()}"


def mount_a_file_system() -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", b"/mnt", b"tmpfs", 0, None) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "a file system on /mnt"


def make_a_device_of_the_disk() -> str:
    os.mknod("/tmp/disk", stat.S_IFBLK | 0o600, os.makedev(8, 0))
    return "/tmp/disk"


def _kubelet() -> tuple[Path, dict[str, str]]:
    """The root that the node's kubelet sees, and its options."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_text().split("\0")
        except OSError:  # it has ended
            continue
        if words[0].endswith("/kubelet"):
            return folder / "root", dict(word.partition("=")[::2] for word in words)
    raise ProcessLookupError("no process of the node is seen")


def see_the_nodes_processes() -> str:
    return str(_kubelet()[0])


def read_the_nodes_files() -> str:
    root, options = _kubelet()
    text = Path(f"{root}{options['--kubeconfig']}").read_text()
    return f"{len(text)} characters of the kubelet's kubeconfig"


def read_other_pods_volumes() -> str:
    root, options = _kubelet()
    pods = [path.name for path in Path(f"{root}{options['--root-dir']}/pods").iterdir()]
    return f"volumes of {len(pods)} pods"


def start_2000_threads() -> str:
    """Threads count as processes do, and take less memory."""
    threading.stack_size(1 << 16)
    end = threading.Event()
    threads = []
    try:
        for _ in range(THREADS):
            threads.append(threading.Thread(target=end.wait))
            threads[-1].start()
    finally:
        end.set()
    return f"{len(threads)} threads"


ACTS = (
    read_token, ask_the_api_server, write_to_the_image, become_root, mount_a_file_system, make_a_device_of_the_disk,
    see_the_nodes_processes, read_the_nodes_files, read_other_pods_volumes, start_2000_threads,
)  # fmt: skip

if __name__ == "__main__":
    for act in ACTS:
        try:
            told = {"act": act.__name__, "got": act()}
        except Exception as problem:
            told = {"act": act.__name__, "refused": f"{type(problem).__name__}: {problem}"}
        print(json.dumps(told), flush=True)
    print("measuring, as far as anybody can see", flush=True)
    time.sleep(300)
