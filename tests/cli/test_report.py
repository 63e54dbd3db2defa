"""`report`: what it writes of a profile, a node and a file, and what it says where there is nothing."""

import base64
import gzip
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from precision_api.exchange.result import MeasurementResult
from precision_api.facts.names import detail_name
from precision_operator.cluster import paths
from tests.cli.api import Api
from tests.cli.test_status_and_nodes import measured, story
from tests.report.sample import full_result
from tests.support.golden import beside
from tests.support.report_objects import profile_object, report_object

TABLES = beside(__file__)


def with_detail(api: Api, report: dict[str, Any], found: MeasurementResult) -> dict[str, Any]:
    """The report, its full result in a ConfigMap as the operator keeps it."""
    name = detail_name(report["metadata"]["name"])
    packed = gzip.compress(found.model_dump_json(by_alias=True, exclude_none=True).encode(), mtime=0)
    data = {"metadata": {"name": name}, "binaryData": {"result.json.gz": base64.b64encode(packed).decode()}}
    api.objects[paths.item(paths.config_maps("ml"), name)] = data
    report["status"]["run"]["detail"] = name
    return report


def written(api: Api, tmp_path: Path, *words: str) -> str:
    path = tmp_path / "page.html"
    done = api.run("report", *words, "-o", str(path))
    assert (done.exit_code, done.stdout) == (0, ""), done.stderr
    return path.read_text()


def test_the_page_of_a_profile_has_its_fleet_and_the_detail_of_a_typical_node(api: Api, tmp_path: Path) -> None:
    api.profiles(profile_object())
    api.reports(*(with_detail(api, measured(f"n{i}", 1e5 + i), full_result(node=f"n{i}")) for i in range(5)))
    page = written(api, tmp_path, "nightly")
    for words in ("Profile ml/nightly", "On NVIDIA-GB200 (5 nodes) nvfp4 trains fastest", "Nodes of NVIDIA-GB200"):
        assert words in page
    assert "Node n2 in figures" in page, "the node in the middle"


def test_the_page_of_a_node_has_its_detail_and_prices(api: Api, tmp_path: Path) -> None:
    api.profiles(profile_object())
    api.reports(with_detail(api, measured("n0"), full_result(node="n0")), measured("n1"))
    page = written(api, tmp_path, "node/n0", "--price", "3")
    assert "Node n0, profile ml/nightly" in page
    assert "Matrix multiplications of one layer" in page
    assert "Dollars per million tokens" in page


def test_the_page_of_a_slow_node_says_so_and_names_its_peers(api: Api, tmp_path: Path) -> None:
    story(api)
    page = unescape(written(api, tmp_path, "node/slow"))
    assert "slow is slow: 73.3% of its peers' rate, " in page
    assert "110,000 against 150,000 tokens/s at the pace of the slowest GPU" in page
    assert page.index("slow is slow:") < page.index("trains fastest")
    assert "comparable nodes (itself, blind, good-0, good-1, 3 more; " in page
    good = written(api, tmp_path, "node/good-0")
    assert "good-0 gives 99.9% of the median of its peers in NVIDIA-GB200: it is not slow." in good


def test_a_saved_result_needs_no_cluster_and_its_page_may_go_to_stdout(api: Api, tmp_path: Path) -> None:
    saved = tmp_path / "result.json"
    saved.write_text(full_result().model_dump_json(by_alias=True))
    api.reachable = False
    assert "Node node-1" in written(api, tmp_path, str(saved))
    assert api.run("report", str(saved), "-o", "-").stdout.startswith("<!doctype html>")


def test_without_a_full_result_that_can_be_read_the_page_stands_and_says_why(api: Api, tmp_path: Path) -> None:
    api.profiles(profile_object())
    api.reports(hurt := with_detail(api, measured("n0"), full_result()))
    held = api.objects[paths.item(paths.config_maps("ml"), hurt["status"]["run"]["detail"])]
    bomb = base64.b64encode(gzip.compress(b"0" * (9 << 20))).decode()
    name = "result.json.gz"
    for packed, words in (("AAAA", "is not gzip"), ("?", "not base64"), (bomb, "too large"), ("", f"has no {name}")):
        held["binaryData"] = {name: packed} if packed else {}
        page = written(api, tmp_path, "node/n0")
        assert (words in page, "Training speedup" in page, 'id="gemms"' in page) == (True, True, False)


@pytest.mark.parametrize(("words", "code", "said"), TABLES["wrong"].values(), ids=TABLES["wrong"])
def test_what_cannot_be_told_says_why(api: Api, words: tuple[str, ...], code: int, said: str) -> None:
    story(api)
    done = api.run(*words)
    assert (done.exit_code, done.stdout) == (code, "")
    assert said in done.stderr


def test_a_name_that_is_a_profile_and_a_node_must_be_told_apart(api: Api, tmp_path: Path) -> None:
    api.profiles(profile_object("n0"))
    api.reports(report_object("n0", profile="n0"))
    done = api.run("report", "n0")
    assert (done.exit_code, "write pp/n0 or node/n0" in done.stderr) == (2, True)
    assert "Profile ml/n0" in written(api, tmp_path, "pp/n0")


def test_a_profile_that_has_only_failed_on_a_node_has_no_results_of_it(api: Api, tmp_path: Path) -> None:
    failed = {"run": "r1", "number": 1, "outcome": "failed", "reason": "AgentCrashed", "finishedAt": "t"}
    api.profiles(profile_object(), profile_object("gone"), profile_object("maxf"))
    api.reports(
        report_object("n0", profile="gone", status={"attempt": failed, "state": "Failed"}),
        report_object("n0", profile="maxf"),
    )
    assert "profile ml/maxf" in written(api, tmp_path, "node/n0")
    api.reports(report_object("n0"))
    told = api.run("report", "node/n0").stderr
    assert "n0 has results of the profiles maxf, nightly: name one with --profile" in told
