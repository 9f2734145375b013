"""The W3C trace context in the headers of messages: `traceparent`."""

from __future__ import annotations

import re
import secrets
from typing import Any, Final

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"

_PATTERN: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


def new_traceparent(trace_id: str) -> str:
    """A sampled parent with a new span id."""
    return f"00-{trace_id}-{secrets.token_hex(8)}-01"


def trace_id_of(traceparent: Any) -> str | None:
    """The trace id of a `traceparent` header; None if it is absent or invalid."""
    if not isinstance(traceparent, str) or (found := _PATTERN.fullmatch(traceparent)) is None:
        return None
    return found[1]
