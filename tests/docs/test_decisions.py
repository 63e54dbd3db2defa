"""The index of decisions has every page, and what replaces a page is told at its top and in the index."""

import re
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "development" / "decisions"
PAGES = sorted(FOLDER.glob("0*.md"))
INDEX = dict(
    re.findall(r"^\| \[(\d{4})\]\([^)]+\) \| (.+) \|$", (FOLDER / "README.md").read_text("utf-8"), re.MULTILINE)
)
STATUS = re.compile(r"\A# .+\n\n\*\*Replaced (in part )?by \[(\d{4})\]\(\2-[\w-]+\.md\)")


def test_the_index_has_every_page_and_tells_of_replacements() -> None:
    assert list(INDEX) == [page.name[:4] for page in PAGES]
    statuses = {page.name[:4]: STATUS.match(page.read_text("utf-8")) for page in PAGES}
    replaced = {number: f"(replaced {match[1] or ''}by {match[2]})" for number, match in statuses.items() if match}
    assert "0042" in replaced
    assert {number: row[row.index("(replaced") :] for number, row in INDEX.items() if "(replaced" in row} == replaced
