"""Programs that the user has already: of a version that the lab knows to work with, they spare a build."""

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from precision_lab.builds.programs import modules_for

USE = "PRECISION_LAB_OWN_PROGRAMS"
"""Environment variable: set to 1, programs of the user's are used. The demo sets it; tests run on pinned versions."""
ASSETS = "KUBEBUILDER_ASSETS"
SECONDS = 20.0
_VERSION = re.compile(r"(\d+)\.(\d+)(?:\.\d+)?")
Version = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Supported:
    """How a program tells its version, and which ones are used: from `oldest` up to, and without, `end`."""

    arguments: tuple[str, ...]
    oldest: Version
    end: Version


_KUBERNETES = Supported(("--version",), (1, 32), (1, 37))
SUPPORTED: Mapping[str, Supported] = {
    "etcd": Supported(("--version",), (3, 5), (3, 8)),
    "kube-apiserver": _KUBERNETES,
    "kube-controller-manager": _KUBERNETES,
    "kube-scheduler": _KUBERNETES,
    "kubectl": Supported(("version", "--client"), (1, 32), (1, 37)),
    "kwok": Supported(("--version",), (0, 8), (1, 0)),
    "helm": Supported(("version", "--short"), (3, 14), (4, 0)),
    "prometheus": Supported(("--version",), (2, 42), (4, 0)),
    "promtool": Supported(("--version",), (2, 42), (4, 0)),
}
"""Kubernetes as the chart supports it, with the etcd of these versions; kwok from the pinned version on; Helm 3 and
Prometheus from the oldest that rules and chart are tried on. Helm 4 has a program name of its own in the lab."""


@dataclass(frozen=True, slots=True)
class OwnProgram:
    """One program that lies in a folder of the user's."""

    name: str
    path: Path
    version: Version


def own_programs(names: Sequence[str], environment: Mapping[str, str]) -> dict[str, OwnProgram]:
    """Those of `names` that are in KUBEBUILDER_ASSETS or on the PATH, in a version that is supported.

    Programs that are built of one module are taken together or not at all, and Kubernetes' must be of one version:
    setup-envtest, for example, has no controller-manager.
    """
    if environment.get(USE) != "1":
        return {}
    folders = ":".join(filter(None, (environment.get(ASSETS, ""), environment.get("PATH", ""))))
    chosen: dict[str, OwnProgram] = {}
    for module in modules_for(tuple(names)):
        wanted = [name for name in module.program_names if name in names]
        usable = list(_usable(wanted, folders))
        if len(usable) == len(wanted) and len({program.version for program in usable}) == 1:
            chosen |= {program.name: program for program in usable}
    return chosen


def _usable(names: Sequence[str], folders: str) -> Iterator[OwnProgram]:
    for name in names:
        path = shutil.which(name, path=folders)
        supported = SUPPORTED.get(name)
        version = version_of(Path(path), supported) if path and supported else None
        if path and supported and version and supported.oldest <= version < supported.end:
            yield OwnProgram(name, Path(path), version)


def version_of(program: Path, supported: Supported) -> Version | None:
    """(1, 36) from what the program says of itself; None where it says nothing that is a version."""
    try:
        done = subprocess.run(
            [str(program), *supported.arguments], capture_output=True, text=True, check=False, timeout=SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(done.stdout + done.stderr) if done.returncode == 0 else None
    return (int(match[1]), int(match[2])) if match else None


def announcement(programs: Mapping[str, OwnProgram]) -> str:
    """`using your helm 3.18 (/usr/local/bin), kwok 0.8 (/usr/local/bin): these are not built`."""
    names = [
        f"{program.name} {program.version[0]}.{program.version[1]} ({program.path.parent})"
        for program in programs.values()
    ]
    return f"using your {', '.join(names)}: not built"
