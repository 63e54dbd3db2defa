"""A Hugging Face config.json, read field by field with checks: what is wrong is named with its key."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = Mapping[str, Any]

LARGEST = 16_777_216
MAX_CONFIG_BYTES = 64 * 1024


def shown(value: object) -> str:
    """`value` as JSON, cut to what fits in a message."""
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


@dataclass(frozen=True)
class Config:
    """A config.json with its family's defaults behind it, read with checks; ValueError names the field."""

    document: Json
    defaults: Json
    aliases: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def value(self, key: str) -> Any:
        """What the config says about `key` under any of its names, else the default, else None."""
        for name in (key, *self.aliases.get(key, ())):
            if name in self.document:
                return self.document[name]
        return self.defaults.get(key)

    def integer(self, key: str) -> int:
        """The whole number `key`, at least 1."""
        number = self.optional(key)
        if number is None:
            raise ValueError(f"config.json: {key} is missing; the shapes depend on it")
        return number

    def optional(self, key: str, least: int = 1) -> int | None:
        """The whole number `key`, at least `least`, or None where it is absent or null."""
        number = self.value(key)
        if number is None:
            return None
        if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= LARGEST:
            raise ValueError(
                f"config.json: {key} must be a whole number from {least} to {LARGEST}, not {shown(number)}"
            )
        return number

    def flag(self, key: str) -> bool:
        """The boolean `key`; false where it is absent or null."""
        value = self.value(key)
        if value is not None and not isinstance(value, bool):
            raise ValueError(f"config.json: {key} must be true or false, not {shown(value)}")
        return bool(value)

    def items(self, key: str) -> list[Any] | None:
        """The list `key`, or None where it is absent or null."""
        value = self.value(key)
        if value is not None and not isinstance(value, list):
            raise ValueError(f"config.json: {key} must be a list, not {shown(value)}")
        return value
