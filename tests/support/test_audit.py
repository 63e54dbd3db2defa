"""The audit log is read while the API server writes it."""

import json
from pathlib import Path

import pytest

from tests.support.audit import requests

ENTRY = {"verb": "watch", "requestURI": "/api/v1/nodes"}
LINE = json.dumps(ENTRY).encode() + b"\n"


@pytest.mark.parametrize("written", range(len(LINE)))
def test_a_line_that_is_still_being_written_is_not_read_yet(tmp_path: Path, written: int) -> None:
    log = tmp_path / "audit.log"
    log.write_bytes(LINE + LINE[:written])
    assert requests(log) == [ENTRY]


def test_a_damaged_line_fails_the_test_that_reads_it(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    log.write_bytes(LINE[:-9] + b"\n" + LINE)
    with pytest.raises(json.JSONDecodeError):
        requests(log)
