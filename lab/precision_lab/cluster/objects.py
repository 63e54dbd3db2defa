"""What the lab's modules call a Kubernetes object: a plain dict, as the API server gives it."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]
