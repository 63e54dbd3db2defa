"""Golden files: whole outputs that were looked at once and must not change unnoticed."""

import os
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "golden"


def assert_golden(name: str, text: str) -> None:
    """Compares `text` with tests/golden/`name`; with UPDATE_GOLDEN=1 writes it instead, to be read in the diff."""
    path = FOLDER / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, f"{name} differs: look at it, then run again with UPDATE_GOLDEN=1"
