"""The command that shows that nothing is left behind sees what is: one thing of each kind is left on purpose."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from precision_lab.nodes.leftovers import Snapshot, main
from precision_lab.nodes.support import missing
from precision_lab.processes import cgroups
from precision_lab.processes.processes import PREFIX

pytestmark = pytest.mark.node
NAME = f"{PREFIX}planted-{os.getpid()}"


@contextmanager
def planted(folder: Path) -> Iterator[None]:
    """A process in namespaces of its own, a control group, a mount and a run folder, for the length of the block."""
    run_dir = Path(tempfile.gettempdir()) / NAME
    run_dir.mkdir()
    cgroups.create(NAME)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(folder)], check=True)
    process = subprocess.Popen(["unshare", "--fork", "--kill-child", "--pid", "--net", "sleep", "60"])
    try:
        while not Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text():
            pass
        yield
    finally:
        process.kill()
        process.wait()
        subprocess.run(["umount", str(folder)], check=True)
        cgroups.remove(NAME)
        run_dir.rmdir()


def test_one_thing_of_each_kind_that_is_left_is_seen(tmp_path: Path) -> None:
    lacking = missing()
    if lacking:
        pytest.skip(" ".join(lacking))
    before = Snapshot.take()
    with planted(tmp_path):
        seen = before.differences(Snapshot.take())
    kinds = {line.partition(":")[0] for line in seen if "+" in line}
    assert {"mounts", "processes", "namespaces", "cgroups", "files"} <= kinds


def test_a_command_that_leaves_something_fails(capsys: pytest.CaptureFixture[str]) -> None:
    lacking = missing()
    if lacking:
        pytest.skip(" ".join(lacking))
    folder = Path(tempfile.gettempdir()) / NAME
    try:
        assert main(["mkdir", str(folder)]) == 1
    finally:
        folder.rmdir()
    assert f"files: + {folder}" in capsys.readouterr().out.splitlines()
    assert main(["sh", "-c", "exit 3"]) == 3
