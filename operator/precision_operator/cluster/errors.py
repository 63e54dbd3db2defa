"""What can go wrong between this process and the API server."""

import json

UNREACHABLE = "Unreachable"
TIMEOUT = "Timeout"
TOO_LARGE = "TooLarge"
REDIRECTS = (301, 302, 303, 307, 308)


class ConnectionProblem(ValueError):
    """There is no usable kubeconfig or service account; the message says what to do."""


class ApiError(Exception):
    """A request that did not succeed.

    `status` is the HTTP status, 0 where no answer came (`reason` is then Unreachable or Timeout); `reason` is the API
    server's machine-readable reason (NotFound, AlreadyExists, Conflict, Expired, Forbidden, Invalid ...), or TooLarge
    where the answer was not read to its end; `message` begins with the act. `retry_after` is in seconds, where the
    server named a time. `words` is what the server itself said, `causes` are the reasons in its details.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        retry_after: float | None = None,
        words: str = "",
        causes: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        self.words = words or message
        self.causes = causes

    @property
    def transient(self) -> bool:
        """Whether the same request may succeed later: no answer, too many requests, or the server's own trouble."""
        return self.status in (0, 408, 429) or self.status >= 500

    @property
    def refuses_fields(self) -> bool:
        """Whether fields of the object are at fault; else a 422 is a JSON patch whose test fails."""
        return self.status == 422 and bool(self.causes)


def redirected(act: str, status: int, location: str | None) -> ApiError:
    """The error of an answer that sends on to somewhere else."""
    return ApiError(status, "Redirected", f"{act}: a redirect to {str(location)[:200]!r}, which is not followed")


def error_of(act: str, status: int, phrase: str, body: bytes, retry_after: str | None) -> ApiError:
    """The error in an answer: a metav1.Status where the body holds one, else the HTTP status line.

    `act` is what was asked for, such as "GET /api/v1/nodes"; a proxy in between may answer with HTML or nothing.
    """
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if not isinstance(document, dict) or document.get("kind") != "Status":
        document = {}
    reason = str(document.get("reason") or phrase or "Unknown")
    message = str(document.get("message") or body[:200].decode(errors="replace").strip() or phrase)
    details = document.get("details")
    details = details if isinstance(details, dict) else {}
    seconds = _seconds(retry_after or details.get("retryAfterSeconds"))
    causes = details.get("causes")
    causes = causes if isinstance(causes, list) else []
    reasons = tuple(str(cause.get("reason") or "") for cause in causes if isinstance(cause, dict))
    return ApiError(status, reason, f"{act}: {message} ({status} {reason})", seconds, message, reasons)


def _seconds(value: object) -> float | None:
    try:
        return max(0.0, float(str(value)))
    except ValueError:
        return None
