"""Kubeconfig files, written for the cluster's own components and for service accounts; and the lab's own connection."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from precision_lab.cluster.certificates import Pair, write_secret
from precision_operator.cluster.connection import DirectCluster

DEADLINE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Credentials:
    """Where an API server is and who asks: by client certificate or by bearer token."""

    server: str
    ca: bytes
    pair: Pair | None = None
    token: str = ""


def write(path: Path, credentials: Credentials, namespace: str = "default") -> Path:
    """Writes a kubeconfig that stands alone (all data inline) and that only this user can read."""
    write_secret(path, yaml.safe_dump(document(credentials, namespace), sort_keys=False).encode())
    return path


def document(credentials: Credentials, namespace: str = "default") -> dict[str, Any]:
    """The kubeconfig as data: one cluster, one user, one context, all named `lab`."""
    user: dict[str, str] = {"token": credentials.token} if credentials.token else {}
    if credentials.pair:
        user["client-certificate-data"] = _encode(credentials.pair.certificate)
        user["client-key-data"] = _encode(credentials.pair.key)
    cluster = {"server": credentials.server, "certificate-authority-data": _encode(credentials.ca)}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "lab", "cluster": cluster}],
        "users": [{"name": "lab", "user": user}],
        "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab", "namespace": namespace}}],
        "current-context": "lab",
    }


def read(path: Path) -> Credentials:
    """The credentials of a kubeconfig that `write` made."""
    config = yaml.safe_load(path.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    pair = None
    if "client-key-data" in user:
        certificate, key = user["client-certificate-data"], user["client-key-data"]
        pair = Pair(base64.b64decode(certificate), base64.b64decode(key))
    ca = base64.b64decode(cluster["certificate-authority-data"])
    return Credentials(cluster["server"], ca, pair, user.get("token", ""))


@asynccontextmanager
async def administrator(kubeconfig: Path) -> AsyncIterator[DirectCluster]:
    """The lab's own connection. It is patient: a test's machine may be busy with whole clusters."""
    async with DirectCluster.connect(str(kubeconfig), deadline_seconds=DEADLINE_SECONDS) as cluster:
        cluster.user_agent = "precision-lab"
        yield cluster


def _encode(content: bytes) -> str:
    return base64.b64encode(content).decode()
