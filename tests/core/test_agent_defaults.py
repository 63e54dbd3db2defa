"""What agents get where their profile says nothing."""

from __future__ import annotations

import pytest

from precision_api.profile import ProfileSpec
from precision_operator.__main__ import arguments, settings_of
from precision_operator.core.agent_defaults import AgentDefaults, filled

RACK = {"key": "rack", "operator": "Exists"}
DEFAULTS = AgentDefaults.model_validate({"queueName": "profiling", "runtimeClassName": "nvidia", "tolerations": [RACK]})


def spec(**agent: object) -> ProfileSpec:
    return ProfileSpec.model_validate({"workload": {"preset": "llama3-8b"}, "agent": agent})


def test_a_profile_that_says_nothing_gets_the_defaults() -> None:
    agent = filled(spec(), DEFAULTS).agent
    assert (agent.queue_name, agent.runtime_class_name) == ("profiling", "nvidia")
    assert [toleration.key for toleration in agent.tolerations] == ["rack"]


def test_what_a_profile_says_wins_and_tolerations_add_up() -> None:
    own = {"key": "team", "operator": "Equal", "value": "a"}
    agent = filled(spec(queueName="mine", runtimeClassName="other", tolerations=[own, RACK]), DEFAULTS).agent
    assert (agent.queue_name, agent.runtime_class_name) == ("mine", "other")
    assert [toleration.key for toleration in agent.tolerations] == ["team", "rack"]


def test_without_defaults_a_spec_is_what_it_was() -> None:
    assert filled(spec(queueName="mine"), AgentDefaults()) == spec(queueName="mine")


def test_the_operator_reads_them_from_its_command_line() -> None:
    told = arguments(["--watch-namespaces=a", '--agent-defaults={"queueName":"profiling"}'])
    assert settings_of(told).agent_defaults == AgentDefaults(queue_name="profiling")


@pytest.mark.parametrize("text", ["{", '{"queue": "x"}', '{"tolerations": [{"operator": "Exists"}]}'])
def test_defaults_that_can_not_be_meant_end_the_operator_with_a_sentence(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        arguments(["--watch-namespaces=a", f"--agent-defaults={text}"])
    assert "--agent-defaults" in capsys.readouterr().err
