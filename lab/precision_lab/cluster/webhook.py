"""An admission webhook that the API server really calls: a small HTTPS server with a CA of its own, on loopback."""

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from precision_lab.cluster.certificates import issue, new_authority, write_pair
from precision_lab.cluster.objects import Object

PATIENCE_SECONDS = 1
"""How long the API server waits for an answer."""
AGENTS: Sequence[Object] = [
    {"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": [resource]}
    for group, resource in (("batch", "jobs"), ("", "pods"))
]
"""Rules for new Jobs and pods."""


@dataclass(frozen=True, slots=True)
class Denial:
    """What the webhook answers instead of yes: a Status's code and message."""

    code: int
    message: str


HANGS = Denial(0, "")
"""No answer, until the API server has lost its patience."""
Decide = Callable[[Mapping[str, Any]], Denial | None]
"""From the object that is to be written to what is wrong with it; None: nothing."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """A running webhook: where it listens and what its callers have to trust."""

    url: str
    ca: bytes

    def configuration(self, name: str, namespace: str, labels: Mapping[str, str]) -> Object:
        """The ValidatingWebhookConfiguration for new Jobs and pods that have these labels, in one namespace."""
        return {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [
                {
                    "name": f"{name}.lab.precisionprofiler.io",
                    "clientConfig": {"url": self.url, "caBundle": base64.b64encode(self.ca).decode()},
                    "rules": AGENTS,
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                    "objectSelector": {"matchLabels": dict(labels)},
                    "timeoutSeconds": PATIENCE_SECONDS,
                    "failurePolicy": "Fail",
                    "sideEffects": "None",
                    "admissionReviewVersions": ["v1"],
                }
            ],
        }


@contextmanager
def webhook(folder: Path, decide: Decide) -> Iterator[Webhook]:
    """A webhook that answers for the length of the block; its key is written to `folder`."""
    now = datetime.now(UTC)
    authority = new_authority(now)
    write_pair(folder, "webhook", issue(authority, now, "precision-lab-webhook"))
    over = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(decide, over))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "webhook.crt", folder / "webhook.key")
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield Webhook(f"https://127.0.0.1:{server.server_port}/", authority.pem)
    finally:
        over.set()
        server.shutdown()
        server.server_close()


def _handler(decide: Decide, over: threading.Event) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
            denial = decide(request["object"])
            if denial is HANGS:
                over.wait(10 * PATIENCE_SECONDS)
                return
            response: Object = {"uid": request["uid"], "allowed": denial is None}
            if denial is not None:
                response["status"] = {"code": denial.code, "message": denial.message}
            review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
            body = json.dumps(review).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Nothing: the API server says what became of it."""

    return Handler
