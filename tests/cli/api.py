"""A small API server, for the plugin as a whole: pages, label selectors, refusals, lost continue tokens.

It listens where `kubectl proxy` would, and a program in kubectl's place leads there; tests/e2e has the real one.
"""

import json
import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qs, unquote, urlsplit

from typer.testing import CliRunner, Result

from precision_api.facts.names import LABEL_MANAGED_BY, MANAGED_BY
from precision_operator.cli import app
from precision_operator.cluster import paths

Json = dict[str, Any]
MINE = {LABEL_MANAGED_BY: MANAGED_BY}
KUBECTL = """\
#!/bin/sh
echo "$@" >> "{folder}/kubectl.log"
case "$1" in
proxy)
  ln -s "{socket}" "${{3#*=}}"; echo "Starting to serve on $3"; echo "E0101 what kubectl logs" >&2; exec sleep 600;;
config) cat "{folder}/where";;
esac
"""


def stand_in(folder: Path, text: str) -> None:
    """A program kubectl in `folder`."""
    (folder / "kubectl").write_text(text)
    (folder / "kubectl").chmod(0o755)


_TERM = re.compile(r"([^=,\s]+)(?:=([^,]*)| in \(([^)]*)\))")
"""Of a label selector: KEY=VALUE, or KEY in (VALUE,VALUE)."""


class Api:
    """What the server holds and how it answers; `asked` has every request's path and query."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.collections: dict[str, list[Json]] = {}
        self.objects: dict[str, Json] = {}
        self.refused: dict[str, str] = {}
        """Paths that may not be listed, with the API server's words."""
        self.refusal = 403
        self.lose_place_at: str | None = None
        """The continue token that is too old, once."""
        self.texts: dict[str, str] = {}
        """Answers that are no JSON, by path: logs, metrics."""
        self.asked: list[tuple[str, dict[str, str]]] = []
        self.reachable = True

    def hold(self, path: str, *items: Json) -> None:
        """The collection at `path` has these objects as well; so has that of all namespaces."""
        self.collections.setdefault(path, []).extend(items)
        head, _, tail = path.partition("/namespaces/")
        if tail:
            self.collections.setdefault(f"{head}/{tail.partition('/')[2]}", []).extend(items)

    def profiles(self, *items: Json) -> None:
        self.hold(paths.profiles("ml"), *items)
        self.hold(paths.reports("ml"))

    def reports(self, *items: Json) -> None:
        """Reports of the namespace ml, marked as the operator marks them."""
        for item in items:
            item["metadata"]["labels"] = MINE
        self.hold(paths.reports("ml"), *items)

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(app, list(words))

    def printed(self, *words: str) -> Any:
        done = self.run(*words, "-o", "json")
        assert done.exit_code == 0, done.stderr
        return json.loads(done.stdout)

    def answer(self, path: str, query: dict[str, str], user: str = "") -> tuple[int, Json | str]:
        self.asked.append((path, query))
        if path in self.refused:
            return self.refusal, _status(self.refusal, "Forbidden", self.refused[path])
        if unquote(path) in self.texts:
            return 200, self.texts[unquote(path)]
        if path + user in self.objects:
            return 200, self.objects[path + user]
        within, _, name = path.rpartition("/")
        for item in self.collections.get(within, ()):
            if item["metadata"]["name"] == name:
                return 200, item
        if path not in self.collections:
            return 404, _status(404, "NotFound", "404 page not found")
        if query.get("continue") and query["continue"] == self.lose_place_at:
            self.lose_place_at = None
            return 410, _status(410, "Expired", "the provided continue parameter is too old")
        return 200, self._page(self.collections[path], query)

    def _page(self, items: list[Json], query: dict[str, str]) -> Json:
        terms = _TERM.findall(query.get("labelSelector", ""))
        wanted = {key: some.split(",") if some else [value] for key, value, some in terms}
        labelled = ((item["metadata"].get("labels", {}), item) for item in items)
        chosen = [item for labels, item in labelled if all(labels.get(key) in some for key, some in wanted.items())]
        start, limit = int(query.get("continue") or 0), int(query.get("limit") or 500)
        end = start + limit
        more = str(end) if end < len(chosen) else ""
        return {"kind": "List", "items": chosen[start:end], "metadata": {"continue": more, "resourceVersion": "1"}}


def _status(code: int, reason: str, message: str) -> Json:
    return {"kind": "Status", "code": code, "reason": reason, "message": message}


@contextmanager
def served(api: Api) -> Iterator[Api]:
    """`api`, reachable for the length of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if not api.reachable:  # as kubectl says it
                self.wfile.write(b"HTTP/1.1 500 .\r\nContent-Type: text/plain; charset=utf-8\r\n\r\ndial tcp: refused")
                return
            found = urlsplit(self.path)
            assert "/secrets/" not in self.path or "as=Table;" in self.headers["Accept"]
            self.send(*api.answer(found.path, {key: value[0] for key, value in parse_qs(found.query).items()}))

        def send(self, code: int, body: Json | str) -> None:
            text = (json.dumps(body) if isinstance(body, dict) else body).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def do_POST(self) -> None:
            """Creates an object: 409 where one of its name is there; a review is answered as of its user."""
            held = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            there = [item["metadata"]["name"] for item in api.collections.get(self.path, ())]
            if self.path not in api.collections:
                self.send(*api.answer(self.path, {}, f" as {self.headers['Impersonate-User']}"))
            elif held["metadata"]["name"] in there:
                self.send(409, _status(409, "AlreadyExists", "it exists"))
            else:
                api.hold(self.path, held)
                self.send(201, held)

        def log_message(self, *args: Any) -> None:
            """Nothing: what was asked for stands in `asked`."""

    with TemporaryDirectory() as short:  # paths of sockets have a hundred characters
        path = f"{api.folder}{os.pathsep}{os.environ['PATH']}"
        (api.folder / "where").write_text("ml https://api.test:6443")
        stand_in(api.folder, KUBECTL.format(folder=api.folder, socket=f"{short}/s"))
        with ThreadingUnixStreamServer(f"{short}/s", Handler) as server, patch.dict(os.environ, PATH=path):
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            try:
                yield api
            finally:
                server.shutdown()
