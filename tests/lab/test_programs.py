"""Programs that are built or the user's own, and where they are looked for."""

from pathlib import Path

import pytest

from precision_lab.builds.binaries import binaries, cache_folder, make_ready
from precision_lab.builds.own_programs import USE, own_programs
from precision_lab.builds.programs import CLUSTER, DEMO, modules_for


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


SAID = {
    "etcd": "etcd Version: 3.6.4\nGit SHA: abc",
    "kube-apiserver": "Kubernetes v1.36.3",
    "kubectl": "Client Version: v1.36.3\nKustomize Version: v5.7.1",
    "kwok": "kwok version v0.8.0 go1.26.1 (linux/amd64)",
    "helm": "v3.18.4+gd80839c",
    "prometheus": "prometheus, version 3.15.0 (branch: , revision: unknown)",
}


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
