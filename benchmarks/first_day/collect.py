"""Puts the folders of one day's commands into one folder of results, to be committed.

    python -m benchmarks.first_day.collect FOLDER [FOLDER ...] [--into benchmarks/results]

Makes INTO/<chip>/<date>-<GPU>/, the GPU by the first part of its UUID: record.json (every step of every command), the
agent's results, and README.md, the same in words. Traces stay where they are: the kernels that they show are in the
record. Refuses folders of two GPUs, and what a rehearsal left, unless --into names another place.
"""

import argparse
import gzip
import json
import sys
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.first_day.checks import counted
from benchmarks.first_day.keeping import RECORD, RESULTS
from benchmarks.first_day.nvidia import METHODS, spreads
from precision_api.facts.products import part

INTO = Path("benchmarks/results")
Record = dict[str, Any]


class Refused(Exception):
    """Why these folders make no results; says what to do."""


def read(folder: Path) -> Record:
    """The record of one command. Refused where there is none."""
    try:
        record: Record = json.loads((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Refused(f"{folder}: reading {RECORD}: {error}; give a folder that a command wrote (--out)") from None
    return record


def chip(records: Sequence[Record]) -> str:
    """The folder's name: the product in lower case, or the GPU's own name with dashes. Refused for two GPUs."""
    names = {gpu["name"] for record in records for gpu in record["machine"]["gpus"]}
    machines = {tuple(gpu["uuid"] for gpu in record["machine"]["gpus"]) for record in records}
    if len(names) != 1 or len(machines) != 1:
        gpus = sorted(f"{gpu['name']} {gpu['uuid']}" for record in records for gpu in record["machine"]["gpus"])
        raise Refused(f"these folders are of {', '.join(dict.fromkeys(gpus)) or 'no GPU'}: give those of one machine")
    (name,) = names
    product_part = part(name)
    label = product_part.product if product_part else "".join(sign if sign.isalnum() else " " for sign in name)
    return "-".join(label.lower().split())


def collect(folders: Sequence[Path], into: Path) -> Path:
    """Writes the folder of results and gives its path. Refused as said above."""
    records = [read(folder) for folder in folders]
    simulated = any(record["machine"]["simulated"] for record in records)
    if simulated and into.resolve() == INTO.resolve():
        raise Refused(f"a rehearsal left these: {INTO} is for what a GPU measured; say --into ANOTHER_FOLDER to look")
    days = sorted(step["started_at"][:10] for record in records for step in record["steps"])
    product = chip(records)
    gpu = str(records[0]["machine"]["gpus"][0]["uuid"]).removeprefix("GPU-").split("-")[0]
    target = into / product / f"{days[0] if days else 'empty'}-{gpu}"
    if target.exists():
        raise Refused(f"{target} is there already: delete it, or collect all folders of the day at once")
    target.mkdir(parents=True)
    (target / "record.json").write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    for folder in folders:
        for name, text in _results(folder):
            (target / name).write_bytes(text)
    (target / "README.md").write_text(as_page(records, simulated), encoding="utf-8")
    return target


def _results(folder: Path) -> Iterator[tuple[str, bytes]]:
    archive = folder / RESULTS
    if not archive.exists():
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            stream = tar.extractfile(member)
            if stream and member.isfile():
                yield Path(member.name).name.removesuffix(".gz"), gzip.decompress(stream.read())


def as_page(records: Sequence[Record], simulated: bool) -> str:
    """The page: machine and software, how each step ended, and each expectation beside what was measured."""
    machine = records[0]["machine"]
    gpus = ", ".join(dict.fromkeys(gpu["name"] for gpu in machine["gpus"]))
    commits = ", ".join(dict.fromkeys(str(record["machine"]["commit"])[:12] for record in records))
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items() if version)
    lines = [f"# First day on {gpus}", ""]
    if simulated:
        lines += ["A rehearsal: no GPU was there, and no figure here is a measurement.", ""]
    lines += [
        f"Driver {machine['driver']}, Python {machine['python']}, {packages}; commit {commits}.",
        "", "| step | status | seconds | as expected | differs | not measured |", "|---|---|---|---|---|---|",
    ]  # fmt: skip
    steps = [step for record in records for step in record["steps"]]
    for step in steps:
        many = counted(step["checks"])
        lines.append(_row((step["step"], step["status"], f"{step['seconds']:.0f}", *map(str, many.values()))))
    for step in steps:
        lines += _section(step)
    lines += _spreads(steps)
    return "\n".join(lines) + "\n"


def _section(step: Record) -> list[str]:
    lines = ["", f"## {step['step']}", ""]
    if step["error"]:
        lines += ["```", step["error"], "```", ""]
    if step["checks"]:
        lines += ["| what | expected | measured | |", "|---|---|---|---|"]
    for check in step["checks"]:
        cells = (check["name"], check["expected"], check["measured"], check["verdict"])
        lines.append(_row(cells))
    return lines


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(" ".join(text.replace("|", "\\|").split())[:400] for text in cells) + " |"


def _spreads(steps: Sequence[Record]) -> list[str]:
    """The turns of all commands together."""
    turns = [turn for step in steps if step["step"] == "nvidia" for turn in step["facts"].get("turns", ())]
    if not turns:
        return []
    lines = [
        "",
        "## Turns of all commands together",
        "",
        "| method | turns | mean speedup | spread |",
        "|---|---|---|---|",
    ]
    by_method = spreads(turns)
    for name in METHODS:
        row = by_method[name]
        mean, spread = row["mean"], row["relative_spread"]
        figures = ("" if mean is None else f"{mean:.4f}", "" if spread is None else f"{spread:.3%}")
        lines.append(_row((name, str(row["turns"]), *figures)))
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 where it refuses."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--into", type=Path, default=INTO, help="where <chip>/<date> is made (%(default)s)")
    asked = parser.parse_args(arguments)
    try:
        print(collect(asked.folders, asked.into))
    except Refused as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
