"""The definitions of prometheus-operator's kinds, for clusters that shall know ServiceMonitor and PrometheusRule."""

import json
import subprocess
from pathlib import Path

from precision_lab.builds.binaries import cache_folder
from precision_lab.builds.go_build import BuildFailed
from precision_lab.builds.programs import MODULES_DIR
from precision_lab.builds.toolchain import find_go

MODULE = "github.com/prometheus-operator/prometheus-operator"
PLURALS = ("servicemonitors", "prometheusrules")
"""What our chart makes use of; the other kinds are large."""


def definitions() -> list[Path]:
    """The CustomResourceDefinitions of PLURALS as files, in this order, from the pinned Go module.

    Fetched where Go's own cache lacks it, and held against go.sum. Raises BuildFailed, NoToolchain.
    """
    folder = MODULES_DIR / "prometheus-operator"
    command = [str(find_go(cache_folder(), folder)), "mod", "download", "-json", MODULE]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildFailed(
            f"fetching {MODULE}: {(done.stdout + done.stderr).strip()[-500:]}\n"
            "Run the same command again. Go needs its module proxy (GOPROXY) to be reached."
        )
    definitions_folder = Path(json.loads(done.stdout)["Dir"]) / "example" / "prometheus-operator-crd"
    return [definitions_folder / f"monitoring.coreos.com_{plural}.yaml" for plural in PLURALS]
