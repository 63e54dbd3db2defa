"""A Prometheus that runs: it scrapes the exporter's text, writes its own stale markers, and goes sixty times as fast.

Each duration of the rules is a sixtieth. An exporter restarts, one is in a crash loop, and of two one is stuck.
"""

import json
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from precision_lab.monitoring.prometheus import PrometheusSettings, Target, start_prometheus
from precision_lab.processes.processes import launch
from tests.monitoring.replay import LAST_LIST, TARGET, alerting, samples, with_labels
from tests.monitoring.story import Node, Profile, exposed

pytestmark = [pytest.mark.cluster, pytest.mark.long]
SPEED = 60
BEGINS, STUCK, ENDS = 48.0, 0.0, 88.0
"""Seconds. Half an hour, so many, must be behind a program that is missed."""
NODES = tuple(Node(f"n{number}", rate=1 + number / 1000) for number in range(24))
WELL = Profile("nightly", NODES)
SLOW = WELL.changed(replace(NODES[7], rate=0.8))
TEXTS = {
    cluster: samples(exposed([SLOW if cluster == "restarted" else WELL])) for cluster in ("restarted", "loop", "stuck")
}


def scaled(duration: re.Match[str]) -> str:
    return f"{int(duration[1]) * {'m': 60_000, 'h': 3_600_000, 'd': 86_400_000}[duration[2]] // SPEED}ms"


def faster(rules: str) -> str:
    """The rules with a sixtieth of each duration, and of the two thresholds that are ages of lists."""
    document = json.loads(rules)
    for group in document["groups"]:
        group["interval"] = re.sub(r"(\d+)([mhd])", scaled, group["interval"])
        for rule in group["rules"]:
            expr = re.sub(r"(?<=[\[ ])(\d+)([mhd])\b", scaled, rule["expr"])
            rule["expr"] = re.sub(r"> (3600|1800)\b", lambda age: f"> {int(age[1]) // SPEED}", expr)
            if "for" in rule:
                rule["for"] = re.sub(r"(\d+)([mhd])", scaled, rule["for"])
    return json.dumps(document)


def told(path: str, begun: float) -> str:
    """What an exporter of this path gives now; empty: nothing answers."""
    cluster, _, pod = path.strip("/").partition("-")
    since = time.time() - begun - BEGINS
    if (cluster == "restarted" and 0 <= since < 5) or (cluster == "loop" and since >= 0 and since % 9 < 6):
        return ""
    text = TEXTS[cluster] | {LAST_LIST: str(min(time.time(), begun + STUCK) if pod == "b" else time.time())}
    labels = {**TARGET, "cluster": cluster, "pod": f"exporter-{pod}"}
    return "".join(f"{with_labels(series, labels)} {value}\n" for series, value in text.items())


@contextmanager
def served(begun: float) -> Iterator[str]:
    """The address of a server of all of them."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = told(self.path, begun)
            self.send_response(200 if text else 503)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_on_series_with_its_own_stale_markers_each_fault_raises_its_own_and_a_restart_nothing(tmp_path: Path) -> None:
    rules = tmp_path / "rules.json"
    rules.write_text(faster(alerting()))
    begun = time.time()
    with served(begun) as address, ExitStack() as ending:
        ending.callback((processes := launch()).end)
        targets = (Target("exporter", address, ("/restarted", "/loop", "/stuck-a", "/stuck-b")),)
        settings = PrometheusSettings(targets, (rules,), scrape_seconds=1.0, evaluation_seconds=1.0, lookback="5s")
        prometheus = start_prometheus(processes, settings)
        time.sleep(max(0.0, begun + ENDS - time.time()))
        fired = prometheus.query('group by (cluster, alertname) (last_over_time(ALERTS{alertstate="firing"}[140s]))')
        slow = 'alertname="PrecisionNodeSlow"'
        begun_anew = prometheus.query(f"changes(ALERTS_FOR_STATE{{{slow}}}[100s])")
        firing = prometheus.query_range(f'ALERTS{{{slow},alertstate="firing"}}', begun + 25, time.time(), 1)
        away = begun + BEGINS + 2
        gap = prometheus.query_range('precision_node_slow{cluster="restarted"}', away, away + 2, 1)
    assert {(sample.labels["cluster"], sample.labels["alertname"]) for sample in fired} == {
        ("restarted", "PrecisionNodeSlow"),
        ("loop", "PrecisionExporterDown"),
        ("stuck", "PrecisionWatchStuck"),
    }
    assert [sample.value for sample in begun_anew] == [0.0]
    assert len(firing[0]["values"]) >= ENDS - 25
    assert gap == [], "with a marker nothing is left of a scrape that fails"
