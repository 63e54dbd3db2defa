"""What a command leaves: few files of bounded size, so that they can be copied off a rented machine in one go."""

import gzip
import io
import shutil
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MOST_FILES = 8
MOST_BYTES = 16 << 20
RECORD, LOG, RESULTS, TRACES = "first_day.json", "log.txt", "results.tar", "traces.tar"
"""All that a command writes: the record, what the steps printed, the agent's results and the profiler's traces."""
MOST_LOG_BYTES = 8 << 20
TAR_BLOCK = 512
TAR_END = 20 * TAR_BLOCK
"""A tar file is filled up to a multiple of this."""


@dataclass(frozen=True, slots=True)
class Packed:
    """Names that an archive holds, and those that were left out because it would have been too long, with bytes."""

    kept: tuple[str, ...]
    left_out: dict[str, int]


def compressed(folder: Path) -> tuple[Path, ...]:
    """All files of the folder, each gzipped in its place (once), the shortest first."""
    for path in sorted(folder.glob("*")):
        if path.is_file() and path.suffix != ".gz":
            whole = path.with_name(f"{path.name}.gz")
            with path.open("rb") as plain, gzip.open(whole, "wb", compresslevel=6) as packed:
                shutil.copyfileobj(plain, packed)
            path.unlink()
    paths = [path for path in folder.glob("*.gz") if path.is_file()]
    return tuple(sorted(paths, key=lambda path: (path.stat().st_size, path.name)))


def pack(files: Sequence[Path], archive: Path, most_bytes: int = MOST_BYTES) -> Packed:
    """Writes as many of the files as fit, in their order, to a tar file of at most `most_bytes`; none: no archive."""
    kept: list[str] = []
    left_out: dict[str, int] = {}
    spent = TAR_END
    whole = archive.with_suffix(".part")
    with tarfile.open(whole, "w", format=tarfile.USTAR_FORMAT) as tar:
        for path in files:
            size = path.stat().st_size
            needed = TAR_BLOCK + -(-size // TAR_BLOCK) * TAR_BLOCK
            if spent + needed > most_bytes:
                left_out[path.name] = size
                continue
            member = tarfile.TarInfo(path.name)
            member.size = size
            tar.addfile(member, io.BytesIO(path.read_bytes()))
            kept.append(path.name)
            spent += needed
    if kept:
        whole.replace(archive)
    else:
        whole.unlink()
    return Packed(tuple(kept), left_out)


def too_large(folder: Path) -> list[str]:
    """What of a command's folder breaks its limits; empty: nothing."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    problems = [f"{path.name} has {path.stat().st_size} bytes" for path in files if path.stat().st_size > MOST_BYTES]
    return problems + ([f"{len(files)} files"] if len(files) > MOST_FILES else [])
