"""Images for real nodes: the pause image, made here, and the import of archives into a node's containerd."""

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from precision_lab.nodes.node import PAUSE_IMAGE, Node
from precision_lab.processes.processes import ProcessError

IMPORT_SECONDS = 600


def write_pause_archive(program: Path, archive: Path) -> Path:
    """A docker-archive of an image that holds `program` (linked statically) alone; returns `archive`."""
    layer = _tar({"pause": program.read_bytes()}, mode=0o755)
    digest = hashlib.sha256(layer).hexdigest()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/pause"], "User": "65535:65535"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [PAUSE_IMAGE], "Layers": ["layer.tar"]}]
    files = {"layer.tar": layer, "config.json": json.dumps(config).encode()}
    archive.write_bytes(_tar(files | {"manifest.json": json.dumps(manifest).encode()}))
    return archive


def import_all(archives: Mapping[Node, Sequence[Path]]) -> None:
    """Imports each node's archives, the nodes side by side. Raises ProcessError."""
    with ThreadPoolExecutor(max(1, len(archives))) as threads:
        for done in [threads.submit(_import, node, paths) for node, paths in archives.items()]:
            done.result()


def _import(node: Node, archives: Sequence[Path]) -> None:
    for archive in archives:
        command = node.ctr("images", "import", str(archive))
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=IMPORT_SECONDS)
        except subprocess.TimeoutExpired as late:
            raise ProcessError(
                f"importing {archive.name} on {node.name} took longer than {late.timeout:.0f} s"
            ) from None
        if done.returncode != 0:
            raise ProcessError(f"importing {archive.name} on {node.name}: {done.stderr.strip()[-1000:]}")


def _tar(files: Mapping[str, bytes], mode: int = 0o644) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()
