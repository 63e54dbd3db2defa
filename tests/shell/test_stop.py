"""An admin's stop: said by kubectl, heard within seconds, told in every profile, and lifted the same way."""

import argparse
from typing import Any

import pytest

from precision_operator.cli.gathering import stop_told
from precision_operator.cluster import ApiError
from precision_operator.core.observe.stop import Stop, stop_in, strictest
from precision_operator.core.observe.views import profile_view
from precision_operator.shell.settings import add_settings, configured_by
from precision_operator.shell.switch import Switch
from tests.support.golden import beside
from tests.support.operator_in_memory import PROFILES, REPORTS, STOP, SYSTEM, OperatorInMemory

TABLES = beside(__file__)

NODES = ("n1", "n2", "n3")
WORDS = "rack 12 is too hot, ask facilities (INC-4711)"


@pytest.fixture
async def loop() -> OperatorInMemory:
    """Of three nodes two have agents that run, one waits for its turn; another profile has nothing to do."""
    loop = OperatorInMemory(*NODES)
    loop.apply("nightly", rollout={"maxConcurrent": 2})
    await loop.begin("elsewhere", target={"nodeNames": ["nowhere"]})
    loop.run_agents()
    return loop


def attempts(loop: OperatorInMemory) -> dict[str, tuple[str, str]]:
    """How the newest attempt on each node ended, and why."""
    found = [body for path, body in loop.cluster.objects.items() if path.startswith(f"{REPORTS}/")]
    ended = {body["spec"]["nodeName"]: (body.get("status") or {}).get("attempt") for body in found}
    return {node: (row["outcome"], row["reason"]) for node, row in ended.items() if row}


async def test_held_agents_finish_and_none_starts(loop: OperatorInMemory) -> None:
    loop.say(agents="Hold", message=WORDS)
    loop.end_agent("n1")
    await loop.once()
    await loop.once()
    assert loop.measured() == ["n1"]
    assert sorted(loop.jobs()) == ["n2"], "it runs, and may finish; n3 does not start"


async def test_an_agent_that_has_not_begun_is_held_too() -> None:
    loop = OperatorInMemory("n1")
    await loop.begin("nightly")
    loop.say(agents="Hold", message=WORDS)
    await loop.once()
    assert loop.jobs() == {}
    assert attempts(loop) == {"n1": ("disrupted", "StoppedByAdmin")}


async def test_ended_agents_give_their_nodes_back_and_it_costs_no_retry(loop: OperatorInMemory) -> None:
    loop.say(agents="End", message=WORDS)
    await loop.once()
    await loop.once()
    assert loop.jobs() == {}
    assert attempts(loop) == dict.fromkeys(("n1", "n2"), ("disrupted", "StoppedByAdmin"))
    assert loop.status("nightly")["nodes"]["failed"] == 0


@pytest.mark.parametrize("mode", ["Hold", "End"])
async def test_profiles_tell_the_admins_words_as_do_an_event_and_a_metric(loop: OperatorInMemory, mode: str) -> None:
    loop.say(agents=mode, message=WORDS)
    await loop.once()
    for name in ("nightly", "elsewhere"):
        stopped = loop.condition(name, "Stopped")
        assert (stopped["status"], stopped["reason"]) == ("True", mode)
        assert stopped["message"] == f"{WORDS} (said in ConfigMap {SYSTEM}/{STOP})"
        progressing = loop.condition(name, "Progressing")
        assert (progressing["status"], progressing["reason"]) == ("False", "StoppedByAdmin")
        assert WORDS in progressing["message"]
        events = [body for path, body in loop.cluster.objects.items() if f"/events/{name}." in path]
        assert [event["type"] for event in events if WORDS in event["message"]] == ["Warning"]
    row = next(row for row in loop.status("nightly")["reasons"] if row["reason"] == "StoppedByAdmin")
    assert WORDS in row["message"]
    assert loop.status("nightly")["waitsFor"].startswith("StoppedByAdmin")
    assert loop.condition("elsewhere", "Complete")["status"] == "True", "there is nothing to hold up"
    assert loop.metric("precision_operator_stopped", mode=mode) == 1


async def test_once_it_is_lifted_agents_start_and_the_condition_says_so(loop: OperatorInMemory) -> None:
    loop.say(agents="End", message=WORDS)
    await loop.once()
    loop.collect_garbage()
    loop.say_nothing()
    await loop.once()
    assert "n3" in loop.jobs(), "the others rest for a moment after their disruption"
    stopped = loop.condition("nightly", "Stopped")
    assert (stopped["status"], stopped["reason"], stopped["message"]) == ("False", "Run", "Agents may start.")
    assert loop.metric("precision_operator_stopped", mode="End") == 0


async def test_without_a_name_there_is_no_switch_and_nothing_is_said(loop: OperatorInMemory) -> None:
    assert "Stopped" not in {row["type"] for row in loop.status("nightly")["conditions"]}
    loop = OperatorInMemory()
    assert Switch(loop.cluster, SYSTEM, "", lambda: None).stop is None


@pytest.mark.parametrize("data", [{}, {"agents": "hodl"}, {"agent": "End"}, {"agents": ""}])
async def test_a_switch_that_nobody_understands_holds_and_says_what_is_wrong(data: dict[str, str]) -> None:
    loop = OperatorInMemory(*NODES)
    loop.apply("nightly")
    loop.say(**data)
    await loop.once()
    assert loop.jobs() == {}
    assert "none of Run, Hold, End" in loop.condition("nightly", "Stopped")["message"]
    assert loop.metric("precision_operator_stop_garbled") == 1


async def test_a_switch_that_nobody_understands_takes_no_job_back() -> None:
    loop = OperatorInMemory(*NODES)
    await loop.begin("nightly")
    loop.say(agents="hodl")
    await loop.once()
    assert sorted(loop.jobs()) == ["n1"]


async def test_a_stop_survives_a_restart_and_nothing_starts_before_the_switch_was_read(loop: OperatorInMemory) -> None:
    loop.say(agents="Hold", message=WORDS)
    fresh = OperatorInMemory()
    fresh.cluster.objects = loop.cluster.objects
    assert fresh.switch.stop is not None, "not read yet: nothing may start"
    await fresh.once()
    assert (fresh.switch.stop.words, sorted(fresh.jobs())) == (WORDS, ["n1", "n2"])


async def test_while_the_switch_cannot_be_read_what_it_said_last_holds() -> None:
    loop, woken = OperatorInMemory(), []
    switch = Switch(loop.cluster, SYSTEM, STOP, lambda: woken.append(1))
    loop.cluster.fail("GET", STOP, ApiError(403, "Forbidden", "may not get configmaps"))
    await switch.look()
    assert "may not get configmaps" in switch.stop.words
    await switch.look()
    assert switch.stop is None
    loop.cluster.fail("GET", STOP, ApiError(500, "InternalError", "etcd is not well"))
    await switch.look()
    assert switch.stop is None, "it said nothing"
    assert len(woken) == 2, "the loop is woken when it says something else, and only then"


async def test_users_who_may_not_read_the_switch_learn_of_it_from_any_profile(loop: OperatorInMemory) -> None:
    loop.say(agents="End", message=WORDS)
    await loop.once()
    profile = profile_view(loop.cluster.objects[f"{PROFILES}/elsewhere"])
    assert stop_told(profile) == Stop("End", WORDS, f"ConfigMap {SYSTEM}/{STOP}")


def declared(*argv: str) -> Stop | None:
    parser = argparse.ArgumentParser()
    add_settings(parser)
    return configured_by(parser.parse_args(["--watch-namespaces=ml", *argv])).settings.stop


@pytest.mark.parametrize(("chart", "config_map", "mode"), TABLES["stricter"])
def test_of_chart_and_config_map_the_stricter_holds(chart: str, config_map: Any, mode: str | None) -> None:
    found = strictest(declared(f"--stop={chart}", "--stop-message=maintenance"), stop_in(config_map, "ConfigMap a/b"))
    assert (found.mode if found else None) == mode
