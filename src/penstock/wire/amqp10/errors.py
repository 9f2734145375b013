"""What is wrong with bytes that claim to be AMQP 1.0, or with values that cannot become them."""

from __future__ import annotations

from penstock.core.errors import PenstockError, WireSyntaxError


class DecodeError(WireSyntaxError):
    """Bytes that are no value: `amqp:decode-error`."""


class Truncated(DecodeError):
    """Bytes that end, or whose holder ends, before the value does: there may be more to come."""


class EncodeError(PenstockError, ValueError):
    """A value that no type of AMQP 1.0 holds."""
