"""The full result of a node, from the ConfigMap that the operator keeps it in, or from a saved file."""

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from precision_api.exchange.result import MeasurementResult
from precision_api.exchange.wire import unpacked
from precision_api.facts.json_text import first_wrong, read_json

KEY = "result.json.gz"


def of_config_map(raw: Mapping[str, Any], sha256: str = "") -> MeasurementResult:
    """The result in the ConfigMap; ValueError, fit for the user, where it holds none, or none of this (cut) SHA-256."""
    name = (raw.get("metadata") or {}).get("name", "")
    packed = str((raw.get("binaryData") or {}).get(KEY) or "")
    if not packed:
        raise ValueError(f"ConfigMap {name} has no {KEY}")
    try:
        data = base64.b64decode(packed, validate=True)
        if not hashlib.sha256(data).hexdigest().startswith(sha256):
            raise ValueError(f"{KEY} is not what the operator wrote")
        return of_text(unpacked(data))
    except binascii.Error as error:
        raise ValueError(f"ConfigMap {name}: {KEY} is not base64") from error
    except ValueError as error:
        raise ValueError(f"ConfigMap {name}: {error}") from error


def of_text(text: str | bytes) -> MeasurementResult:
    """The result in JSON; ValueError with the first thing that is wrong."""
    try:
        return read_json(MeasurementResult, text)
    except ValidationError as error:
        raise ValueError(f"it is no result of this version: {first_wrong(error)}") from error


def is_result(text: str) -> bool:
    """Whether a text is meant to be a result: JSON with a result's version."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and "schema_version" in document
