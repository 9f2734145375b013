"""The consumer arguments `x-stream-filter` and `x-stream-match-unfiltered`, as in RabbitMQ.

A publisher sets the header `x-stream-filter-value`. Every message is checked, so that no other
message reaches the consumer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.broker.contract import Message
from penstock.core.basic_properties import decode_header
from penstock.core.errors import PreconditionFailed, WireSyntaxError

FILTER: Final = "x-stream-filter"
MATCH_UNFILTERED: Final = "x-stream-match-unfiltered"
FILTER_VALUE: Final = "x-stream-filter-value"


def stream_filter(arguments: dict[str, Any]) -> Callable[[Message], bool] | None:
    """None for all messages."""
    wanted = arguments.get(FILTER)
    unfiltered = arguments.get(MATCH_UNFILTERED, False)
    if not isinstance(unfiltered, bool):
        raise PreconditionFailed(f"invalid arg '{MATCH_UNFILTERED}': {unfiltered!r} is no boolean")
    if wanted is None:
        return None
    values = wanted if isinstance(wanted, list) else [wanted]
    if not values or not all(isinstance(value, str) for value in values):
        raise PreconditionFailed(
            f"invalid arg '{FILTER}': {wanted!r} is neither a string nor a list of strings"
        )
    known = frozenset(values)

    def selects(message: Message) -> bool:
        if FILTER_VALUE.encode() not in message.header:
            return unfiltered
        try:
            headers = decode_header(message.header).headers or {}
        except WireSyntaxError:
            return False
        value = headers.get(FILTER_VALUE)
        return unfiltered if value is None else value in known

    return selects
