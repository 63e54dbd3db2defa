"""What a spec may hold: as strict as the API server, and told in words."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from typer.testing import CliRunner

from precision_api.facts.names import PLAN_KIND, PROFILE_KIND
from precision_api.kinds.capacity_plan import PlanSpec
from precision_api.kinds.profile import ProfileSpec
from precision_operator.cli import app
from precision_operator.cli.allowed import strictly
from precision_operator.cli.terminal import sentences
from tests.cli.test_dry_run import nodes_file, profile_file
from tests.support.node_objects import node_object

MODELS = {PROFILE_KIND: ProfileSpec, PLAN_KIND: PlanSpec}
NUMBER_OR_PERCENT = 'write a number of nodes from 1 on, or a per cent from "1%" to "100%"'
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "text for a boolean": ({"suspend": "yes"}, "spec.suspend: write true or false, without quotes, not 'yes'"),
    "a number for a boolean": ({"suspend": 1}, "spec.suspend: write true or false, without quotes, not 1"),
    "text for a number": (
        {"rollout": {"retry": {"limit": "2"}}},
        "spec.rollout.retry.limit: write a whole number, without quotes, not '2'",
    ),
    "a number for text": (
        {"agent": {"resources": {"cpu": 4}}},
        "spec.agent.resources.cpu: this is text: write it in quotes, not 4",
    ),
    "no number and no per cent": (
        {"rollout": {"maxConcurrent": "10 percent"}},
        f"spec.rollout.maxConcurrent: {NUMBER_OR_PERCENT}, not '10 percent'",
    ),
    "none, where there may be nothing": (
        {"rollout": {"maxFailures": 0}},
        f"spec.rollout.maxFailures: {NUMBER_OR_PERCENT}, not 0",
    ),
    "days in words": (
        {"schedule": {"maxAge": "30 days"}},
        "spec.schedule.maxAge: write a number and one unit (s, m, h or d), for example 24h, not '30 days'",
    ),
    "longer than any": (
        {"schedule": {"maxAge": "30 days at most"}},
        "spec.schedule.maxAge: write a number and one unit (s, m, h or d), for example 24h, not '30 days at most'",
    ),
    "wrong in 200 places": (
        {"target": {"nodeNames": [{}] * 200}},
        "spec: it has too many elements, or too many of them are wrong",
    ),
}


@pytest.mark.parametrize(("spec", "said"), WRONG.values(), ids=WRONG)
def test_what_the_api_server_refuses_is_refused_in_one_line_that_says_what_to_write(
    tmp_path: Path, spec: dict[str, Any], said: str
) -> None:
    path, nodes = profile_file(tmp_path, **spec), nodes_file(tmp_path, node_object())
    done = CliRunner().invoke(app, ["dry-run", "-f", path, "--nodes", nodes])
    assert (done.exit_code, done.stdout, done.stderr) == (2, "", f"error: {said}\n")


def test_more_wrong_values_than_a_few_are_counted() -> None:
    with pytest.raises(ValidationError) as refused:
        ProfileSpec.model_validate({"target": {"nodeNames": [{}] * 200}})
    assert sentences(refused.value, "spec") == "spec: 201 things are wrong"


def test_every_example_is_taken_strictly() -> None:
    files = sorted((Path(__file__).parents[2] / "examples").rglob("*.yaml"))
    found = [each for path in files for each in yaml.load_all(path.read_text(), yaml.CSafeLoader) if each]
    specs = [(MODELS[each["kind"]], each["spec"]) for each in found if each.get("kind") in MODELS]
    assert {model for model, _ in specs} == {ProfileSpec, PlanSpec}
    for model, spec in specs:
        strictly(model, spec)
