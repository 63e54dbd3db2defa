"""The agent as a user whom /etc/passwd does not name, as containers start it."""

import getpass
import os
import pwd
from pathlib import Path

import pytest

from precision_agent.run import cli
from precision_agent.run.cli import settle_user

MINE = pwd.struct_passwd(("me", "x", 1000, 1000, "", "/nowhere/home", "/bin/sh"))


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user ID without an entry, and an environment that says nothing of it."""

    def unknown(uid: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME", "HOME"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def test_a_user_without_an_entry_has_a_name_and_a_home_that_can_be_written(nobody: None) -> None:
    with pytest.raises((KeyError, OSError)):
        getpass.getuser()
    settle_user(os.environ)
    assert getpass.getuser() == "precision"
    assert os.environ["USER"] == os.environ["LOGNAME"] == "precision"
    assert os.access(Path.home(), os.W_OK)


def test_the_program_settles_its_user_first_also_where_home_cannot_be_written(
    nobody: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(cli, "app", lambda: told.append(getpass.getuser()))
    cli.main()
    assert told == ["precision"]
    environment = {"HOME": "/"}
    monkeypatch.setattr(os, "access", lambda path, mode: path != "/")  # as it is for whoever is not root
    settle_user(environment)
    assert environment["HOME"] != "/"


@pytest.mark.parametrize("home", ["", "/nowhere", __file__], ids=["none", "missing", "a file"])
def test_a_home_that_is_of_no_use_gives_way(home: str, nobody: None) -> None:
    environment = {"HOME": home, "USER": "given", "LOGNAME": ""}
    settle_user(environment)
    assert environment["USER"] == "given"
    assert environment["LOGNAME"] == "precision"
    assert Path(environment["HOME"]).is_dir()
    assert environment["HOME"] != home
    (Path(environment["HOME"]) / f"precision-agent-{os.getpid()}").touch()
    (Path(environment["HOME"]) / f"precision-agent-{os.getpid()}").unlink()


def test_a_user_with_an_entry_keeps_name_and_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: MINE)
    environment = {"HOME": str(tmp_path)}
    settle_user(environment)
    assert environment == {"HOME": str(tmp_path), "USER": "me", "LOGNAME": "me"}
    environment = {"LOGNAME": "another", "USER": "another"}
    settle_user(environment)
    assert environment["USER"] == "another"
    assert environment["HOME"] != MINE.pw_dir  # it does not exist
