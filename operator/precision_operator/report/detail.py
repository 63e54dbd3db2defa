"""The full result of a node, from the ConfigMap that the operator keeps it in, or from a saved file."""

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from precision_api.exchange.result import MeasurementResult
from precision_api.exchange.wire import GZIP_MAX_BYTES, RESULT_MAX_BYTES

KEY = "result.json.gz"


def of_config_map(raw: Mapping[str, Any]) -> MeasurementResult:
    """The result in the ConfigMap; ValueError, fit for the user, where it holds none."""
    name = (raw.get("metadata") or {}).get("name", "")
    packed = str((raw.get("binaryData") or {}).get(KEY) or "")
    if not packed:
        raise ValueError(f"ConfigMap {name} has no {KEY}")
    try:
        return of_gzip(base64.b64decode(packed, validate=True))
    except binascii.Error as error:
        raise ValueError(f"ConfigMap {name}: {KEY} is not base64") from error
    except ValueError as error:
        raise ValueError(f"ConfigMap {name}: {error}") from error


def of_gzip(packed: bytes) -> MeasurementResult:
    """The result in a gzip, which may promise as much as it likes: no more than a result's size is unpacked."""
    if len(packed) > GZIP_MAX_BYTES:
        raise ValueError(f"the gzip has {len(packed)} bytes, more than a result's")
    reader = zlib.decompressobj(wbits=31)
    try:
        text = reader.decompress(packed, RESULT_MAX_BYTES)
    except zlib.error as error:
        raise ValueError("it is not gzip") from error
    if not reader.eof:
        raise ValueError("the gzip is cut, or too large for a result")
    return of_text(text)


def of_text(text: str | bytes) -> MeasurementResult:
    """The result in JSON; ValueError with the first thing that is wrong."""
    try:
        return MeasurementResult.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"it is no result of this version: {f'{where}: ' if where else ''}{first['msg']}") from error


def is_result(text: str) -> bool:
    """Whether a text is meant to be a result: JSON with a result's version."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and "schema_version" in document
