"""All controls, in the order of docs/security.md, and then those of rules that it does not claim.

Each file beside this module lists claims, and of each claim its controls.
"""

from pathlib import Path

import yaml
from pydantic import TypeAdapter

from tests.security.controls.control import Control

FILES = ("of_tenants", "of_agents", "on_cluster", "on_nodes", "of_rules")


def read(file: Path) -> tuple[Control, ...]:
    """Raises pydantic's ValidationError, with the place in the file, where a control isn't one."""
    groups = yaml.safe_load(file.read_text(encoding="utf-8"))
    rows = [{"claim": group["claim"], **row} for group in groups for row in group["controls"]]
    return TypeAdapter(tuple[Control, ...]).validate_python(rows)


CONTROLS = tuple(control for name in FILES for control in read(Path(__file__).with_name(f"{name}.yaml")))
