"""Whom the alerts of 1,000 nodes call in a month: ten pools, measured every night, failing as published fleets do.

`python -m benchmarks.alert_month [--nodes 1000] [--days 30] [--seed 1] [--write]`: the series that the rules read, as a
Prometheus stores them, evaluated every nine minutes by promtool. A message is what the routes of docs/alerting.md send:
one for each alert and pool. Each must have a planted cause, and each planted cause a message. `--write` puts the list
at the end of docs/alerting.md.

Rates are for 1,000 nodes and 30 days. Llama 3 (arXiv:2407.21783, table 5: 54 days, 16,384 GPUs in 2,048 nodes) counts
148 faulty GPUs, 6 thermal interfaces and sensors, 6 silent corruptions of data. MegaScale (arXiv:2402.15627) found some
0.5 % of its machines slow. Assumed: those are found within a quarter; of the faulty GPUs one in 24 meets its node's
measurement before the node is cordoned; a cooling loop fails for a day on 40 nodes of one pool, once a month; a repair
takes three days; a scrape fails every day.
"""

import argparse
import random
import re
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from precision_lab.builds.binaries import binaries
from tests.monitoring.replay import OPERATOR, PARTS, TARGET, alerting, check, with_labels

STEPS = 160
"""Of nine minutes, in a day: two of them are in windows of ten."""
POOLS = 10
OF_LLAMA = 1_000 / 2_048 * 30 / 54
RATES = {
    "slow": 5 / 3,
    "throttled": 6 * OF_LLAMA,
    "diverged": 6 * OF_LLAMA,
    "failed": 148 * OF_LLAMA / 24,
}
ALERT_OF = {
    "slow": "PrecisionNodeSlow",
    "throttled": "PrecisionThrottledInProfile",
    "diverged": "PrecisionLossDiverged",
    "failed": "PrecisionNodeFailed",
    "cooling": "PrecisionPoolThrottled",
}
REPAIR_DAYS = 3
PAGE = Path(__file__).parents[1] / "docs" / "alerting.md"
BEGIN = "<!-- written by `python -m benchmarks.alert_month --write` -->\n\n"
HEAD = "| day | severity | alert | pool | node | cause |\n|---|---|---|---|---|---|\n"
PROFILE = 'profile_namespace="ml",profile="nightly"'


@dataclass(frozen=True)
class Fault:
    """From a day's measurement to another's."""

    kind: str
    pool: int
    nodes: frozenset[int]
    begin: int
    end: int


def planted(nodes: int, days: int, rng: random.Random) -> list[Fault]:
    """The faults of so many days."""
    faults = [Fault("cooling", rng.randrange(POOLS), frozenset(range(40)), days // 2, days // 2 + 1)]
    for kind, rate in RATES.items():
        for day in range(1, days - REPAIR_DAYS):
            if rng.random() < rate * nodes / 30_000:
                node = frozenset([rng.randrange(40, nodes // POOLS)])
                faults.append(Fault(kind, rng.randrange(POOLS), node, day, day + REPAIR_DAYS))
    return faults


def series_of(nodes: int, days: int, faults: list[Fault], rng: random.Random) -> list[dict[str, str]]:
    """promtool's input."""
    gaps = sorted({day * STEPS + rng.randrange(STEPS) for day in range(1, days)})
    made = [
        ("precision_exporter_build_info", ["1"] * days),
        ("precision_exporter_shards", ["1"] * days),
        ('precision_exporter_shard_series{index="0"}', ["9000"] * days),
        (f"precision_profile_refresh_interval_seconds{{{PROFILE}}}", ["86400"] * days),
        (f"precision_profile_last_result_timestamp_seconds{{{PROFILE}}}", [str(86_400 * day) for day in range(days)]),
        *(
            (f'precision_profile_nodes{{{PROFILE},phase="{p}"}}', ["0"] * days)
            for p in ("queued", "running", "waiting")
        ),
    ]
    failed = [sum(len(f.nodes) for f in faults if f.kind == "failed" and f.begin <= day < f.end) for day in range(days)]
    made.append((f'precision_profile_nodes{{{PROFILE},phase="failed"}}', list(map(str, failed))))
    made.append((f'precision_profile_nodes{{{PROFILE},phase="succeeded"}}', [str(nodes - n) for n in failed]))
    for pool in range(POOLS):
        of_pool = f'{PROFILE},pool="p{pool}"'
        count = str(nodes // POOLS)
        recipe = f'{of_pool},workload="w",recipe="mxfp8",workload_hash="h1",scope="all",data="measured"'
        hot = {day for f in faults if (f.kind, f.pool) == ("cooling", pool) for day in range(f.begin, f.end)}
        median = [f"{100 * (1 + rng.gauss(0, 0.003)):.2f}" for _ in range(days)]
        made += [
            (f"precision_pool_training_level_tokens_per_second{{{recipe}}}", median),
            (
                f'precision_pool_training_throttled_ratio{{{recipe},against="others"}}',
                ["0.8" if day in hot else "1" for day in range(days)],
            ),
            (f'precision_pool_nodes{{{of_pool},phase="fresh"}}', [count] * days),
            (f'precision_pool_info{{{of_pool},nodes_of="ml/nightly"}}', ["1"] * days),
            (f'precision_pool_driver_nodes{{{of_pool},driver="580"}}', [count] * days),
        ]
        for node in range(nodes // POOLS):
            made += series_of_node(pool, node, days, faults, rng)
    scraped = [{"series": with_labels(name, TARGET), "values": notation(values, gaps)} for name, values in made]
    return [*scraped, {"series": with_labels("precision_operator_leader", OPERATOR), "values": f"1x{days * STEPS}"}]


def series_of_node(
    pool: int, node: int, days: int, faults: list[Fault], rng: random.Random
) -> list[tuple[str, list[str]]]:  # fmt: skip
    """Each with its value of each day."""
    of_node = f'{PROFILE},pool="p{pool}",node="p{pool}-{node}",workload="w"'
    now = [
        {f.kind for f in faults if f.pool == pool and node in f.nodes and f.begin <= day < f.end} for day in range(days)
    ]
    rates = [f"{1 + rng.gauss(0, 0.004) - 0.2 * bool(kinds & {'slow', 'cooling'}):.3f}" for kinds in now]
    made = [
        (f"precision_node_last_success_timestamp_seconds{{{of_node}}}", [str(86_400 * d) for d in range(days)]),
        (f"precision_node_relative_performance_ratio{{{of_node}}}", rates),
        (f"precision_node_slow{{{of_node}}}", [str(int("slow" in kinds)) for kinds in now]),
        (f"precision_node_gpu_power_limit_watts{{{of_node}}}", ["1200"] * days),
        (
            f'precision_node_power_valid{{{of_node},recipe="mxfp8",reason=""}}',
            ["1"] * days,
        ),
        (
            f'precision_node_info{{{of_node},driver="580",data="measured",nvlink_domain="d{node // 18}"}}',
            ["1"] * days,
        ),
    ]
    marks = {
        "throttled": 'precision_node_throttled_ratio{{{},recipe="mxfp8",reason="hardware_thermal"}}',
        "cooling": 'precision_node_throttled_ratio{{{},recipe="bf16",reason="hardware_thermal"}}',
        "diverged": 'precision_node_loss_verdict{{{},recipe="nvfp4",verdict="diverged"}}',
        "failed": 'precision_node_failed{{{},reason="AgentCrashed"}}',
    }
    for kind, family in marks.items():
        if any(kind in kinds for kinds in now):
            made.append((family.format(of_node), ["0.3" if kind in kinds else "_" for kinds in now]))
    return made


def notation(values: list[str], gaps: list[int]) -> str:
    """Each value for a day; a scrape fails at each gap, with its stale marker."""
    parts, there = [], False
    for day, value in enumerate(values):
        left = [gap - day * STEPS for gap in gaps if day * STEPS <= gap < (day + 1) * STEPS]
        ends = [*left, STEPS]
        begin = 0
        for end in ends:
            if end > begin:
                missing = value == "_"
                parts.append(
                    ("stale " if there else "_ ") + f"_x{end - begin - 1}" if missing else f"{value}x{end - begin - 1}"
                )
                there = not missing
            if end < STEPS:
                parts.append("stale" if there else "_")
                there = False
            begin = end + 1
    return " ".join(parts).replace(" _x0", "")


def fired(days: int, series: list[dict[str, str]], part: str, folder: Path) -> dict[int, set[tuple[str, ...]]]:
    """By day what fired, as promtool says it of an answer that nobody expects."""
    expr = 'group by (alertname, severity, pool, node) (count_over_time(ALERTS{alertstate="firing"}[1d]))'
    looks = [{"expr": expr, "eval_time": f"{day}d", "exp_samples": []} for day in range(1, days)]
    test = {"interval": "9m", "input_series": series, "promql_expr_test": looks}
    _, said = check(binaries(["promtool"])["promtool"], folder, [test], "9m", alerting(part))
    days_of: dict[int, set[tuple[str, ...]]] = defaultdict(set)
    for hours, rest in re.findall(r"time: (\w+),\s+exp: nil\s+got: (.*)", said):
        day = sum(int(count) * {"w": 7, "d": 1}[unit] for count, unit in re.findall(r"(\d+)([wd])", hours))
        for labels in re.findall(r"\{([^}]*)\} 1E", rest):
            alert = dict(re.findall(r'(\w+)="([^"]*)"', labels))
            days_of[day].add(tuple(alert.get(name, "") for name in ("severity", "alertname", "pool", "node")))
    assert "error" not in said.lower(), said[:2_000]
    return days_of


def main() -> int:
    """Prints each message with its cause; 1 where one has none, a cause has no message, or a week has too many."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("nodes", 1_000), ("days", 30), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    faults = planted(arguments.nodes, arguments.days, rng)
    series = series_of(arguments.nodes, arguments.days, faults, rng)
    print(f"{len(series)} series, {len(faults)} faults planted", flush=True)
    with TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        jobs = []
        for number, part in enumerate(PARTS):
            (Path(folder) / str(number)).mkdir()
            jobs.append(pool.submit(fired, arguments.days, series, part, Path(folder) / str(number)))
        by_day: dict[int, set[tuple[str, ...]]] = defaultdict(set)
        for job in jobs:
            for day, alerts in job.result().items():
                by_day[day] |= alerts
    weeks: dict[int, set[tuple[str, ...]]] = defaultdict(set)
    explained, problems, rows, sums = set[Fault](), 0, "", ""
    for day in sorted(by_day):
        for severity, name, pool_name, node in sorted(by_day[day] - by_day.get(day - 1, set())):
            causes = [
                fault
                for fault in faults
                if ALERT_OF[fault.kind] == name
                and f"p{fault.pool}" == pool_name
                and (not node or node in {f"p{fault.pool}-{n}" for n in fault.nodes})
                and fault.begin <= day <= fault.end + 1
            ]
            explained |= {*causes}
            problems += not causes
            weeks[(day - 1) // 7].add((severity, name, pool_name, str(day)))
            cause = causes[0].kind if causes else "NO CAUSE"
            rows += f"| {day} | {severity} | {name} | {pool_name} | {node} | {cause} |\n"
    for week in range(-(-arguments.days // 7)):
        pages = sum(row[0] == "critical" for row in weeks[week])
        messages = sum(row[0] == "warning" for row in weeks[week])
        problems += pages > 1 or messages > 5
        sums += f"week {week + 1}: {pages} pages, {messages} messages\n"
    for fault in {*faults} - explained:
        problems += 1
        sums += f"nobody was told: {fault.kind} on {len(fault.nodes)} nodes of p{fault.pool} from day {fault.begin}\n"
    print(HEAD + rows + sums, end="")
    if arguments.write:
        before = PAGE.read_text(encoding="utf-8").partition(f"\n{BEGIN}")[0]
        of = f"{arguments.nodes:,} nodes in ten pools, {len(faults)} faults in {arguments.days} days (simulated):"
        text = (
            f"{before}\n{BEGIN}## A month\n\n{of}\n\n{HEAD}{rows}\n```\n{sums}```\n\n<!-- end of what is written -->\n"
        )
        PAGE.write_text(text, encoding="utf-8")
    return int(problems > 0)


if __name__ == "__main__":
    sys.exit(main())
