"""How the demo looks: pure functions from what the API server says to rich renderables."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table

from precision_lab.cluster.objects import Object
from precision_lab.names import PREFIX, PRODUCT, PUBLISHED

STATES = ("succeeded", "running", "queued", "waiting", "failed", "skipped")


@dataclass(frozen=True, slots=True)
class DemoSnapshot:
    profiles: Sequence[Object]
    reports: Sequence[Object]
    nodes: Sequence[Object]


def is_finished(profiles: Sequence[Object]) -> bool:
    """Whether every profile has ended with the spec that it has now, or is complete.

    The demo's busy and cordoned nodes keep its profile from ever ending.
    """
    return bool(profiles) and all(_has_ended(profile) for profile in profiles)


def progress_view(profiles: Sequence[Object]) -> RenderableType:
    """One line a profile: bar, phase, and how many nodes stand where."""
    table = Table(box=None, show_header=False, padding=(0, 1))
    for profile in profiles:
        counts = profile.get("status", {}).get("nodes") or {}
        done = counts.get("succeeded", 0) + counts.get("failed", 0)
        bar = ProgressBar(total=max(counts.get("eligible", 0), 1), completed=done, width=24)
        state_counts = ", ".join(f"{counts[state]} {state}" for state in STATES if counts.get(state))
        table.add_row(profile["metadata"]["name"], bar, profile.get("status", {}).get("phase", "Pending"), state_counts)
    return table


NARROW = {"Product": 10, "Staged": 10, "Best": 18, "TFLOP/s/GPU": 8}
"""Columns that are folded on a screen of 80 columns, and their widths; names and states stay whole, to be copied."""


def fleet_table(snapshot: DemoSnapshot, width: int = 200) -> Table:
    """All nodes with what is special about them and what each profile found there; one profile needs no name.

    `width`: columns of the screen.
    """
    several = len(snapshot.profiles) > 1
    columns = ("Node", "Product", "Staged", *(["Profile"] if several else []), "State", "Best", "TFLOP/s/GPU")
    table = _table("The fleet (simulated)", columns, folded=NARROW)
    for column in table.columns if width < 110 else ():
        column.width = NARROW.get(str(column.header))
    for node in snapshot.nodes:
        product = _product(node).removeprefix("NVIDIA-")
        for profile in snapshot.profiles:
            who = [_name(profile)] if several else []
            table.add_row(_name(node), product, _staged(node), *who, *_found(snapshot, profile, node))
    return table


def reasons_table(snapshot: DemoSnapshot) -> RenderableType:
    """Why nodes wait, are skipped or failed, in the operator's words."""
    several = len(snapshot.profiles) > 1
    columns = (*(["Profile"] if several else []), "Reason", "Nodes", "For example", "In words")
    table = _table("Waiting, skipped, failed", columns, folded=("In words",))
    for profile in snapshot.profiles:
        for row in profile.get("status", {}).get("reasons", []):
            who = [_name(profile)] if several else []
            table.add_row(*who, row["reason"], str(row["count"]), row["example"], row.get("message", ""))
    return Group("", table)


def _table(title: str, columns: Sequence[str], folded: Collection[str]) -> Table:
    """Without lines, so that eighty columns hold it: only the columns `folded` may then take several lines."""
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold", no_wrap=column not in folded)
    return table


def _product(node: Object) -> str:
    """The GPU's name as labelled; where no label names it (GPUs by claim), the class that the lab made it of."""
    meta = node["metadata"]
    return str(meta["labels"].get("nvidia.com/gpu.product") or meta.get("annotations", {}).get(PRODUCT, ""))


def _staged(node: Object) -> str:
    """What the lab did to this node on purpose."""
    annotations = {key: text for key, text in node["metadata"].get("annotations", {}).items() if key != PRODUCT}
    staged = [
        f"{key.removeprefix(f'{PREFIX}/')} {value}".replace(" true", "")
        for key, value in sorted(annotations.items())
        if key.startswith(f"{PREFIX}/")
    ]
    if PUBLISHED in annotations:
        staged = [*(text for text in staged if not text.startswith("published ")), "GPUs by claim"]
    if node["spec"].get("unschedulable"):
        staged.append("cordoned")
    if "-MIG-" in _product(node):
        staged.append("MIG")
    return ", ".join(staged)


def _found(snapshot: DemoSnapshot, profile: Object, node: Object) -> tuple[str, str, str]:
    """State, best recipe and tokens per joule of one node under one profile.

    A node without a report is one that waits or is skipped: its reason stands in the profile, if it is the example.
    """
    for report in snapshot.reports:
        spec, status = report["spec"], report.get("status", {})
        if spec["profile"] == _name(profile) and spec["nodeUID"] == node["metadata"]["uid"]:
            slow = ", slow" if _name(node) in slow_nodes([profile]) else ""
            return status.get("state", "") + slow, status.get("best", ""), status.get("teraflopsPerGPU", "")
    reasons = profile.get("status", {}).get("reasons", [])
    return next((row["reason"] for row in reasons if row["example"] == _name(node)), "-"), "", ""


def slow_nodes(profiles: Sequence[Object]) -> list[str]:
    """The names of all nodes that the operator holds to be far below their pool's median."""
    pools = [pool for profile in profiles for pool in profile.get("status", {}).get("pools", [])]
    return [name for pool in pools for name in pool.get("slowNodes", [])]


def _has_ended(profile: Object) -> bool:
    generation = profile["metadata"]["generation"]
    return any(
        condition["type"] in ("Succeeded", "Failed", "Complete")
        and condition["status"] == "True"
        and condition.get("observedGeneration", generation) == generation
        for condition in profile.get("status", {}).get("conditions", [])
    )


def _name(item: Object) -> str:
    return str(item["metadata"]["name"])
