"""An HTTP server in the exporter's place: it gives what the exporter gave after a sweep."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from precision_lab.pictures.sweeps import Sweep
from precision_operator.exporter.text import CONTENT_TYPE


@contextmanager
def serve(sweep: Sweep) -> Iterator[str]:
    """`127.0.0.1:PORT` of a server of this sweep's bodies, for the length of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = sweep.bodies.get(self.path)
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

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
