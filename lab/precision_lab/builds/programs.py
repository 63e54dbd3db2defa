"""The cluster's programs and the pinned Go modules that they are built from, as one table."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

MODULES_DIR = Path(__file__).parent / "modules"
_STRIPPED = "-s -w"
_KUBERNETES = "v1.36.3"
_KUBERNETES_LDFLAGS = (
    f"{_STRIPPED} -X k8s.io/component-base/version.gitVersion={_KUBERNETES}"
    " -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"
    f" -X k8s.io/client-go/pkg/version.gitVersion={_KUBERNETES}"
)
"""Without its version the API server says v0.0.0, and clients and charts that ask for it misbehave."""


_CONTAINERD = ("containerd", "containerd-shim-runc-v2", "ctr")


@dataclass(frozen=True, slots=True)
class Module:
    """One Go module folder below `modules/` and the programs (name -> package) that one `go build` makes of it."""

    name: str
    programs: tuple[tuple[str, str], ...]
    cold_seconds: int
    """How long the first build takes on two cores, for people who wait."""
    ldflags: str = _STRIPPED
    tags: str = ""
    pins: str = ""
    """The folder below `modules/` with go.mod and go.sum, where it is another one's: what both use is built once."""
    cgo: bool = False
    """Whether a C compiler and the C library's headers are needed."""

    @property
    def folder(self) -> Path:
        """Where go.mod and go.sum lie."""
        return MODULES_DIR / (self.pins or self.name)

    @property
    def program_names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.programs)

    def flags(self) -> list[str]:
        """The arguments of `go build`, without the output: the same everywhere, so that Go's cache serves all."""
        tags = ["-tags", self.tags] if self.tags else []
        return ["-trimpath", *tags, "-ldflags", self.ldflags]

    def key(self) -> str:
        """Name and hash of all that decides the binaries."""
        return f"{self.name}-{hashlib.sha256(chr(0).join(self.key_parts()).encode()).hexdigest()[:12]}"

    def key_parts(self) -> list[str]:
        """All that decides the binaries: the pinned sources, the packages with our own sources, and the flags."""
        parts = [(self.folder / name).read_text() for name in ("go.mod", "go.sum")]
        parts += [package for _, package in self.programs] + self.flags()
        parts += [(self.folder / package).read_text() for _, package in self.programs if package.endswith(".go")]
        return parts


def _kubernetes(*names: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, f"k8s.io/kubernetes/cmd/{name}") for name in names)


MODULES: tuple[Module, ...] = (
    Module("etcd", (("etcd", "go.etcd.io/etcd/server/v3"),), 45),
    Module(
        "kubernetes",
        _kubernetes("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"),
        540,
        ldflags=_KUBERNETES_LDFLAGS,
    ),
    Module("kwok", (("kwok", "sigs.k8s.io/kwok/cmd/kwok"),), 112),
    Module("helm", (("helm", "helm.sh/helm/v3/cmd/helm"),), 107),
    Module("helm-4", (("helm-4", "helm.sh/helm/v4/cmd/helm"),), 60, pins="helm"),
    Module(
        "prometheus",
        tuple((name, f"github.com/prometheus/prometheus/cmd/{name}") for name in ("prometheus", "promtool")),
        220,
        ldflags=f"{_STRIPPED} -X github.com/prometheus/common/version.Version=3.15.0",
        tags="remove_all_sd,netgo",
    ),
    Module(
        "prometheus-2.42",
        (("promtool-2.42", "github.com/prometheus/prometheus/cmd/promtool"),),
        200,
        ldflags=f"{_STRIPPED} -X github.com/prometheus/common/version.Version=2.42.0",
    ),
    Module("helm-unittest", (("helm-unittest", "github.com/helm-unittest/helm-unittest/cmd/helm-unittest"),), 58),
)

NODE_MODULES: tuple[Module, ...] = (
    Module("kubernetes-node", _kubernetes("kubelet", "kube-proxy"), 120, _KUBERNETES_LDFLAGS, pins="kubernetes"),
    Module(
        "containerd",
        tuple((name, f"github.com/containerd/containerd/v2/cmd/{name}") for name in _CONTAINERD),
        95,
        ldflags=f"{_STRIPPED} -X github.com/containerd/containerd/v2/version.Version=2.4.2",
        tags="no_btrfs no_devmapper no_zfs",
    ),
    Module("runc", (("runc", "github.com/opencontainers/runc"),), 20, tags="seccomp", cgo=True),
    Module("gpu-device-plugin", (("gpu-device-plugin", "../../../nodes/device_plugin.go"),), 10, pins="kubernetes"),
    Module("gpu-dra-driver", (("gpu-dra-driver", "../../../nodes/dra_driver.go"),), 30, pins="kubernetes"),
    Module("pause", (("pause", "../../../nodes/pause.go"),), 5, pins="kubernetes"),
)
"""What real nodes need beside a cluster: built only where somebody asks for real nodes."""

TOOL_MODULES: tuple[Module, ...] = (
    Module("govulncheck", (("govulncheck", "golang.org/x/vuln/cmd/govulncheck"),), 60),
    Module("krew", (("krew", "sigs.k8s.io/krew/cmd/krew"),), 50),
    Module("actionlint", (("actionlint", "github.com/rhysd/actionlint/cmd/actionlint"),), 20),
    Module("gitops", (("gitops-health", "../../../release/health.go"),), 20),
    Module("registry", (("registry", "../../../nodes/registry.go"),), 70),
)
"""What `make audit` and the tests of a release need: built only there."""

CLUSTER = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok")
"""What a cluster with a simulated fleet needs."""
DEMO = (CLUSTER, ("helm",), ("prometheus",))
"""What the demo asks for, by the groups in which it does; the tests need all programs."""
ALL = tuple(name for module in MODULES for name in module.program_names)
NODE = tuple(name for module in NODE_MODULES for name in module.program_names)
"""What real nodes are made of."""
_EVERY = (*MODULES, *NODE_MODULES, *TOOL_MODULES)


def modules_for(names: tuple[str, ...]) -> tuple[Module, ...]:
    """The modules that make these programs, each once, in the table's order. ValueError for an unknown name."""
    program_names = [name for module in _EVERY for name in module.program_names]
    unknown = set(names) - set(program_names)
    if unknown:
        raise ValueError(f"The lab builds no {', '.join(sorted(unknown))}: it knows {', '.join(program_names)}.")
    return tuple(module for module in _EVERY if set(names) & set(module.program_names))
