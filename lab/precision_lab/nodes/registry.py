"""A container registry for real nodes, with TLS and login: CNCF Distribution inside their sandbox.

It has one address, on loopback, for the nodes and for Helm on this machine, and ends with the lab.
"""

import base64
import json
import ssl
import urllib.request
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from precision_lab.builds.binaries import binaries
from precision_lab.cluster.certificates import issue, new_authority, write_pair
from precision_lab.nodes.cluster import RealLab
from precision_lab.nodes.node import wait_until
from precision_lab.processes.ports import free_ports

NAME = "registry"
USER, PASSWORD = "lab", "precision"
HTPASSWD = f"{USER}:$2b$05$abcdefghijklmnopqrstuuuu4dqIwFURiwQ89uqqB4wQ2SWSwsorO\n"
START_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Registry:
    """A registry at `address` (127.0.0.1:PORT), whose certificate the file `authority` vouches for."""

    address: str
    authority: Path

    def push(self, name: str, manifest: bytes, kind: str, blobs: Iterable[tuple[str, bytes]]) -> str:
        """Pushes a manifest of the media type `kind` with its blobs, by digest; returns its digest. Raises OSError."""
        for digest, blob in blobs:
            upload = self._ask("POST", f"https://{self.address}/v2/{name}/blobs/uploads/")["Location"]
            self._ask("PUT", f"{upload}&digest={digest}", blob, "application/octet-stream")
        url = f"https://{self.address}/v2/{name}/manifests/latest"
        return self._ask("PUT", url, manifest, kind)["Docker-Content-Digest"]

    def digest(self, name: str, tag: str) -> str:
        """The digest of what a tag names. Raises OSError where there is none."""
        return self._ask("HEAD", f"https://{self.address}/v2/{name}/manifests/{tag}")["Docker-Content-Digest"]

    def _ask(self, method: str, url: str, body: bytes | None = None, kind: str = "") -> dict[str, str]:
        """The headers of an answer that is no error."""
        login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        accepted = "application/vnd.oci.image.manifest.v1+json"
        headers = {"Authorization": f"Basic {login}", "Content-Type": kind, "Accept": accepted}
        asked = urllib.request.Request(url, body, headers, method=method)
        with urllib.request.urlopen(asked, context=ssl.create_default_context(cafile=str(self.authority))) as answer:
            return dict(answer.headers)


def start_registry(real: RealLab) -> Registry:
    """Starts it; returns when it answers to its login on this machine. Raises ProcessError, BuildFailed."""
    folder, (port,) = real.lab.run_dir / NAME, free_ports(1)
    folder.mkdir()
    authority = new_authority(datetime.now(UTC))
    (folder / "ca.crt").write_bytes(authority.pem)
    write_pair(folder, NAME, issue(authority, datetime.now(UTC), NAME))
    (folder / "htpasswd").write_text(HTPASSWD)
    tls = {"certificate": str(folder / f"{NAME}.crt"), "key": str(folder / f"{NAME}.key")}
    configuration = {
        "version": 0.1,
        "log": {"level": "warn", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(folder)}},
        "http": {"addr": f"127.0.0.1:{port}", "tls": tls},
        "auth": {"htpasswd": {"realm": NAME, "path": str(folder / "htpasswd")}},
    }
    path = folder / "configuration.yaml"
    path.write_text(json.dumps(configuration))
    real.lab.processes.start(NAME, [binaries([NAME])[NAME], "serve", path])
    real.forward(port)
    registry = Registry(f"127.0.0.1:{port}", folder / "ca.crt")
    wait_until(lambda: _answers(registry), real.lab.processes, NAME, START_SECONDS)
    return registry


def _answers(registry: Registry) -> bool:
    with suppress(OSError):
        return bool(registry._ask("GET", f"https://{registry.address}/v2/"))
    return False
