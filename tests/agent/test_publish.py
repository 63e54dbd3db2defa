"""What is written where, and in which order."""

import io
from pathlib import Path

import pytest

from precision_agent.run.publish import TERMINATION_LOG_ENV, Places, checkpoint, places, publish, replace_file
from precision_agent.run.run import Outcome, run_request
from precision_api.exchange.result import MeasurementResult
from precision_api.exchange.wire import read_message
from tests.support.result_objects import request_text


def outcome() -> Outcome:
    return run_request(request_text(), "replay")


def test_the_message_is_written_in_place_where_the_environment_says(tmp_path: Path) -> None:
    assert places({TERMINATION_LOG_ENV: str(tmp_path / "m")}, None).message == tmp_path / "m"
    message = tmp_path / "termination-log"
    message.write_text("x" * 10_000)
    inode = message.stat().st_ino
    sent = outcome()
    publish(sent, Places(message, None), io.BytesIO())
    assert message.read_bytes() == sent.message
    assert message.stat().st_ino == inode


def test_the_log_ends_with_lines_of_their_own_or_with_none() -> None:
    stdout, sent = io.BytesIO(), outcome()
    stdout.write(b"progress without a newline")
    publish(sent, Places(None, None), stdout)
    assert stdout.getvalue().decode().splitlines()[1:] == list(sent.lines)
    stdout = io.BytesIO()
    publish(outcome(), Places(None, None), stdout, lines=False)
    assert stdout.getvalue() == b""


def test_the_file_holds_the_whole_result_and_a_checkpoint_only_the_summary(tmp_path: Path) -> None:
    sent = outcome()
    publish(sent, Places(None, tmp_path / "out.json"), io.BytesIO())
    assert MeasurementResult.model_validate_json((tmp_path / "out.json").read_bytes()) == sent.result
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]
    checkpoint(outcome(), Places(tmp_path / "m", None))
    assert read_message((tmp_path / "m").read_bytes()).run == "r1"


def test_a_failed_replacement_leaves_the_old_file_and_no_rest(tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    (target / "inside").mkdir(parents=True)
    with pytest.raises(OSError):
        replace_file(target, b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]
