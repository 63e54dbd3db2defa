"""An HTTP server in the exporter's place: it gives what the exporter gave after a chosen sweep."""

import gzip
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from precision_lab.pictures.sweeps import Sweep
from precision_operator.exporter.text import CONTENT_TYPE


class SweepServer:
    """Serves one sweep's bodies at a time, on 127.0.0.1."""

    def __init__(self, sweeps: Sequence[Sweep], port: int = 0) -> None:
        self._sweeps = sweeps
        self._chosen = 0
        self.server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self.server.daemon_threads = True

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])

    @property
    def url(self) -> str:
        """Its address, without a path."""
        return f"http://127.0.0.1:{self.port}"

    def choose(self, index: int) -> Sweep:
        """Serve this sweep from now on. IndexError when there is none."""
        self._chosen = range(len(self._sweeps))[index]
        return self._sweeps[index]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        parent = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = parent._sweeps[parent._chosen].bodies.get(self.path)
                self.send_response(404 if body is None else 200)
                self.send_header("Content-Type", CONTENT_TYPE)
                zipped = "gzip" in self.headers.get("Accept-Encoding", "")
                sent = gzip.compress(body or b"", 1) if zipped else body or b""
                if zipped:
                    self.send_header("Content-Encoding", "gzip")
                self.send_header("Content-Length", str(len(sent)))
                self.end_headers()
                self.wfile.write(sent)

            def log_message(self, *_: object) -> None:
                """Nothing: scrapes are many."""

        return Handler


@contextmanager
def serve(sweeps: Sequence[Sweep], port: int = 0) -> Iterator[SweepServer]:
    """A server for the length of the block; it begins with the first sweep."""
    server = SweepServer(sweeps, port)
    thread = Thread(target=server.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.server.shutdown()
        server.server.server_close()
        thread.join()
