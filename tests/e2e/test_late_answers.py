"""An admission webhook of one namespace that answers late holds up the statuses of that namespace, and no others."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from precision_lab.cluster.webhook import STATUSES, webhook
from precision_lab.lab import KubectlError
from tests.support.eventually import eventually
from tests.support.refusing import REFUSING
from tests.support.site import Scene, Site, specs

pytestmark = pytest.mark.cluster

NAME = "late"
PROBE = "probe"
PATIENCE_SECONDS = 30
"""The longest that the API server waits for a webhook."""


@dataclass(frozen=True)
class Reviewer:
    """Answers no review before `answers` is set, and then allows every status."""

    answers: threading.Event = field(default_factory=threading.Event)
    asked: Counter[str] = field(default_factory=Counter)
    """How often for each object, by its name."""

    def __call__(self, body: Mapping[str, Any]) -> None:
        self.asked[body["metadata"]["name"]] += 1
        self.answers.wait(PATIENCE_SECONDS)


@pytest.fixture
def reviewer(site: Site, tmp_path: Path) -> Iterator[Reviewer]:
    """In force in the other namespace."""
    lab, reviewer = site.lab, Reviewer()
    with ExitStack() as ends:
        hook = ends.enter_context(webhook(tmp_path, reviewer))
        ends.callback(lab.kubectl, "delete", "validatingwebhookconfiguration", NAME)
        ends.callback(reviewer.answers.set)
        lab.apply(hook.configuration(NAME, REFUSING, {}, STATUSES, PATIENCE_SECONDS))
        yield reviewer


@pytest.fixture
def theirs(site: Site) -> Iterator[Scene]:
    """Another namespace, with a profile that the webhook is tried with."""
    corner = Scene(replace(site, namespace=REFUSING))
    corner.apply(PROBE, suspend=True)
    corner.add_nodes(*specs(2, products=("H100",)))
    yield corner
    corner.close()


def is_held_up(scene: Scene) -> bool:
    """Whether the status of the probe has no answer by now: the API server learns of a webhook a moment later."""
    patch = json.dumps({"status": {"phase": "Suspended"}})
    asks = ("--subresource=status", "--dry-run=server", "--request-timeout=1s", "--type=merge", "-p", patch)
    try:
        scene.lab.kubectl("patch", "pp", PROBE, "-n", scene.site.namespace, *asks)
    except KubectlError:
        return True
    return False


def test_another_namespace_is_measured_meanwhile_and_the_late_status_is_written_once(
    theirs: Scene, scene: Scene, reviewer: Reviewer
) -> None:
    scene.add_nodes(*specs(2, products=("H100",)))
    eventually(partial(is_held_up, theirs))
    began = time.monotonic()
    late = theirs.apply("late")
    eventually(lambda: reviewer.asked["late"])
    ours = scene.apply("ours")
    ours.completes()
    most = 1 + int((time.monotonic() - began) / PATIENCE_SECONDS)  # the API server gives up, and is asked again
    assert (1 <= reviewer.asked["late"] <= most, late.status()) == (True, {}), "its status waits, and is not asked for"
    reviewer.answers.set()
    late.completes()
    assert {attempt["outcome"] for attempt in (late.attempts() | ours.attempts()).values()} == {"succeeded"}
