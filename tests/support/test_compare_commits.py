"""The comparison of two commits is alive: a tree equals itself, and a planted difference is named."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from precision_operator.core.reasons import REASONS
from tests.support import compare_commits
from tests.support.compare_commits import REPOSITORY, differences, play
from tests.support.random_worlds import grow

ROW = {"world": "1/3", "pass": 1, "profiles": [{"status": {"pools": [{"speedup": "1.2"}]}}], "actions": []}
REASONS_SEEN = 60
"""How many reasons twenty worlds must show at least: a comparison shows only what occurs."""


def test_another_sentence_is_named_where_it_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("crds", "operator", "agent", "lab", "tests/support"):
        shutil.copytree(REPOSITORY / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    reasons = next((tmp_path / "operator").rglob("reasons/reasons.json"))
    text = reasons.read_text()
    assert "the node is cordoned" in text
    reasons.write_text(text.replace("the node is cordoned", "the node is closed"))
    assert compare_commits.main(["--old", str(REPOSITORY), "--new", str(tmp_path), "--worlds", "5"]) == 1
    printed = capsys.readouterr().out
    assert {"The node is cordoned", "The node is closed"} <= set(re.findall(r"The node is \w+", printed))
    named = {line.rpartition(".")[2] for line in printed.splitlines() if " x ." in line}
    assert named == {"message"}, "what was not changed is not named"


def test_twenty_worlds_show_most_reasons_and_no_pass_fails() -> None:
    rows = [row for number in range(20) for row in play([json.dumps(grow(f"1/{number}", 10))])]
    assert not [row["error"] for row in rows if "error" in row]
    assert len(set(_reasons(rows)) & REASONS.keys()) >= REASONS_SEEN


def _reasons(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from [value["reason"]] if isinstance(value.get("reason"), str) else []
        yield from _reasons([*value.values()])
    elif isinstance(value, list):
        for item in value:
            yield from _reasons(item)


@pytest.mark.parametrize(
    "new",
    [[ROW], [ROW, ROW | {"actions": [1]}], [ROW, ROW | {"more": None}], [ROW, ROW | {"pass": True}]],
    ids=["shorter", "longer list", "new key", "other type"],
)
def test_every_kind_of_change_is_a_difference(new: list[dict[str, Any]]) -> None:
    assert len([*differences(map(json.dumps, [ROW, ROW]), map(json.dumps, new))]) == 1
    assert not [*differences(map(json.dumps, [ROW]), map(json.dumps, [ROW]))]
