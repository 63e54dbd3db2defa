"""The supervisor ends all that it started, with itself or its owner, and nothing else; ports are free and ours.

Programs that are built or the user's own, and where they are looked for.
"""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from precision_lab.builds.binaries import binaries, cache_folder, make_ready
from precision_lab.builds.own_programs import USE, own_programs
from precision_lab.builds.programs import CLUSTER, DEMO, modules_for
from precision_lab.demo.demo import make_room
from precision_lab.processes import ports
from precision_lab.processes.processes import ProcessError, Processes, launch
from precision_lab.processes.supervisor import Identity
from tests.support.golden import beside

TABLES = beside(__file__)


@pytest.fixture
def processes() -> Iterator[Processes]:
    """A supervisor of our own without children."""
    mine = launch()
    yield mine
    mine.end()


def gone(pid: int, seconds: float = 20.0) -> bool:
    """Whether the process has ended within so many seconds (at once, if there is none)."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], seconds)[0])
    finally:
        os.close(handle)


def alive(pid: int) -> bool:
    return Identity.of(pid) is not None


OWNER = """
import signal
from precision_lab.processes.processes import launch
processes = launch()
pid = processes.start("child", {argv!r})
print(processes.run_dir, processes.supervisor(), pid, flush=True)
{then}
signal.pause()
"""


@contextmanager
def owner(then: str = "") -> Iterator[tuple[subprocess.Popen[str], Path, Identity, int]]:
    """Another process that has launched a supervisor with one child: its handle, run folder, supervisor and child."""
    script = OWNER.format(argv=[sys.executable, "-c", "import signal; signal.pause()"], then=then)
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    try:
        run_dir, supervisor, pid = process.stdout.readline().split()
        identity = Identity.parse(supervisor)
        assert identity is not None
        yield process, Path(run_dir), identity, int(pid)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        Processes(Path(run_dir)).end()


def test_a_program_that_ended_by_itself_is_reported_with_its_last_words(processes: Processes) -> None:
    pid = processes.start("failing", [sys.executable, "-c", "print('out of luck'); raise SystemExit(3)"])
    assert gone(pid)
    with pytest.raises(ProcessError, match=r"failing ended with 3 right after its start. It said: out of luck"):
        processes.check("failing")


def test_nothing_survives_an_owner_that_is_killed() -> None:
    with owner() as (process, run_dir, supervisor, child):
        process.kill()
        assert gone(supervisor.pid)
        assert gone(child)
        assert not run_dir.exists()


def test_nothing_survives_a_supervisor_that_is_killed() -> None:
    with owner() as (_, _, supervisor, child):
        supervisor.signal(signal.SIGKILL)
        assert gone(child)


def test_a_detached_cluster_survives_its_owner_until_it_is_ended() -> None:
    detach = "processes.detach(); processes.disown()\nprint('detached', flush=True)"
    with owner(detach) as (process, run_dir, supervisor, child):
        assert process.stdout.readline() == "detached\n"
        process.kill()
        process.wait()
        processes = Processes(run_dir)
        assert processes.states()["child"].pid == child
        processes.end()
        assert gone(supervisor.pid)
        assert gone(child)


def test_a_demo_at_work_is_left_alone_and_one_that_is_over_makes_room_for_the_next() -> None:
    earlier = launch(f"room-{os.getpid()}")
    try:
        name = earlier.run_dir.name.removeprefix(f"precision-lab-{os.getuid()}-")
        console = Console(file=(said := StringIO()), width=120)
        with pytest.raises(ProcessError, match=f"precision-lab down --name {name}"):
            make_room(console, name)
        assert earlier.supervisor() is not None
        earlier.detach()
        earlier.disown()
        make_room(console, name)
        assert earlier.supervisor() is None
        assert said.getvalue() == "The cluster of an earlier demo was still running: it was ended.\n"
        make_room(console, name)  # nobody there: nothing to do
    finally:
        earlier.end()


def test_an_identity_is_not_that_of_a_later_process_with_the_same_id() -> None:
    own = Identity.own()
    later = Identity(own.pid, own.started + 1)
    assert own.alive()
    assert not later.alive()
    assert not later.signal(signal.SIGKILL)


ASK = "import sys; from precision_lab.processes.ports import reserve; print([reserve(int(it)) for it in sys.argv[1:]])"


def asked_by_another_process(*numbers: int) -> str:
    command = [sys.executable, "-c", ASK, *map(str, numbers)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_a_port_that_a_living_process_was_given_is_no_other_ones() -> None:
    mine = ports.free_ports(2)
    assert asked_by_another_process(*mine) == "[False, False]"
    assert not set(mine) & set(ports.free_ports(2))


def test_a_port_comes_back_with_the_end_of_its_process() -> None:
    command = [sys.executable, "-c", "from precision_lab.processes.ports import free_ports; print(*free_ports(1))"]
    port = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert asked_by_another_process(port) == "[True]"


def program(folder: Path, name: str) -> Path:
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_who_names_a_folder_with_the_clusters_programs_waits_for_no_build_of_them_in_the_demo(tmp_path: Path) -> None:
    given, built = tmp_path / "given", cache_folder({"XDG_CACHE_HOME": str(tmp_path)}) / "bin"
    given.mkdir()
    for name in CLUSTER:
        program(given, name)
    rest = modules_for(("helm", "prometheus"))
    for module in rest:
        (built / module.key()).mkdir(parents=True)
    make_ready(DEMO, {"KUBEBUILDER_ASSETS": str(given), "XDG_CACHE_HOME": str(tmp_path)})
    assert {folder.name for folder in built.iterdir()} == {module.key() for module in rest}


def saying(folder: Path, name: str, words: str) -> Path:
    """A program that says `words`, whatever it is asked."""
    path = program(folder, name)
    path.write_text(f"#!/bin/sh\necho '{words}'\n")
    return path


SAID = TABLES["said"]


@pytest.mark.parametrize(("name", "words"), SAID.items())
def test_a_program_on_the_path_of_a_supported_version_is_used(tmp_path: Path, name: str, words: str) -> None:
    path = saying(tmp_path, name, words)
    environment = {"PATH": f"{tmp_path}:/bin", USE: "1"}
    assert own_programs([name], environment)[name].path == path
    assert own_programs([name], environment | {USE: ""}) == {}, "tests run on pinned versions"


@pytest.mark.parametrize("words", ["v2.17.0", "v4.0.1", "version unknown", ""])
def test_a_program_of_another_version_is_not_used(tmp_path: Path, words: str) -> None:
    saying(tmp_path, "helm", words)
    assert own_programs(["helm"], {"PATH": f"{tmp_path}:/bin", USE: "1"}) == {}


def test_kubernetes_is_used_whole_and_of_one_version_or_not_at_all(tmp_path: Path) -> None:
    environment = {"KUBEBUILDER_ASSETS": str(tmp_path), "PATH": "/bin", USE: "1"}
    kubernetes = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"]
    for name in kubernetes[:3]:
        saying(tmp_path, name, "Kubernetes v1.35.1")
    assert own_programs(kubernetes, environment) == {}, "kubectl is missing"
    saying(tmp_path, "kubectl", "Client Version: v1.34.0")
    assert own_programs(kubernetes, environment) == {}, "kubectl is of another version"
    saying(tmp_path, "kubectl", "Client Version: v1.35.2")
    assert set(own_programs(kubernetes, environment)) == set(kubernetes)


def test_the_demo_builds_only_what_the_user_lacks_and_says_so_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, built = tmp_path / "own", cache_folder({"XDG_CACHE_HOME": str(tmp_path)}) / "bin"
    own.mkdir()
    saying(own, "helm", SAID["helm"])
    saying(own, "prometheus", SAID["prometheus"])
    for module in modules_for(CLUSTER):
        (built / module.key()).mkdir(parents=True)
    environment = {"PATH": f"{own}:/bin", "XDG_CACHE_HOME": str(tmp_path), USE: "1"}
    make_ready(DEMO, environment)
    told = f"using your helm 3.18 ({own}), prometheus 3.15 ({own}): not built"
    assert capsys.readouterr().err == f"precision-lab: {told}\n"
    assert binaries(["helm"], environment) == {"helm": own / "helm"}
