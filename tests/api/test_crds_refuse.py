"""What the API server refuses, that its message names the field and what to do, and that we refuse and say the same."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from precision_api.facts.names import PROFILE_PLURAL
from precision_api.facts.schema import Document
from precision_api.kinds.capacity_plan import PlanJob
from precision_api.kinds.profile import ProfileSpec
from tests.support.api_server import ApiServer
from tests.support.custom_resources import path, profile

FILE = yaml.load(Path(__file__).with_name("refused_profiles.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
INVALID: dict[str, tuple[dict[str, Any], list[str]]] = {
    name: (case["spec"], case["says"]) for name, case in FILE["cases"].items()
}
INVALID["too many names"] = (
    {"target": {"nodeNames": [f"n{i}" for i in range(1025)]}},
    ["spec.target.nodeNames", "must have at most 1024 items"],
)
CASES = pytest.mark.parametrize(("changes", "says"), INVALID.values(), ids=INVALID.keys())
RULES = {rule.message for document in Document.__subclasses__() for rule in document.RULES}


def spec_with(changes: dict[str, Any]) -> dict[str, Any]:
    """The smallest spec with other values of these fields (None: without it)."""
    return {key: item for key, item in (profile()["spec"] | changes).items() if item is not None}


@pytest.mark.cluster
@CASES
def test_an_invalid_profile_is_refused_with_field_and_remedy(
    changes: dict[str, Any], says: list[str], api: ApiServer
) -> None:
    body = profile() | {"spec": spec_with(changes)}
    code, answer = api.call("POST", path("default", PROFILE_PLURAL), body, dryRun="All", fieldValidation="Strict")
    assert code in (400, 422)
    assert [fragment for fragment in says if fragment not in answer["message"]] == []


@CASES
def test_the_models_refuse_the_same_and_a_rule_between_fields_in_the_same_words(
    changes: dict[str, Any], says: list[str]
) -> None:
    with pytest.raises(ValidationError) as refused:
        ProfileSpec.model_validate(spec_with(changes))
    said = {error["msg"].removeprefix("Value error, ") for error in refused.value.errors()}
    expected = {message for message in RULES if says[-1] in message}
    assert expected & said or not expected


def test_every_rule_between_fields_of_a_profile_is_broken_once() -> None:
    elsewhere = {"size must be above 0", *(rule.message for rule in PlanJob.RULES)}
    assert [rule for rule in RULES - elsewhere if not any(says[-1] in rule for _, says in INVALID.values())] == []
