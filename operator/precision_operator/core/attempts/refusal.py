"""What it means when the cluster creates no Job or pod for an agent: the reason, whom it concerns, when to try again.

Quota, RBAC, Pod Security and a namespace that ends all answer 403; a ValidatingAdmissionPolicy answers 422, as for an
invalid object; a webhook answers what it likes. So the code decides last: words, reason and causes come first.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import get_args

from precision_api.facts.names import grouped
from precision_operator.core.attempts.retry import rest
from precision_operator.core.observe.observed import Observed, ProfileView, RefusedCreation, ReportView, Stage
from precision_operator.core.reasons import REASONS, Rule

WORDS_READ, WORDS_LENGTH = 4096, 512
"""Characters of an answer that are looked at, and that are kept: a webhook may say as much as it likes."""
STAGES: tuple[Stage, ...] = get_args(Stage)
SAME_ANSWERS = 3
"""Nodes in a row that get the same answer, after which it is taken to concern the whole profile."""
_BLANKS = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")
_NAMED = re.compile(r'\s*"pp-[0-9a-z-]+"')
"""The name of an agent's Job or pod in an answer: another one for each node."""
_EVENT = re.compile(
    r"^(?:\(combined from similar events\): )?"
    r"(?:Error creating: |PodResourceClaim \S+: (?:create ResourceClaim \S*: )?)"
)
"""How the Job controller and the resource claim controller begin their events."""
_AMOUNT = re.compile(r"([^\s=,]+)=([^\s,]+)")
_QUOTA = re.compile(r"exceeded quota: (\S+), requested: (\S+), used: (\S+), limited: (\S+)")


@dataclass(frozen=True)
class Answer:
    """What the API server answered to a creation; of a pod only the words are known, from the Job's event.

    `code` is the HTTP status, 0 where there was no answer or it isn't known; `reason` is the Status's; `causes` are the
    reasons in its details. NameTaken is our own: the name is still that of an older object.
    """

    words: str
    code: int = 0
    reason: str = ""
    causes: tuple[str, ...] = ()


RULES: Mapping[str, Rule] = {code: row.refusal for code, row in REASONS.items() if row.refusal is not None}
"""By reason."""

_SAID = (
    ("DeniedByPolicy", r'admission webhook "[^"]*" denied the request'),
    ("DeniedByPolicy", r"ValidatingAdmissionPolicy '[^']*' with binding '[^']*' denied request"),
    ("WebhookUnavailable", r'failed calling webhook "|failed to call webhook'),
    ("NamespaceTerminating", r"because it is being terminated|namespaces \"[^\"]*\" not found"),
    ("QuotaExceeded", r"exceeded quota: "),
    ("CreationFailed", r"^resource claim template \"[^\"]*\": .* not found"),
    ("CreationFailed", r"status unknown for quota"),
    ("PermissionMissing", r'cannot (?:create|get) resource "'),
    ("DeniedByPolicy", r"violates PodSecurity|failed quota: |insufficient quota to match"),
    ("InvalidJob", r'^\S+ (?:"[^"]*" )?is invalid: '),
    ("DeniedByPolicy", r"\bis forbidden: "),
)
"""Reason and pattern of the words, first match first: what a webhook says may quote any of the later ones."""


def classify(answer: Answer) -> str:
    """The reason, a key of RULES."""
    if answer.reason == "NameTaken":
        return answer.reason
    if "NamespaceTerminating" in answer.causes:
        return "NamespaceTerminating"
    words = cleaned(answer.words)
    said = next((reason for reason, pattern in _SAID if re.search(pattern, words)), None)
    if said is not None:
        return said
    if answer.reason == "Invalid":
        return "InvalidJob"
    unanswered = answer.code == 0 and answer.reason != ""
    transient = unanswered or answer.code in (408, 409, 429) or answer.code >= 500
    return "CreationFailed" if transient else "CreationRefused"


def cleaned(words: str) -> str:
    """The server's words without what differs from node to node, cut; of a quota what is used of what."""
    said = _NAMED.sub("", _EVENT.sub("", _BLANKS.sub(" ", words[:WORDS_READ]).strip()))
    match = _QUOTA.search(said)
    return (_quota(*match.groups()) if match else said)[:WORDS_LENGTH]


def _quota(name: str, requested: str, used: str, limited: str) -> str:
    """`exceeded quota: gpus: 8 of 8 requests.nvidia.com/gpu used, 8 more requested`."""
    asked, taken, most = (dict(_AMOUNT.findall(text)) for text in (requested, used, limited))
    rows = [f"{taken.get(key, '?')} of {most.get(key, '?')} {key} used, {asked[key]} more requested" for key in asked]
    return f"exceeded quota: {name}: {'; '.join(rows)}"


def mark_of(profile: ProfileView, report: ReportView | None) -> str:
    """What a user has asked for last: a spec that was changed, or a rerun, is tried at once."""
    return f"{profile.generation}/{profile.rerun}/{report.rerun if report is not None else ''}"


def refusal_facts(refused: RefusedCreation, profile: ProfileView) -> dict[str, object]:
    """The facts that the sentence of its reason needs."""
    return {"stage": refused.stage, "words": refused.words, "namespace": profile.namespace}


Refusals = Mapping[tuple[str, str], RefusedCreation]
"""By profile UID and node UID."""


def noted(
    refusals: Refusals, key: tuple[str, str], answer: Answer, stage: Stage, mark: str, agents: int, now: datetime
) -> RefusedCreation:
    """What to remember of an answer: the wait doubles with each try, of this node or, where it concerns all, of any.

    `key` is the UIDs of profile and node; so many `agents` of the profile have what this one was refused.
    """
    reason, words = classify(answer), cleaned(answer.words)
    before = refusals.get(key)
    others = (other for (profile, node), other in refusals.items() if profile == key[0] and node != key[1])
    rule = RULES[reason]
    alike = [o for o in others if o.reason == reason and not o.alone and (rule.whole or o.words == words)]
    concerns_all = rule.whole or len(alike) + 1 >= SAME_ANSWERS
    rounds = max((other.times for other in alike), default=0) if concerns_all else 0
    in_round = any(other.until > now for other in alike)
    tries = before.times if before is not None and (before.reason, before.mark) == (reason, mark) else 0
    times = max(tries + 1, rounds if in_round else rounds + 1)
    until = now + rest(rule.first, times, key[1], rule.longest)
    room = agents if reason == "QuotaExceeded" else 0
    return RefusedCreation(reason, words, stage, now, until, times, room, mark=mark)


def accepted(refusals: Refusals, key: tuple[str, str], stage: Stage, agents: int) -> Refusals:
    """What still stands when the cluster has created something for one node; so many `agents` have that now.

    What was said of all nodes is over, but for a quota that has had room for as many before; what was said of others
    concerns them alone.
    """
    kept: dict[tuple[str, str], RefusedCreation] = {}
    for (profile, node), refused in refusals.items():
        untouched = profile != key[0] or STAGES.index(refused.stage) > STAGES.index(stage)
        if untouched or (RULES[refused.reason].whole and agents <= refused.agents):
            kept[profile, node] = refused
        elif node != key[1] and not RULES[refused.reason].whole:
            kept[profile, node] = replace(refused, alone=True)
    return kept


def standing(refusals: Refusals, observed: Observed) -> Refusals:
    """Those that still count: their profile and node are there, and nothing else was asked for since."""
    profiles = {profile.uid: profile for profile in observed.profiles}
    return {
        (profile, node): refused
        for (profile, node), refused in refusals.items()
        if profile in profiles
        and node in observed.nodes
        and refused.mark == mark_of(profiles[profile], observed.reports_of[profile].get(node))
    }


def hold_of(refused: Iterable[RefusedCreation]) -> RefusedCreation | None:
    """What holds the profile as a whole: the newest answer that concerns all its nodes; None where they are tried."""
    shared = grouped(
        ((hold.reason, "" if RULES[hold.reason].whole else hold.words), hold) for hold in refused if not hold.alone
    )
    holds = [
        max(group, key=lambda hold: (hold.until, hold.at))
        for (reason, _), group in shared.items()
        if RULES[reason].whole or len(group) >= SAME_ANSWERS
    ]
    return max(holds, key=lambda hold: (hold.until, hold.at), default=None)
