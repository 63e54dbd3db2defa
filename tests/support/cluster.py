"""The real control plane as fixtures: one for a whole test run, a namespace of its own for each test."""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from precision_lab.lab import Lab, LabSettings, start_lab
from precision_lab.processes.locks import locked
from precision_lab.processes.processes import ProcessError


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """etcd, API server, controller manager and scheduler, without nodes; shared by the workers of pytest-xdist.

    It ends with the last worker that uses it, also when the run is killed.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with locked(folder / "control-plane.lock"):
        lab = _running(folder / "control-plane")
        if lab is None:
            lab = start_lab(settings=LabSettings(simulate=False))
            (folder / "control-plane").write_text(str(lab.run_dir))
    yield lab
    lab.processes.disown()


@pytest.fixture(scope="session")
def cluster(control_plane: Lab) -> Lab:
    return control_plane


@pytest.fixture
def namespace(control_plane: Lab) -> Iterator[str]:
    """A namespace that no other test uses, in which pods can start at once."""
    name = control_plane.create_namespace(f"test-{uuid.uuid4().hex[:10]}")
    yield name
    control_plane.kubectl("delete", "namespace", name, "--wait=false")


def _running(pointer: Path) -> Lab | None:
    """The control plane that another worker started, now owned by this one too; None when it is gone."""
    if not pointer.exists():
        return None
    try:
        lab = Lab.find(Path(pointer.read_text()))
        lab.processes.own()
        lab.processes.states()  # an answer after we became an owner: the supervisor goes on
    except (FileNotFoundError, ProcessError):
        return None
    return lab
