"""Whose verdicts may reach a Node, as the chart says, and what the Node's condition of ours says now."""

import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from pydantic import Field

from precision_api.facts.recipes import Recipe
from precision_api.facts.schema import Document, Name
from precision_api.kinds import fields
from precision_api.kinds.profile import MustDetect
from precision_operator.core.observe.clock import time_or_none
from precision_operator.core.observe.raw_object import condition_of

CONDITION = "precisionprofiler.io/ComputeAccepted"
_TAIL = re.compile(
    r"(?s)^(?P<said>.*?)(; after run (?P<after>\w+))?(; failed by (?P<failed>[^;(]+))?"
    r"(; driver (?P<driver>\S*), (?P<gpus>\d{1,4}) GPUs( (?P<set>\w{10}))?, valid until (?P<until>\S+))?"
    r"(; closed (?P<closed>\S+))? \(node (?P<node>[^\s,()]*), boot (?P<boot>[^\s,()]*)\)$"
)


class GatedProfile(Document):
    """A profile whose verdicts may reach a Node, and what they rest on at least: who edits it can't ask less."""

    namespace: Name = Field(description="Its namespace: an admin's.")
    profile: Name = Field(description="Its name.")
    reference_sha256: fields.Sha256 = Field(description="SHA-256 of the reference.")
    recipes: fields.Recipes = Field(min_length=1, description="Recipes that must pass at least.")
    most_detect_percent: MustDetect = Field(
        MustDetect(), description="Largest mustDetectPercent, by check, or of what is usual where none is asked for."
    )
    image_digests: tuple[str, ...] = Field((), description="Digests of the agent's image. Empty: any.")

    def lacks(self, sha256: str, judged: Sequence[Recipe], finds: Mapping[str, float], image_id: str) -> str:
        """What a verdict lacks to reach a Node, in words; empty: nothing. `finds`: per cent by check."""
        if sha256 != self.reference_sha256:
            return f"it lists referenceSha256 {self.reference_sha256[:12]}..., the profile's is {sha256[:12]}..."
        if missing := [recipe for recipe in self.recipes if recipe not in judged]:
            return f"it lists recipes {', '.join(missing)}, which are not judged"
        for check, most in self.most_detect_percent:
            if most is not None and (percent := finds.get(check, math.inf)) > most:
                what = f"finds {percent:.1f} %" if percent < math.inf else "can't find any"
                return f"it lists mostDetectPercent.{check} {most}, and that check {what}"
        is_listed = not self.image_digests or any(image_id.endswith(digest) for digest in self.image_digests)
        return "" if is_listed else "its imageDigests do not list the agent's image"


class NodeGate(Document):
    """The chart's `acceptance.nodeCondition`, as far as it is the operator's."""

    policy: str = Field("", description="ValidatingAdmissionPolicy of the condition; empty: it is not written.")
    profiles: tuple[GatedProfile, ...] = Field((), description="Whose verdicts may reach a Node.")
    taints: tuple[fields.LabelKey, ...] = Field((), description="Keys of taints of nodes that wait for the verdict.")

    def of(self, namespace: str, name: str) -> tuple[GatedProfile, ...]:
        """What the list says of a profile: while it moves to another reference, a row for each."""
        return tuple(row for row in self.profiles if (row.namespace, row.profile) == (namespace, name))

    def taints_for(self, namespace: str, name: str) -> tuple[str, ...]:
        """Keys of taints that agents of a profile tolerate since they wait for its verdict."""
        return self.taints if self.taints and self.of(namespace, name) else ()


class NodeVerdict(NamedTuple):
    """Our condition of a Node; all is empty where it has none."""

    status: str = ""
    reason: str = ""
    message: str = ""
    since: datetime | None = None  # lastTransitionTime
    written: datetime | None = None  # lastHeartbeatTime: when the reason came

    @property
    def parts(self) -> Mapping[str, str]:
        """What the message says: said (why), node (UID) and boot that were judged, and as far as it does: driver, gpus
        (their number), set (their UUIDs), until (the end of validity), closed (when we took True away), after (the run
        to follow), failed (the profiles of which each must pass before it opens)."""
        tail = _TAIL.search(self.message)
        return {name: text for name, text in tail.groupdict().items() if text is not None} if tail else {}

    @property
    def closed(self) -> datetime | None:
        """When we last took it from True to False."""
        return time_or_none(self.parts.get("closed"))

    @property
    def failing_since(self) -> datetime | None:
        """Since when the node is open although it failed: until a second run says so, or there is room to close it."""
        return self.written if self.status == "True" and self.reason in ("FailUnconfirmed", "FailHeld") else None


UNJUDGED = NodeVerdict()


def node_verdict(node_status: Mapping[str, Any]) -> NodeVerdict:
    """Our condition of a Node's status."""
    row = condition_of(node_status, CONDITION)
    status, reason, message = (str(row.get(key) or "") for key in ("status", "reason", "message"))
    since, written = (time_or_none(row.get(key)) for key in ("lastTransitionTime", "lastHeartbeatTime"))
    status = status if status in ("", "True", "False") else "Unknown"
    return NodeVerdict(status, reason[:128], message, since, written)  # as the chart's policy takes it
