"""The request: read from text and checked, and made smaller where it does not fit. Pure."""

import json

from pydantic import ValidationError

from precision_agent.protocol import Refusal
from precision_api.exchange import exits
from precision_api.exchange.request import REQUEST_MAX_BYTES, REQUEST_VERSION, MeasurementRequest
from precision_api.facts.json_text import first_wrong
from precision_api.models.workload import resolve


def read_request(text: str) -> MeasurementRequest:
    """The request; Refusal InvalidRequest or UnknownRequestVersion says what is wrong and where."""
    if len(text.encode("utf-8", "replace")) > REQUEST_MAX_BYTES:
        raise Refusal(exits.INVALID_REQUEST, f"the request is longer than {REQUEST_MAX_BYTES} bytes")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Refusal(exits.INVALID_REQUEST, f"the request is not JSON: {error}"[:500]) from None
    version = document.get("schema_version", REQUEST_VERSION) if isinstance(document, dict) else REQUEST_VERSION
    if version != REQUEST_VERSION:
        message = f"request version {str(version)[:40]!r}: this agent knows {REQUEST_VERSION!r}"
        raise Refusal(exits.UNKNOWN_REQUEST_VERSION, message)
    try:
        return MeasurementRequest.model_validate_json(text)
    except ValidationError as error:
        raise Refusal(exits.INVALID_REQUEST, first_wrong(error)) from None


def halved(request: MeasurementRequest) -> MeasurementRequest | None:
    """The request with half the micro batch, or None where it may not be halved or is one sequence already."""
    concrete = resolve(request.workload).workload
    batch = concrete.micro_batch_size or 1
    if not request.may_halve_micro_batch or batch < 2:
        return None
    workload = concrete.model_copy(update={"micro_batch_size": batch // 2})
    return request.model_copy(update={"workload": workload})
