"""The delay of a message of an AMQP 1.0 or MQTT client, in its headers."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from penstock.broker.contract import Message
from penstock.core.basic_properties import decode_header
from penstock.core.errors import WireSyntaxError

DELAY_HEADER: Final = "x-opt-delivery-delay"
TIME_HEADER: Final = "x-opt-delivery-time"
_DELIVERY: Final = b"x-opt-delivery-"
#: The longest delay, about 34 years.
MAX_DELAY: Final = 1 << 40


def delay_of(message: Message, now: float) -> int:
    """How many milliseconds an AMQP 1.0 or MQTT client delays a message; 0 for none."""
    if _DELIVERY not in message.header:
        return 0
    try:
        headers = decode_header(message.header).headers or {}
    except WireSyntaxError:
        return 0
    delay = _number(headers.get(DELAY_HEADER))
    at = headers.get(TIME_HEADER)
    if isinstance(at, datetime):
        at = int(at.timestamp() * 1000)
    when = _number(at)
    if when is not None:
        delay = when - int(now * 1000)
    return min(max(0, delay or 0), MAX_DELAY)


def _number(value: Any) -> int | None:
    if isinstance(value, str) and value.isdecimal() and len(value) < 20:
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
