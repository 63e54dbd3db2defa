"""A container registry on loopback with one image, and as slow as a test wants it.

`python -m tests.support.image_registry ARCHIVE PORT TAGS SECONDS`: the image is that of the docker-archive with one
layer more, which no node has and which takes so many seconds to send. It is there under the tags that the file TAGS
lists, a line each, and under no other.
"""

import hashlib
import io
import json
import random
import sys
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
LAYER_BYTES = 1 << 20
PIECES = 100
REPOSITORY = "agent"


@dataclass(frozen=True)
class Image:
    """What one tag stands for: its own documents and layer; the archive's layers come from the archive."""

    manifest: bytes
    config: bytes
    layer: bytes


@dataclass(frozen=True)
class Archive:
    """A docker-archive: its layers by digest, and the documents that name them."""

    path: Path

    def read(self, name: str) -> bytes:
        with tarfile.open(self.path) as tar:
            file = tar.extractfile(name)
            assert file, name
            return file.read()

    def layers(self) -> dict[str, str]:
        """Digest -> the layer's name in the archive, from the bottom up."""
        (image,) = json.loads(self.read("manifest.json"))
        return dict(zip(self.config()["rootfs"]["diff_ids"], image["Layers"], strict=True))

    def config(self) -> dict[str, Any]:
        (image,) = json.loads(self.read("manifest.json"))
        document: dict[str, Any] = json.loads(self.read(image["Config"]))
        return document

    def tagged(self, tag: str) -> Image:
        """The image with the layer that is this tag's alone."""
        layer, config = own_layer(tag), self.config()
        config["rootfs"]["diff_ids"].append(digest(layer))
        config.pop("history", None)
        text = json.dumps(config).encode()
        with tarfile.open(self.path) as tar:
            sizes = {sha: tar.getmember(name).size for sha, name in self.layers().items()}
        rows = [*sizes.items(), (digest(layer), len(layer))]
        manifest = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "digest": digest(text), "size": len(text)},
            "layers": [{"mediaType": LAYER, "digest": sha, "size": size} for sha, size in rows],
        }
        return Image(json.dumps(manifest).encode(), text, layer)


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def own_layer(tag: str) -> bytes:
    """A layer with one file of noise, the same for the same tag."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        entry = tarfile.TarInfo(f"opt/{tag}")
        entry.size = LAYER_BYTES
        tar.addfile(entry, io.BytesIO(random.Random(tag).randbytes(LAYER_BYTES)))
    return buffer.getvalue()


class Registry(ThreadingHTTPServer):
    """Serves until it is killed."""

    def __init__(self, archive: Archive, port: int, tags: Path, seconds: float) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.archive, self.tags, self.seconds = archive, tags, seconds
        self.images: dict[str, Image] = {}

    def known(self) -> list[Image]:
        for tag in self.tags.read_text().split():
            self.images.setdefault(tag, self.archive.tagged(tag))
        return [self.images[tag] for tag in self.tags.read_text().split()]

    def content(self, kind: str, name: str) -> tuple[str, bytes, bool] | None:
        """(media type, bytes, whether they go slowly) of a manifest or a blob; None where there is none."""
        for image in self.known():
            tag = next(tag for tag, tagged in self.images.items() if tagged is image)
            if kind == "manifests" and name in (tag, digest(image.manifest)):
                return MANIFEST, image.manifest, False
            if kind == "blobs" and name in (digest(image.config), digest(image.layer)):
                slow = name == digest(image.layer)
                return "application/octet-stream", image.layer if slow else image.config, slow
        layers = self.archive.layers()
        if kind == "blobs" and name in layers:
            return "application/octet-stream", self.archive.read(layers[name]), False
        return None


class Handler(BaseHTTPRequestHandler):
    """The part of the distribution API that a pull needs."""

    protocol_version = "HTTP/1.1"
    server: Registry

    def do_HEAD(self) -> None:
        self._answer(False)

    def do_GET(self) -> None:
        self._answer(True)

    def _answer(self, with_body: bool) -> None:
        parts = self.path.strip("/").split("/")  # v2/agent/manifests/TAG
        content = self.server.content(*parts[2:]) if len(parts) == 4 and parts[1] == REPOSITORY else None
        if content is None:
            body, kind, slow = b'{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}', "", False
        else:
            kind, body, slow = content
        self.send_response(200 if content or parts == ["v2"] else 404)
        self.send_header("Content-Type", kind or "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Docker-Content-Digest", digest(body))
        self.end_headers()
        for piece in _pieces(body, self.server.seconds if slow else 0.0) if with_body else ():
            self.wfile.write(piece)


def _pieces(body: bytes, seconds: float) -> Iterator[bytes]:
    """The bytes, spread over so many seconds."""
    size = len(body) // PIECES + 1
    for start in range(0, len(body), size):
        yield body[start : start + size]
        time.sleep(seconds / PIECES)


if __name__ == "__main__":
    Registry(Archive(Path(sys.argv[1])), int(sys.argv[2]), Path(sys.argv[3]), float(sys.argv[4])).serve_forever()
