"""The table of one run, and a plot of all that were saved."""

from collections.abc import Iterator, Sequence
from math import log10
from typing import Any
from xml.sax.saxutils import escape

Json = dict[str, Any]
WIDTH, HEIGHT, LEFT, TOP, ACROSS = 360, 220, 60, 40, 3
SATURATED = 0.95
COLOURS = ("#0072B2", "#D55E00", "#009E73")


def table(row: Json) -> Iterator[str]:
    """Lines for a terminal."""
    yield ""
    yield f"{row['nodes']} nodes, {row['idleNodes']} idle, {row['places']} places; simulated: {row['simulated']}"
    yield f"{row['machine']}, commit {row['commit']}, {row['finished']}; settings: {row['settings']}"
    for name, phase in row["phases"].items():
        yield from _phase(name, phase, row)
    for client in row["clients"]:
        machine = client["machine"]
        cpu_ms = client["cpuSeconds"] / client["nodes"] * 1000
        yield (
            f"{client['turn']}: {client['seconds']:.1f} s for {client['nodes']} nodes, {cpu_ms:.1f} ms of CPU a node, "
            f"peak {client['peakMiB']:.0f} MiB; others took {machine['othersCores']:.1f} cores"
            f"{_saturated(machine, row)}"
        )
    clients = [client["seconds"] for client in row["clients"] if client["nodes"] == row["idleNodes"]]
    sweeps = [phase["sweepSeconds"] for name, phase in row["phases"].items() if name.startswith("sweep")]
    if clients:
        ratio = sum(sweeps) / len(sweeps) / (sum(clients) / len(clients))
        yield f"a sweep takes {ratio:.2f} times as long as the bare client (means of those in turns)"
    scrape, rules, query = row["scrape"], row["slowestRuleGroup"], row["slowestQuery"]
    yield (
        f"scrape: {scrape['seconds']:.3f} s, {scrape['bytes']:,} B ({scrape['gzipBytes']:,} gzipped) "
        f"from {scrape['endpoints']} endpoints; slowest rule group {rules['name']} {rules['seconds']:.3f} s, "
        f"slowest query {query['panel']!r} {query['seconds']:.3f} s"
    )
    read = row["reader"]
    yield f"reader: {read['agents']} agents, {read['results']} results, {len(read['violations'])} violations"
    peaks = ", ".join(f"{name} {peak['most']} of {peak['allowed']}" for name, peak in read["peaks"].items())
    yield f"  most at any instant: {peaks}"
    yield f"the run took {row['seconds']:.0f} s"


def _phase(name: str, phase: Json, row: Json) -> Iterator[str]:
    machine, jobs = phase["machine"], phase["jobs"]
    cpu, peak = machine["cpuSeconds"], machine["peakMiB"]
    yield (
        f"{name}: {machine['seconds']:.1f} s, {jobs} Jobs; others took {machine['othersCores']:.1f} cores, "
        f"load {machine['load']:.1f}{_saturated(machine, row)}"
    )
    if jobs:
        places = f"{phase['placesInUse']:.1f} of {row['places']}" if phase["placesInUse"] is not None else "-"
        rate = f"{phase['jobsPerSecond']:.1f} Jobs/s" if phase["jobsPerSecond"] else "one moment"
        yield (
            f"  first Job after {phase['firstJobSeconds']:.1f} s, all after {phase['sweepSeconds']:.1f} s; {rate}, "
            f"{places} places in use; {phase['requestsForANode']:.1f} requests for each node "
            f"({phase['requestsPerNode']:.1f} with looks at busy nodes, and what comes by time and at a start)"
        )
    for key, words in (("toReportSeconds", "its report's status"), ("toStatusSeconds", "its profile's")):
        if quantiles := phase.get(key):
            yield (
                f"  from a pod's end to {words}: P50 {quantiles['p50']:.2f}, P95 {quantiles['p95']:.2f}, "
                f"P99 {quantiles['p99']:.2f} s ({quantiles['count']})"
            )
    cpu_of_job = f", {cpu.get('operator', 0) / jobs * 1000:.1f} ms a Job" if jobs else ""
    gap, passes = phase["longestRenewalGapSeconds"], phase["passes"]
    yield (
        f"  operator {cpu.get('operator', 0):.1f} s of CPU{cpu_of_job}, {peak.get('operator', 0)} MiB, "
        f"{passes['count']} passes since its start in {passes['wallSeconds']:.1f} s; "
        f"longest hold of the loop {_seconds(phase['longestHoldSeconds'])}, gap between renewals {_seconds(gap)}"
    )
    sizes = [f"{size / 2**20:.0f}" for size in phase.get("etcdBytes", {}).values()]
    etcd = f"; in use in etcd's file {' to '.join(sizes)} MiB, which compactions make smaller" if sizes else ""
    yield f"  exporter {cpu.get('exporter', 0):.1f} s of CPU, {peak.get('exporter', 0)} MiB{etcd}"
    yield f"  all CPU, s: {', '.join(f'{key} {seconds:.1f}' for key, seconds in cpu.items())}"
    asked = ", ".join(f"{what} {count}" for what, count in phase["requests"].items())
    yield f"  requests: {asked or 'none'}; refused: {phase['refused'] or 'none'}"


def _saturated(machine: Json, row: Json) -> str:
    if machine["busyCores"] < SATURATED * row["settings"]["cores"]:
        return ""
    return "; the machine was busy throughout, so seconds are its own, not the program's"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"


def svg(rows: Sequence[Json]) -> str:
    """Six small plots over the number of nodes."""
    sweeps = [row["phases"]["sweep-1"] for row in rows]
    clients = [[c["cpuSeconds"] / c["nodes"] * 1000 for c in row["clients"]] for row in rows]
    cpu = [_cpu(phase) for phase in sweeps]
    plots = {
        "CPU a node, ms": {
            "with a cold start": cpu,
            "warm": [_cpu(row["phases"].get("sweep-2")) for row in rows],
            "bare client": [sum(times) / len(times) for times in clients],
        },
        "Requests for each node": {"operator": [phase["requestsForANode"] for phase in sweeps]},
        "From a pod's end, P95 s": {
            "report": [phase["toReportSeconds"]["p95"] for phase in sweeps],
            "profile": [phase["toStatusSeconds"]["p95"] for phase in sweeps],
        },
        "Peak memory in a sweep, MiB": {
            of: [phase["machine"]["peakMiB"][of] for phase in sweeps] for of in ("operator", "exporter")
        },
        "First Job after, s": {"cold start": [phase["firstJobSeconds"] for phase in sweeps]},
        "Scrape of all endpoints, s": {"exporter": [row["scrape"]["seconds"] for row in rows]},
    }
    nodes = [row["nodes"] for row in rows]
    parts = []
    for number, (title, lines) in enumerate(plots.items()):
        x, y = number % ACROSS * WIDTH, number // ACROSS * HEIGHT + 24
        parts.append(f'<g transform="translate({x} {y})">{_plot(title, nodes, lines)}</g>')
    width, height = ACROSS * WIDTH, -(-len(plots) // ACROSS) * HEIGHT + 30
    said = "; ".join(f"{row['nodes']:,} nodes: {row['commit']}, load {_load(row):.1f}" for row in rows)
    head = (
        f'<text x="10" y="18" font-size="12">Simulated agents and nodes on a real control plane. {escape(said)}</text>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">'
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>{head}{"".join(parts)}</svg>\n'
    )


def _cpu(phase: Json | None) -> float | None:
    """Milliseconds of the operator for each Job."""
    return phase["machine"]["cpuSeconds"]["operator"] / phase["jobs"] * 1000 if phase else None


def _load(row: Json) -> float:
    return max(phase["machine"]["load"] for phase in row["phases"].values())


def _plot(title: str, nodes: Sequence[int], lines: dict[str, list[float | None]]) -> str:
    low, high = log10(min(nodes)), log10(max(nodes))
    top = max(value for values in lines.values() for value in values if value) * 1.15
    right, bottom = WIDTH - 30, HEIGHT - 40

    def place(count: int, value: float) -> tuple[float, float]:
        share = (log10(count) - low) / (high - low) if high > low else 0.5
        return LEFT + share * (right - LEFT), bottom - value / top * (bottom - TOP)

    parts = [f'<text x="{LEFT}" y="20" font-size="13" font-weight="bold">{escape(title)}</text>']
    parts.append(f'<path d="M{LEFT} {TOP}V{bottom}H{right}" fill="none" stroke="#595959"/>')
    for share in (0.0, 0.5, 1.0):
        y = bottom - share * (bottom - TOP)
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" font-size="10" text-anchor="end">{share * top:.3g}</text>')
    for count in nodes:
        x, _ = place(count, 0)
        parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" font-size="10" text-anchor="middle">{count:,}</text>')
    for number, (name, values) in enumerate(lines.items()):
        colour = COLOURS[number]
        points = [place(*pair) for pair in zip(nodes, values, strict=True) if pair[1] is not None]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]
        parts.append(
            f'<text x="{LEFT + 8 + number * 100}" y="{TOP - 4}" font-size="11" fill="{colour}">{escape(name)}</text>'
        )
    return "".join(parts)
