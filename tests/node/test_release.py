"""A release as its users take it: from a registry with TLS and login, by its digest, with no value set.

One story in steps, on nodes that have no image: each test goes on where the one before it stopped.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from precision_api.facts.names import GROUP
from precision_api.kinds.crdgen import KINDS
from precision_lab.builds.image_archives import TARGETS, image_archives, version
from precision_lab.lab import LabSettings
from precision_lab.nodes.cluster import FLEET, RealLab, start_real_lab
from precision_lab.nodes.registry import PASSWORD, USER, Registry, start_registry
from precision_lab.nodes.support import missing
from precision_lab.processes.processes import ProcessError
from precision_lab.release import release
from precision_lab.release.helm import Release
from tests.support.eventually import eventually
from tests.support.image_registry import MANIFEST, Archive, digest
from tests.support.installed import AGENT_RESOURCES, GPU_NODE, RESTRICTED, profile_manifest

pytestmark = pytest.mark.node
NEXT = "1.0.0"
LOGIN = [f"--username={USER}", f"--password={PASSWORD}"]
VALUES = {
    "imagePullSecrets": [{"name": "registry"}],
    "agent": {"imagePullSecrets": [{"name": "registry"}]},
    "networkPolicy": {"enabled": True, "scrapeFrom": [{"namespaceSelector": {}}]},
}
LEFT = {f"customresourcedefinition.apiextensions.k8s.io/{kind.plural}.{GROUP}" for kind in KINDS}
LEFT |= {"lease.coordination.k8s.io/precision-profiler-operator", "pod/precision-profiler-test"}
"""By uninstalling: docs/install.md."""


@dataclass(frozen=True)
class Published:
    """A cluster without images, and a registry with two releases: by version, charts and images at their digests."""

    real: RealLab
    registry: Registry
    before: set[str]
    """All objects of the cluster at first."""
    charts: dict[str, str] = field(default_factory=dict)
    operators: dict[str, str] = field(default_factory=dict)
    agents: dict[str, str] = field(default_factory=dict)

    def helm(self, *words: str, program: str = "helm-4", stdin: str = "") -> str:
        return Release(self.real.lab, program=program).helm(*words, stdin=stdin)

    def put(self, action: str, of: str, *flags: str, program: str = "helm-4", stdin: str = "") -> None:
        """`helm install` or `upgrade` from the registry: three containers are ready, of this release's image."""
        flags = (f"--ca-file={self.registry.authority}", "--wait", "--timeout=150s", *flags)
        self.helm(action, "precision-profiler", self.charts[of], *flags, program=program, stdin=stdin)
        selector = "--selector=app.kubernetes.io/component in (operator,exporter)"
        pods = json.loads(self.kubectl("get", "pods", "--output=json", selector))["items"]
        living = [pod["status"] for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        rows = [(row["imageID"], row["ready"]) for status in living for row in status["containerStatuses"]]
        assert rows == [(self.operators[of], True)] * 3

    def kubectl(self, *words: str) -> str:
        return self.real.lab.kubectl(*words, f"--namespace={Release(self.real.lab).namespace}")

    def demand_profile(self, name: str, of: str) -> None:
        """A profile is complete, on a node that has got the agent of this release."""
        manifest = profile_manifest(name, agent={"resources": AGENT_RESOURCES})
        manifest["metadata"]["namespace"] = Release(self.real.lab).namespace
        self.real.lab.apply(manifest)
        self.kubectl("wait", f"pp/{name}", "--for=condition=Complete", "--timeout=110s")
        listed = subprocess.check_output(self.real.nodes[GPU_NODE].ctr("images", "list", "--quiet"), text=True)
        assert self.agents[of] in listed.split()

    def demand_test(self, program: str) -> None:
        """`helm test` finds nothing wrong, and shows what it looked at."""
        try:
            said = self.helm("test", "precision-profiler", "--logs", program=program)
        except ProcessError as problem:
            pytest.fail(f"{problem}\n{self.kubectl('logs', 'precision-profiler-test')}")
        states = {line.split("  ")[0] for line in said.partition("POD LOGS")[2].splitlines()[1:11] if line}
        assert states == {"ok", "not checked"}, said

    def demand_uninstalled(self, program: str) -> None:
        """Uninstalls; Helm leaves the definitions, and what docs/install.md names."""
        self.kubectl("delete", "pp", "--all")
        self.helm("uninstall", "precision-profiler", "--wait", program=program)
        eventually(lambda: objects(self.real) - self.before == LEFT, 40, lambda: objects(self.real) - self.before)


def objects(real: RealLab) -> set[str]:
    """All that the cluster has, but what comes and goes by itself."""
    kinds = real.lab.kubectl("api-resources", "--verbs=list,create", "--output=name").split()
    asked = ",".join(kind for kind in kinds if not kind.startswith(("events", "endpoint", "apiservices")))
    listed = real.lab.kubectl("get", asked, "--all-namespaces", "--output=name").split()
    return {name for name in listed if name.partition("/")[2] not in real.nodes}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Published]:
    if lacking := missing():
        pytest.skip(" ".join(lacking))
    archives = image_archives()
    with start_real_lab({}, FLEET[1:], settings=LabSettings(simulate=False)) as real:
        registry = start_registry(real)
        for node in real.nodes.values():
            node.pull_from(f"https://{registry.address}", registry.authority, f"{USER}:{PASSWORD}")
        namespace = real.lab.create_namespace(Release(real.lab).namespace)
        real.lab.kubectl("label", "namespace", namespace, RESTRICTED)
        made = Published(real, registry, objects(real))
        home = f"{registry.address}/team"
        for number in (version(), NEXT):
            digests = {
                name: "@" + pushed(registry, f"team/{name}", number, Archive(archives[name])) for name in TARGETS
            }
            made.operators[number], made.agents[number] = (f"{home}/{name}{digests[name]}" for name in TARGETS)
            chart = (packaged if number == NEXT else released)(tmp_path_factory.mktemp("chart"), home, digests)
            made.helm("registry", "login", registry.address, *LOGIN, f"--ca-file={registry.authority}")
            made.helm("push", str(chart), f"oci://{home}", f"--ca-file={registry.authority}")
            name = "precision-profiler"
            made.charts[number] = f"oci://{home}/{name}@{registry.digest(f'team/{name}', number)}"
        yield made


def pushed(registry: Registry, name: str, number: str, archive: Archive) -> str:
    """The digest of an image of the archive that is this version's alone."""
    image = archive.tagged(number)
    blobs = [(sha, archive.read(layer)) for sha, layer in archive.layers().items() if number != NEXT]
    blobs += [(digest(blob), blob) for blob in (image.layer, image.config)]
    return registry.push(name, image.manifest, MANIFEST, blobs)


def released(folder: Path, home: str, digests: dict[str, str]) -> Path:
    """The chart that `make release` writes of what is committed and of the file that `make images` writes."""
    file, clone = folder / "images.txt", folder / "clone"
    file.write_text("".join(f"{home}/{name}:{version()}{digest}\n" for name, digest in digests.items()))
    subprocess.run(["git", "clone", "-q", release.REPOSITORY, clone], check=True)
    rooms = os.pathsep.join(str(clone / room) for room in ("lab", "crds", "operator"))
    asked = [
        f"REGISTRY={home}",
        "URL=https://git.lab/team/name",
        f"DIGESTS={file}",
        f"BIN={Path(sys.executable).parent}",
    ]
    make = ["make", f"--directory={clone}", "--old-file=sbom", "--old-file=.venv/.installed", "release", *asked]
    subprocess.run(make, env={**os.environ, "PYTHONPATH": rooms}, check=True)
    return clone / f"dist/precision-profiler-{version()}.tgz"


def packaged(folder: Path, home: str, digests: dict[str, str]) -> Path:
    """The next release's chart, as `make release` packages it."""
    shutil.copytree(release.REPOSITORY / release.CHART, folder / release.CHART)
    shutil.copy(release.REPOSITORY / "LICENSE", folder)
    release.package_chart(release.Release(folder, folder, 0, NEXT, home, "https://git.lab/team/name", digests), "")
    return folder / f"precision-profiler-{NEXT}.tgz"


def test_without_a_value_programs_and_agent_start_from_the_registry(published: Published) -> None:
    published.put("install", version())
    published.demand_profile("first", version())


@pytest.mark.parametrize("program", ["helm-4", "helm"])
def test_helm_test_finds_nothing_wrong(published: Published, program: str) -> None:
    published.demand_test(program)


def test_the_next_release_is_pulled_with_a_secret_where_nodes_have_no_login(published: Published) -> None:
    for node in published.real.nodes.values():
        node.pull_from(f"https://{published.registry.address}", published.registry.authority)
    login = [f"--docker-{word[2:]}" for word in (*LOGIN, f"--server={published.registry.address}")]
    published.kubectl("create", "secret", "docker-registry", "registry", *login)
    published.put("upgrade", NEXT, "--values=-", stdin=json.dumps(VALUES))
    published.demand_test("helm-4")
    published.demand_profile("second", NEXT)
    published.kubectl("delete", "secret", "registry")
    published.demand_uninstalled("helm-4")


def test_helm_3_does_the_same_where_definitions_are(published: Published) -> None:
    for node in published.real.nodes.values():
        node.pull_from(f"https://{published.registry.address}", published.registry.authority, f"{USER}:{PASSWORD}")
    published.put("install", version(), program="helm")
    published.demand_test("helm")
    published.demand_uninstalled("helm")
