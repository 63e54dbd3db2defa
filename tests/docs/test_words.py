"""User-facing text uses the terms of Kubernetes and GPU engineers, not ones of our own."""

import re
from pathlib import Path

from precision_api.exchange.exits import EXITS
from precision_operator.core.reasons import REASONS

ROOT = Path(__file__).parents[2]

INSTEAD = {
    r"(its|their|the) (like|equals)\b": "peers",
    r"hindrance": "blocked by",
    r"held back": "throttled",
    r"\bnot told\b": "unknown",
    r"\bthrift(y|ier|iest)\b": "energy-efficient",
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\bin a hurry\b": "with short intervals",
    r"\bfurther ado\b": "automatically",
    r"\bplace (is|was) given back\b": "the operator deletes the Job",
    r"\bDecide nothing\b": "Don't base decisions on it",
    r"\blength of a pass\b": "reconcile duration",
    r"\bstands in (its|the|their) report\b": "is in the report",
    r"\btried again by itself\b": "retried automatically",
    r"\bsomebody asked\b": "was requested",
    r"\bphase[- ]lock": "aliasing with the sensor period",
    r"\bheld against\b": "compared with",
    r"\btold so\b": "the answer says so",
    r"\bnobody understands\b": "invalid",
    r"\banew\b": "again",
    r"\bstands in (the status|a profile)\b": "is in",
}
"""Pattern (any case): the field's term."""

CHART = ROOT / "charts" / "precision-profiler"
TEXTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "crds").glob("*.yaml"))]
TEXTS += sorted([*CHART.glob("files/**/*.yaml"), *CHART.glob("files/**/*.json"), *CHART.glob("*.*")])


def odd_words(text: str) -> list[str]:
    """The phrases of `text` that INSTEAD replaces, each with the better term."""
    patterns = INSTEAD.items()
    return [f"{m.group()!r} -> {term}" for pattern, term in patterns for m in re.finditer(pattern, text, re.IGNORECASE)]


def test_pages_reasons_and_refusals_use_the_fields_terms() -> None:
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in TEXTS}
    texts |= {f"reason {name}": f"{row.template} {row.next_step}" for name, row in REASONS.items()}
    texts |= {f"exit {row.code}": row.sentence for row in EXITS}
    assert {name: words for name, text in texts.items() if (words := odd_words(text))} == {}
    assert odd_words("Mend the node: it is slower than its like.") == ["'its like' -> peers", "'Mend' -> fix"]
