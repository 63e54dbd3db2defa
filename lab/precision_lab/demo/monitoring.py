"""The demo's Prometheus and its page of dashboards: two more processes of the lab, which end with it."""

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlencode

from precision_lab.builds.go_build import BuildFailed
from precision_lab.builds.toolchain import NoToolchain
from precision_lab.demo.ending import Monitoring
from precision_lab.monitoring.perses.build import _key as page_key
from precision_lab.monitoring.perses.build import page as perses_page
from precision_lab.monitoring.perses.site import start_site
from precision_lab.monitoring.prometheus import PrometheusSettings, Target, start_prometheus, targets_of
from precision_lab.processes.processes import ProcessError, Processes
from precision_lab.release.install import Installation
from precision_operator.monitoring import rule_file

SECONDS = 2.0
"""Between scrapes, and between evaluations of the rules."""
LASTS = "5s"
"""The chart's alerts wait for minutes and hours, the demo is over in one: here an alert fires after this time."""
DASHBOARD = "precision-fleet"
SINCE = "15m"
"""The span that the dashboard opens with; its own is a week."""
NOTE = "SIMULATED: no GPU was measured"
HOW_TO_BUILD = "To have it, install Node.js 20 or newer with npm, and run the demo again."


def start_monitoring(
    processes: Processes, installed: Installation, cache: Path, build_page: bool, pools: Sequence[str]
) -> Monitoring:
    """Starts Prometheus on the installed programs, and the page of dashboards where it is built or `build_page`.

    The rules are the chart's at the demo's pace. A program that can't be built or does not start is not raised: the
    demo goes on without it, and the answer's `missing` says why.
    """
    rules = processes.run_dir / "rules.yaml"
    rules.write_text(rule_file.text(interval=f"{SECONDS:.0f}s", lasts=LASTS))
    settings = PrometheusSettings(targets(installed), (rules,), scrape_seconds=SECONDS, evaluation_seconds=SECONDS)
    try:
        prometheus = start_prometheus(processes, settings).url
    except (BuildFailed, NoToolchain, ProcessError) as problem:
        return Monitoring(missing=f"Prometheus does not run: {problem}")
    if not (build_page or (cache / "perses" / page_key()).is_dir()):  # one of the present sources needs no npm
        return Monitoring(prometheus, missing=f"The page of dashboards is not built yet. {HOW_TO_BUILD}")
    try:
        return Monitoring(prometheus, dashboards_url(start_site(processes, perses_page(cache), prometheus, pools)))
    except (BuildFailed, ProcessError) as problem:
        return Monitoring(prometheus, missing=f"The page of dashboards does not run: {problem}")


def targets(installed: Installation) -> tuple[Target, ...]:
    """What the chart's ServiceMonitors name: operator and exporter, the latter with each of its shards."""
    operator, exporter = installed.programs["operator"], installed.programs["exporter"]
    return (
        targets_of(operator.url, "precision-operator", ["/metrics"]),
        targets_of(exporter.url, "precision-exporter", exporter_paths(exporter.argv)),
    )


def exporter_paths(argv: Sequence[str]) -> list[str]:
    """The paths that an exporter serves which was started with these arguments."""
    shards = [int(part.removeprefix("--shards=")) for part in argv if part.startswith("--shards=")]
    by_pool = "--metrics-level=pool" in argv
    return ["/metrics", *(f"/metrics/shard/{shard}" for shard in range(0 if by_pool else (shards or [1])[-1]))]


def dashboards_url(site: str) -> str:
    """Where the fleet's dashboard is, with a note beside its title that its figures are simulated."""
    return f"{site}/?{urlencode({'dashboard': DASHBOARD, 'start': SINCE, 'note': NOTE})}"
