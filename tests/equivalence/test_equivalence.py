"""The comparison of two versions is alive: a version equals itself, and a planted difference is seen."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.equivalence import layouts, outputs, worlds
from tests.equivalence.comparison import differences
from tests.equivalence.coverage import counts
from tests.equivalence.versions import PACKAGES, REPOSITORY

SIZE = ["--worlds", "20", "--passes", "10", "--least", "0"]
ROW = {"world": 3, "step": 1, "profiles": [{"status": {"pools": [{"speedup": "1.2"}]}}], "actions": []}


def lines(*rows: object) -> list[str]:
    return [json.dumps(row) for row in rows]


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A copy of the product in which one sentence of the table of reasons is another."""
    copy = tmp_path / "planted"
    for folder in (*PACKAGES, "tests/support"):
        shutil.copytree(REPOSITORY / folder, copy / folder)
    shutil.copy(REPOSITORY / "pyproject.toml", copy)
    reasons = next((copy / "operator").rglob("reasons/nodes.py"))
    text = reasons.read_text()
    assert "the node is cordoned" in text
    reasons.write_text(text.replace("the node is cordoned", "the node is closed"))
    return copy


def test_a_version_gives_the_same_as_itself_over_worlds_in_which_most_things_happen(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert worlds.main(["--old", str(REPOSITORY), "--new", str(REPOSITORY), *SIZE]) == 0
    printed = capsys.readouterr().out
    assert "0 differences in 20 worlds of 10 passes" in printed
    table = [line.split("|") for line in printed.splitlines() if line.startswith("|") and line.count("|") == 4]
    seen = {row[1].strip() for row in table if row[3].strip().isdigit() and int(row[3]) > 0}
    assert len(seen) > 70, seen


def test_another_sentence_is_seen_where_it_is_written(planted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--worlds", "5", "--passes", "10", "--least", "0"]
    assert worlds.main(["--old", str(REPOSITORY), "--new", str(planted), *few]) == 1
    printed = capsys.readouterr().out
    assert "The node is cordoned" in printed
    assert "The node is closed" in printed


def test_a_changed_value_is_named_by_world_step_and_path() -> None:
    other = json.loads(json.dumps(ROW))
    other["profiles"][0]["status"]["pools"][0]["speedup"] = "1.4"
    (found,) = differences(lines(ROW, ROW), lines(ROW, other))
    assert str(found) == 'world 3 step 1: profiles[0].status.pools[0].speedup: "1.2" -> "1.4"'
    assert found.is_allowed(["profiles.status.pools.*"])
    assert not found.is_allowed(["profiles.status.conditions.*"])


@pytest.mark.parametrize(
    "change", [{"actions": [1]}, {"more": None}, {"step": True}], ids=["longer", "new key", "type"]
)
def test_every_kind_of_change_is_a_difference(change: dict[str, object]) -> None:
    assert len([*differences(lines(ROW), lines(ROW | change))]) == 1


def test_a_stream_that_ends_early_is_a_difference() -> None:
    assert len([*differences(lines(ROW, ROW), lines(ROW))]) == 1


def test_a_reason_that_only_a_conditions_message_shows_is_counted() -> None:
    table = [["NoNodesMatch", "profile", "none of the cluster's {nodes} nodes matches spec.target", "Compare it."]]
    message = "None of the cluster's 4 nodes matches spec.target. Compare it."
    row = {"profiles": [{"status": {"conditions": [{"message": message}]}}]}
    assert counts([row], table)["NoNodesMatch"] == 1
    assert counts([{}], table)["NoNodesMatch"] == 0


def test_a_name_that_is_nowhere_says_which_table_to_extend() -> None:
    with pytest.raises(layouts.Unplaced, match="extend FIELDS in"):
        layouts.field(object(), "stands")


def test_outputs_are_compared_byte_by_byte(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for side, text in ((old, "a\nb\n"), (new, "a\nc\n")):
        side.mkdir()
        (side / "same.txt").write_text("same")
        (side / "other.txt").write_text(text)
    assert outputs.compared(old, new, ()) == 1
    assert "\n-b\n+c\n" in capsys.readouterr().out
    assert outputs.compared(old, new, ("other.*",)) == 0
    (new / "same.txt").unlink()
    assert outputs.compared(old, new, ("other.*",)) == 1
