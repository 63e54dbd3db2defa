"""The demo: a mixed fleet, the chart, the examples, and what comes of it.

Its Prometheus and its page of dashboards are two more processes of the lab, which end with it.
"""

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlencode

from rich.console import Console
from rich.live import Live
from rich.panel import Panel

from precision_lab.builds.binaries import cache_folder, make_ready
from precision_lab.builds.go_build import BuildFailed
from precision_lab.builds.own_programs import USE
from precision_lab.builds.programs import DEMO
from precision_lab.builds.toolchain import NoToolchain
from precision_lab.cluster.objects import Object
from precision_lab.demo import ending
from precision_lab.demo.ending import Monitoring
from precision_lab.demo.view import DemoSnapshot, fleet_table, is_finished, progress_view, reasons_table, slow_nodes
from precision_lab.fleet.fleet import demo_fleet
from precision_lab.fleet.hardware import HARDWARE
from precision_lab.lab import Lab, LabSettings, start_lab
from precision_lab.monitoring.perses.build import _key as page_key
from precision_lab.monitoring.perses.build import has_node
from precision_lab.monitoring.perses.build import page as perses_page
from precision_lab.monitoring.perses.site import start_site
from precision_lab.monitoring.prometheus import PrometheusSettings, Target, start_prometheus, targets_of
from precision_lab.processes.processes import ProcessError, Processes, named
from precision_lab.release.install import NAMESPACE as SYSTEM
from precision_lab.release.install import REPOSITORY, Installation, install
from precision_operator.monitoring import rule_file

EXAMPLE = REPOSITORY / "examples" / "demo.yaml"
NAMESPACE = "precision-demo"
PROFILE = "demo"
"""Both of the example."""
PLAN = REPOSITORY / "examples" / "capacity-plan.yaml"
FOLDER = REPOSITORY / ".demo"
"""For what outlives the cluster: git ignores it."""
FINISH_SECONDS = 900.0
LOOK_SECONDS = 1.0
PIPED_WIDTH = 150
"""Columns when the output is no terminal: rich would assume 80 and fold every cell."""
NOTICE = (
    "SIMULATED FLEET. No GPU is measured here: the nodes are fake, and each agent replays published figures with "
    "seeded noise and named assumptions. The control plane, the operator, the exporter and the agent program are real."
)
SECONDS = 2.0
"""Between scrapes, and between evaluations of the rules."""
LASTS = "5s"
"""The chart's alerts wait for minutes and hours, the demo is over in one: here an alert fires after this time."""
DASHBOARD = "precision-fleet"
SINCE = "15m"
"""The span that the dashboard opens with; its own is a week."""
NOTE = "SIMULATED: no GPU was measured"
HOW_TO_BUILD = "To have it, install Node.js 20 or newer with npm, and run the demo again."


def run_demo(name: str, agent_seconds: float, keep: bool, build_page: bool | None = None) -> None:
    """Brings the lab up, profiles the fleet, prints the results; leaves the cluster running if `keep`.

    With `build_page` the page of dashboards is built where it is missing; None: where Node.js is there to do it.
    Programs that the user has already are used instead of built.

    Raises ProcessError when a program ends or the profiles do not complete in time; the cluster is then gone. Also when
    another demo of this name is still at work: that one is left alone.
    """
    console = Console() if sys.stdout.isatty() else Console(width=PIPED_WIDTH)
    notice = Panel(NOTICE, title="Precision Profiler demo", border_style="yellow")
    console.print(notice)
    os.environ.setdefault(USE, "1")
    make_ready(DEMO)
    make_room(console, name)
    build_page = has_node() if build_page is None else build_page
    try:
        _bring_up_and_show(console, notice, LabSettings(agent_seconds=agent_seconds, name=name), keep, build_page)
    except KeyboardInterrupt:
        console.print("Interrupted: what this demo had started is ended. Run it again when you like.")
        raise


def make_room(console: Console, name: str) -> None:
    """Ends the cluster that an earlier demo of this name left. Raises ProcessError while that demo is still at work."""
    earlier = named(name)
    if earlier is None:
        return
    if earlier.owned:
        raise ProcessError(
            f"Another demo named {name!r} is at work: wait until it is done, or end it by {ending.down_command(name)}, "
            "or run this one beside it: .venv/bin/precision-lab demo --name NAME"
        )
    earlier.end()
    console.print("The cluster of an earlier demo was still running: it was ended.")


def _bring_up_and_show(console: Console, notice: Panel, settings: LabSettings, keep: bool, build_page: bool) -> None:
    name = settings.name
    with start_lab(demo_fleet(), settings) as lab:
        lab.kubectl("config", "set-context", "--current", f"--namespace={NAMESPACE}")
        console.print("A control plane with 24 simulated nodes is up.")
        installed = install(lab, watch=[NAMESPACE], values=["exporter.metricsLevel=detail"])
        console.print(
            f"The chart is applied in {SYSTEM}. Its Deployments have no replicas there: operator and exporter run as "
            "local processes, with their arguments and service accounts."
        )
        pools = sorted({HARDWARE[spec.product].label for spec in demo_fleet()})
        monitoring = start_monitoring(lab.processes, installed, cache_folder(), build_page, pools)
        if monitoring.prometheus:
            console.print("A Prometheus scrapes them with the chart's rules.")
        _run(lab, console, "apply", "-f", os.path.relpath(EXAMPLE))
        watch(lab, installed, console)
        show(lab, installed, console)
        page = ending.write_report(lab, PROFILE, NAMESPACE, FOLDER, name)
        console.print(notice)
        if keep:
            lab.detach()
            _say(console, _next_commands(lab, name))
        gone = ending.Monitoring(missing="The cluster and its Prometheus are gone (--no-keep).")
        _say(console, ending.where_to_look(os.path.relpath(page), monitoring if keep else gone))


def watch(lab: Lab, installed: Installation, console: Console) -> None:
    """Shows the profiles' progress until all are complete."""
    deadline = time.monotonic() + FINISH_SECONDS
    with Live(console=console, refresh_per_second=4) as live:
        while True:
            profiles = profiles_of(lab)
            live.update(progress_view(profiles))
            if is_finished(profiles):
                return
            for name in installed.programs:
                lab.processes.check(name)
            if time.monotonic() > deadline:
                raise ProcessError(f"the profiles did not complete within {FINISH_SECONDS / 60:.0f} minutes")
            time.sleep(LOOK_SECONDS)


def profiles_of(lab: Lab) -> Sequence[Object]:
    """The demo's profiles as they are now: one run of kubectl, while agents need the cores."""
    profiles: Sequence[Object] = lab.get("precisionprofiles", f"--namespace={NAMESPACE}")["items"]
    return profiles


def look(lab: Lab) -> DemoSnapshot:
    reports, nodes = (lab.get(kind, f"--namespace={NAMESPACE}")["items"] for kind in ("nodeprecisionreports", "nodes"))
    return DemoSnapshot(profiles_of(lab), reports, nodes)


def show(lab: Lab, installed: Installation, console: Console) -> None:
    """Prints what kubectl shows, the fleet, the reasons, and where the metrics are."""
    _run(lab, console, "get", "pp,npr")
    snapshot = look(lab)
    console.print(fleet_table(snapshot, console.width))
    console.print(reasons_table(snapshot))
    console.print(f"Metrics: {installed.programs['exporter'].url}/metrics")
    console.print(f"Operator's own: {installed.programs['operator'].url}/metrics")


def _run(lab: Lab, console: Console, *arguments: str) -> None:
    console.print(f"\n[bold]$ kubectl {' '.join(arguments)} -n {NAMESPACE}[/bold]", highlight=False)
    printed = lab.kubectl(*arguments, f"--namespace={NAMESPACE}").rstrip()
    console.print(printed, markup=False, highlight=False, soft_wrap=True)


def _next_commands(lab: Lab, name: str) -> list[str]:
    folders = (lab.binaries["kubectl"].parent, ending.plugin_folder())
    slow = next(iter(slow_nodes(profiles_of(lab))), "")
    return ending.next_commands(name, PROFILE, lab.kubeconfig, folders, os.path.relpath(PLAN), slow)


def _say(console: Console, lines: Sequence[str]) -> None:
    """Prints lines that can be copied: neither folded nor read as markup."""
    console.print("\n".join(["", *lines]), markup=False, highlight=False, soft_wrap=True)


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
