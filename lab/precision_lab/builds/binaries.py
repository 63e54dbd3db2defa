"""Where the cluster's programs lie: in a folder that the user names, or in the lab's cache, built when missing."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from precision_lab.builds.go_build import build, folder_of, say
from precision_lab.builds.own_programs import announcement, own_programs
from precision_lab.builds.programs import modules_for

GIVEN_FOLDERS = ("PRECISION_LAB_BIN", "KUBEBUILDER_ASSETS")
"""Environment variables that may name a folder of ready programs; the first that holds all that is asked for wins.

setup-envtest fills KUBEBUILDER_ASSETS without a controller-manager and a scheduler: then it can't be used here.
"""


def binaries(names: Sequence[str], environment: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """The path of each program, found or built. Raises ValueError (unknown name), BuildFailed, NoToolchain."""
    wanted = tuple(dict.fromkeys(names))
    modules = modules_for(wanted)
    paths = _given(wanted, environment)
    if paths is not None:
        return paths
    user_paths = {name: program.path for name, program in own_programs(wanted, environment).items()}
    modules = tuple(module for module in modules if not user_paths.keys() & set(module.program_names))
    cache = cache_folder(environment)
    build(modules, cache)
    return user_paths | {
        name: folder_of(module, cache) / name for module in modules for name in wanted if name in module.program_names
    }


def make_ready(groups: Sequence[Sequence[str]], environment: Mapping[str, str] = os.environ) -> None:
    """Builds, in one go, what `binaries` would build when it is asked for one group of programs after the other.

    Says in one line which programs of the user's spare a build. Raises as `binaries` does.
    """
    if user_programs := own_programs([name for group in groups for name in group], environment):
        say(announcement(user_programs))
    binaries([name for group in groups if _given(group, environment) is None for name in group], environment)


def _given(names: Sequence[str], environment: Mapping[str, str]) -> dict[str, Path] | None:
    """The programs in the first folder that the user names and that holds them all; None where there is none."""
    folders = (Path(environment[variable]) for variable in GIVEN_FOLDERS if environment.get(variable))
    candidates = ({name: folder / name for name in names} for folder in folders)
    return next((paths for paths in candidates if all(os.access(path, os.X_OK) for path in paths.values())), None)


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """`$XDG_CACHE_HOME/precision-profiler`, or the same below ~/.cache."""
    base = environment.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(base) / "precision-profiler"
