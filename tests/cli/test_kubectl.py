"""The way to the cluster: kubectl is started with the user's options, and ends however the plugin ends."""

import os
import re
import stat
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import pytest

from precision_operator.cli import COMMANDS
from tests.cli.api import Api, stand_in
from tests.cli.test_conventions import ARGUMENTS, OF_THE_AGENT, WRITES_A_FILE, a_world
from tests.support.eventually import eventually


def process(*words: str, python: tuple[str, ...] = (), **more: str) -> "subprocess.Popen[str]":
    """`kubectl-precision WORDS`, as a process of its own."""
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path)), **more)
    command = [sys.executable, *python, "-c", "from precision_operator.cli import main; main()", *words]
    return subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - {"plan", *OF_THE_AGENT}))
def test_no_command_but_plan_imports_what_plans_need(name: str, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    a_world(api)
    monkeypatch.chdir(api.folder)
    output = ("-o", f"{name}.tar.gz") if name in WRITES_A_FILE else ()
    with process(name, *ARGUMENTS.get(name, ()), *output, python=("-X", "importtime")) as running:
        _, err = running.communicate(timeout=60)
    imported = set(re.findall(r"^import time: .*\| +(\w+)$", err, re.MULTILINE))
    assert "precision_operator" in imported
    assert imported & {"kubernetes", "aiohttp", "requests", "numpy", "ortools", "kopf"} == set()


def test_without_kubectl_one_sentence_says_so(api: Api) -> None:
    with patch.dict(os.environ, PATH=""):
        done = api.run("status")
    words = "kubectl is not on the PATH: install it, since the plugin asks the cluster through it"
    assert (done.exit_code, done.stdout, done.stderr) == (6, "", f"error: {words}\n")


def test_what_kubectl_and_a_login_say_is_shown(api: Api) -> None:
    api.profiles()
    program = (api.folder / "kubectl").read_text()
    stand_in(api.folder, program.replace("exec sleep", "echo Visit https://login.test >&2; exec sleep"))
    done = api.run("status")
    assert (done.exit_code, done.stderr) == (0, "Visit https://login.test\n")
    stand_in(api.folder, "#!/bin/sh\necho 'error: context \"x\" does not exist' >&2; exit 1\n")
    done = api.run("status", "--context=x")
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", 'error: context "x" does not exist\n')
    stand_in(api.folder, "#!/bin/sh\nexec sleep 600\n")
    done = api.run("status", "--request-timeout=0.1")
    assert (done.exit_code, done.stderr) == (1, "error: no kubectl proxy in 0.1 s. Try kubectl version.\n")


@pytest.mark.parametrize(("letters", "mode"), [(90, 0o700), (9, 0o777)], ids=["a long path", "others may write"])
def test_kubectl_gets_the_options_and_ends_with_its_login_when_the_plugin_is_killed(
    api: Api, letters: int, mode: int
) -> None:
    api.profiles()
    login, program = api.folder / "login", (api.folder / "kubectl").read_text()
    stand_in(api.folder, program.replace("ln -s", f'sleep 600 & echo -n $! > "{login}"; ln -s'))
    (unfit := api.folder / ("x" * letters)).mkdir()  # a socket's path has a hundred characters
    unfit.chmod(mode)
    options = ("--context=c", "--kubeconfig=k", "--as=jane", "--token=t")
    plugin = process("status", "--watch", "--request-timeout=0", *options, TMPDIR=str(unfit))
    with plugin as running, ExitStack() as ending:
        ending.callback(running.kill)
        assert running.stdout is not None
        assert "There is no profile" in running.stdout.readline()
        *_, proxy = (api.folder / "kubectl.log").read_text().splitlines()
        address = Path(re.findall("--unix-socket=(.*?) ", proxy)[0])
        assert proxy.endswith(" ".join((*options, "--request-timeout=86400s")))
        assert (address.parent.parent, stat.S_IMODE(address.parent.stat().st_mode)) == (Path("/tmp"), 0o700)
        assert (running_login := Path(f"/proc/{login.read_text()}/exe")).exists()
    assert eventually(lambda: not address.parent.exists() and not running_login.exists())
