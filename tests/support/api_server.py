"""A plain HTTPS client for the lab's API server: status code and decoded body, errors included."""

import base64
import copy
import json
import ssl
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml

SERVER_SIDE_APPLY = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"

Answer = tuple[int, dict[str, Any]]


class ApiServer:
    """Speaks to the server of the kubeconfig's current context, as its user (client certificate or token)."""

    def __init__(self, kubeconfig: Path) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        context = _named(config["contexts"], config["current-context"])["context"]
        cluster = _named(config["clusters"], context["cluster"])["cluster"]
        user = _named(config["users"], context["user"])["user"]
        self._server = cluster["server"]
        self._headers = {"Authorization": f"Bearer {user['token']}"} if "token" in user else {}
        self._tls = ssl.create_default_context(cadata=_pem(cluster, "certificate-authority", kubeconfig).decode())
        if "token" not in user:
            with tempfile.NamedTemporaryFile() as pair:
                pair.write(_pem(user, "client-certificate", kubeconfig) + b"\n" + _pem(user, "client-key", kubeconfig))
                pair.flush()
                self._tls.load_cert_chain(pair.name)

    def acting_as(self, user: str) -> "ApiServer":
        """The same, as another user with all rights."""
        other = copy.copy(self)
        other._headers = {**self._headers, "Impersonate-User": user, "Impersonate-Group": "system:masters"}
        return other

    def ask(self, method: str, path: str, body: Any = None, **more: str) -> dict[str, Any]:
        """The answer to a request that is carried out; where it is refused the test fails with what the server says."""
        status, answer = self.call(method, path, body, **more)
        assert status == (201 if method == "POST" else 200), answer
        return answer

    def call(self, method: str, path: str, body: Any = None, kind: str = "application/json", **query: str) -> Answer:
        """One request; a refusal is an answer too: its Status object has `message`."""
        url = f"{self._server}{path}" + (f"?{urlencode(query)}" if query else "")
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, {**self._headers, "Content-Type": kind}, method=method)
        try:
            with urllib.request.urlopen(request, context=self._tls, timeout=30) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"{}")

    def watch(self, path: str, version: str, seconds: int = 20) -> Iterator[dict[str, Any]]:
        """Events after resourceVersion `version`, bookmarks among them, until the server ends the watch."""
        asked = {"watch": "1", "resourceVersion": version, "allowWatchBookmarks": "1", "timeoutSeconds": str(seconds)}
        request = urllib.request.Request(f"{self._server}{path}?{urlencode(asked)}", headers=self._headers)
        with urllib.request.urlopen(request, context=self._tls, timeout=seconds + 10) as response:
            for line in response:
                yield json.loads(line)


def _named(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(row for row in rows if row["name"] == name)


def _pem(entry: dict[str, Any], key: str, kubeconfig: Path) -> bytes:
    if f"{key}-data" in entry:
        return base64.b64decode(entry[f"{key}-data"])
    return (kubeconfig.parent / entry[key]).read_bytes()
