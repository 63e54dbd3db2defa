"""What a support bundle leaves out: secrets, wherever they stand. Pure.

Objects lose what only the API server needs, values of environment variables, and annotations of nodes that are not
ours; then patterns that secrets are written in are removed from every text.
"""

import re
from collections.abc import Mapping
from typing import Any

from precision_api.facts.names import GROUP

REMOVED = "(removed)"
_KEYS = r"(?:password|passwd|passphrase|secret|(?<!per)token|credentials?|api[-_]?key|access[-_]?key|private[-_]?key)"
_NAMED = rf"(?<![\w-])[\w-]{{0,200}}?{_KEYS}(?:\\*[\"'])?"
"""A name that ends so, and the quote behind it, escaped as often as JSON was put into JSON.

It is tried at the beginning of words alone: at each letter, a megabyte of metrics would take ten seconds.
`trainingFlopsPerToken` is a figure.
"""
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), REMOVED),
    (re.compile(r"\beyJ[\w-]{5,1000}\.[\w-]{5,}\.[\w-]*"), REMOVED),  # a JSON web token, as service accounts have
    (re.compile(r"(?i)\b(bearer|basic)(\s+)[\w.~+/=-]{8,}"), rf"\1\2{REMOVED}"),
    (re.compile(r"(?i)(\w://)[^/\s:@\"']*:[^/\s@\"']+@"), rf"\1{REMOVED}@"),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), REMOVED),
    (re.compile(r"\b(?:gh[opsur]_|github_pat_|glpat-|hf_|nvapi-|xox[abps]-)[\w-]{10,}"), REMOVED),
    (re.compile(rf"(?i)({_NAMED}\s*[=:]\s*(\\*[\"']))(?:(?!\2).)+"), rf"\1{REMOVED}"),
    (re.compile(rf"(?i)({_NAMED}\s*[=:]\s*)(?!true\b|false\b|null\b)[^\s\"',;{{}}\[\]\\]+"), rf"\1{REMOVED}"),
    (re.compile(rf"(?i)(--[\w-]{{0,40}}{_KEYS}\s+)\S+"), rf"\1{REMOVED}"),
)
_OURS = (GROUP, "nvidia.com", "topology.kubernetes.io", "kubernetes.io", "node.kubernetes.io", "cluster.x-k8s.io")


def without_secrets(text: str) -> str:
    """`text` with `(removed)` in place of what is written as secrets are."""
    for pattern, instead in _PATTERNS:
        text = pattern.sub(instead, text)
    return text


def plain_object(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A Kubernetes object without managed fields, the copy that kubectl apply keeps, and values of the environment."""
    cleaned = _cleaned(dict(raw))
    assert isinstance(cleaned, dict)
    return cleaned


def _cleaned(value: Any, key: str = "") -> Any:
    if isinstance(value, Mapping):
        dropped = ("managedFields", "kubectl.kubernetes.io/last-applied-configuration")
        return {k: _cleaned(v, k) for k, v in value.items() if k not in dropped}
    if isinstance(value, list):
        return [_without_value(variable) if key == "env" else _cleaned(variable) for variable in value]
    return value


def _without_value(variable: Any) -> Any:
    """`{name: X, value: (removed)}`; where it comes from another object, that stays: it is a name."""
    if isinstance(variable, Mapping) and "value" in variable:
        return {**variable, "value": REMOVED}
    return variable


def node_facts(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Of a node what decides about measuring: labels of Kubernetes, NVIDIA and ours, taints, resources, conditions."""
    meta, status, spec = raw["metadata"], raw.get("status") or {}, raw.get("spec") or {}
    return {
        "metadata": {
            "name": meta["name"],
            "uid": meta.get("uid"),
            "creationTimestamp": meta.get("creationTimestamp"),
            "labels": {
                key: text
                for key, text in (meta.get("labels") or {}).items()
                if "/" in key and key.partition("/")[0].endswith(_OURS)
            },
            "annotations": {key: text for key, text in (meta.get("annotations") or {}).items() if GROUP in key},
        },
        "spec": {"taints": spec.get("taints"), "unschedulable": spec.get("unschedulable")},
        "status": {
            key: status.get(key) for key in ("allocatable", "capacity", "conditions", "nodeInfo") if key in status
        },
    }
