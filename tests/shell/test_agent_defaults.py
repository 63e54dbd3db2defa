"""What agents get where their profile says nothing."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from precision_api.kinds.profile import ProfileSpec
from precision_operator.__main__ import arguments
from precision_operator.core.observe.configuration import AgentDefaults, filled
from precision_operator.core.observe.views import with_operator_defaults
from precision_operator.shell.settings import OURS, configured_by, configured_in, operator_of
from tests.support.golden import beside
from tests.support.world import SETTINGS, profile

TABLES = beside(__file__)

GOLDEN = Path(__file__).parents[1] / "golden"
RACK = {"key": "rack", "operator": "Exists"}
DEFAULTS = AgentDefaults.model_validate({"queueName": "profiling", "runtimeClassName": "nvidia", "tolerations": [RACK]})


def spec(**agent: object) -> ProfileSpec:
    return ProfileSpec.model_validate({"workload": {"preset": "llama3-8b"}, "agent": agent})


def test_a_profile_gets_the_defaults_unless_it_says_something() -> None:
    agent = filled(spec(), DEFAULTS).agent
    assert (agent.queue_name, agent.runtime_class_name) == ("profiling", "nvidia")
    assert [toleration.key for toleration in agent.tolerations] == ["rack"]
    own = {"key": "team", "operator": "Equal", "value": "a"}
    agent = filled(spec(queueName="mine", runtimeClassName="other", tolerations=[own, RACK]), DEFAULTS).agent
    assert (agent.queue_name, agent.runtime_class_name) == ("mine", "other")
    assert [toleration.key for toleration in agent.tolerations] == ["team", "rack"]
    assert filled(spec(queueName="mine"), AgentDefaults()) == spec(queueName="mine")


def test_the_operator_reads_them_from_its_command_line_as_others_do() -> None:
    told = arguments(["--watch-namespaces=a", '--agent-defaults={"queueName":"profiling"}'])
    assert configured_by(told).settings.agent_defaults == AgentDefaults(queue_name="profiling")
    seen = configured_in(deployment(*EVERYTHING, "--leader-elect", "--host=0.0.0.0", "--lease-name", "x"))
    assert seen == configured_by(arguments(EVERYTHING))
    assert seen.namespaces == ("a", "b")
    assert seen.settings.agent_defaults == AgentDefaults(queue_name="profiling")


def test_a_profile_is_served_with_them_and_one_that_cannot_be_read_stays_as_it_is() -> None:
    settings = replace(SETTINGS, agent_defaults=DEFAULTS)
    own = with_operator_defaults(profile(), settings)
    assert own.spec.agent.queue_name == "profiling"
    assert replace(own, spec=profile().spec) == profile()
    assert with_operator_defaults(profile(problem="spec: x"), settings) == profile(problem="spec: x")


def deployment(*args: str) -> dict[str, object]:
    """The operator's, as the chart has it: one container, with these arguments."""
    return {"spec": {"template": {"spec": {"containers": [{"name": "operator", "args": list(args)}]}}}}


EVERYTHING = TABLES["everything"]


@pytest.mark.parametrize("chart", ["chart_default", "chart_everything", "chart_many_namespaces"])
def test_the_charts_own_deployment_is_found_and_read(chart: str) -> None:
    rendered = [item for item in yaml.load_all((GOLDEN / f"{chart}.yaml").read_text(), yaml.CSafeLoader) if item]
    ours = [item for item in rendered if tuple(OURS.split("=")) in item["metadata"].get("labels", {}).items()]
    (name,) = {operator_of(item) for item in ours if item["kind"] == "ClusterRoleBinding"} - {None}
    deployments = {(d["metadata"]["namespace"], d["metadata"]["name"]): d for d in ours if d["kind"] == "Deployment"}
    only = configured_in(deployments[name])
    assert only.namespaces
    assert only.settings.agent_image
    assert (only.settings.agent_defaults != AgentDefaults()) is (chart == "chart_everything")


@pytest.mark.parametrize("args", [(), ("--watch-namespaces=a", '--agent-defaults={"newer":1}')])
def test_a_deployment_of_another_version_is_no_end_of_the_program_that_looks(args: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"watch-namespaces|agent-defaults"):
        configured_in(deployment(*args))


@pytest.mark.parametrize("text", ["{", '{"queue": "x"}', '{"tolerations": [{"operator": "Exists"}]}'])
def test_defaults_nobody_means_end_the_operator_with_a_sentence(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        arguments(["--watch-namespaces=a", f"--agent-defaults={text}"])
    assert "--agent-defaults" in capsys.readouterr().err
