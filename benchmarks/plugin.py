"""CPU seconds of `kubectl precision status`, kubectl included, now and at an earlier commit, on this machine.

    python -m benchmarks.plugin [--before COMMIT] [--rounds N]

Both run in turns, with bytecode, by the packages of this Python and the lab's kubectl, against one API server of ten
profiles. An earlier commit is checked out beside.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory

from precision_lab.builds.binaries import binaries
from tests.support.report_objects import profile_object

HERE = Path(__file__).parents[1]
BEFORE = "b837d91a"
"""The last one whose plugin brought a Kubernetes client of its own."""
GOAL = 0.65
BODY = json.dumps({"kind": "List", "metadata": {}, "items": [profile_object(f"p{n}") for n in range(10)]}).encode()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, *args: object) -> None:
        """Nothing."""


def plugin(folder: Path, root: Path, kubeconfig: Path, kubectl: Path) -> dict[str, str]:
    """The environment in which kubectl has the plugin of the checkout at `root`."""
    folder.mkdir()
    program = folder / "kubectl-precision"
    program.write_text(f"#!{sys.executable}\nfrom precision_operator.cli import main\n\nmain()\n")
    program.chmod(0o755)
    packages = os.pathsep.join(str(root / part) for part in ("crds", "operator", "agent"))
    path = os.pathsep.join((str(folder), str(kubectl.parent), os.defpath))
    return {"PATH": path, "PYTHONPATH": packages, "KUBECONFIG": str(kubeconfig), "HOME": str(folder)}


def cpu_seconds(kubectl: Path, env: dict[str, str]) -> float:
    """What one run takes, those of the programs that it starts included."""
    with subprocess.Popen([kubectl, "precision", "status"], env=env, stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", default=BEFORE)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    kubectl = binaries(["kubectl"])["kubectl"]
    with TemporaryDirectory() as name, ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        folder, old = Path(name), Path(name) / "before"
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(
            "{apiVersion: v1, kind: Config, current-context: c, users: [{name: u, user: {}}], clusters: [{name: k,"
            f" cluster: {{server: 'http://127.0.0.1:{server.server_port}'}}}}],"
            " contexts: [{name: c, context: {cluster: k, user: u, namespace: ml}}]}\n"
        )
        subprocess.run(["git", "-C", HERE, "worktree", "add", "-q", "--detach", old, options.before], check=True)
        try:
            before = plugin(folder / "a", old, kubeconfig, kubectl)
            now = plugin(folder / "b", HERE, kubeconfig, kubectl)
            pairs = [(cpu_seconds(kubectl, before), cpu_seconds(kubectl, now)) for _ in range(options.rounds + 1)][1:]
        finally:
            subprocess.run(["git", "-C", HERE, "worktree", "remove", "--force", old], check=True)
        server.shutdown()
    medians = [statistics.median(column) for column in zip(*pairs, strict=True)]
    for title, seconds, column in zip((options.before, "now"), medians, zip(*pairs, strict=True), strict=True):
        print(f"{title:<10} {seconds:.3f} s of CPU (median of {len(column)}; {min(column):.3f} to {max(column):.3f})")
    share = statistics.median(b / a for a, b in pairs)
    print(f"{share:.0%} of {options.before} (median of {len(pairs)} pairs); the goal is at most {GOAL:.0%}")


if __name__ == "__main__":
    main()
