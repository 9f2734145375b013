"""What is wrong with bytes that claim to be AMQP 1.0, or with values that cannot become them."""

from __future__ import annotations

from typing import Final

from penstock.core.errors import PenstockError, ProtocolError, WireSyntaxError


class DecodeError(WireSyntaxError):
    """Bytes that are no value: `amqp:decode-error`."""


class TruncatedValue(DecodeError):
    """Bytes that end, or whose holder ends, before the value does: there may be more to come."""


class EncodeError(PenstockError, ValueError):
    """A value that no type of AMQP 1.0 holds."""


# What goes wrong between two peers, by the names the standard has for it.
#
# An error has a *condition*, a symbol that programs read, and a description for people. How far it
# reaches is its class: a fault of a link detaches the link, one of a session ends the session, one
# of the connection closes it. Whoever finds something wrong raises the fault; the connection that
# reads the frames sends the detach, end or close that says so.

INTERNAL_ERROR: Final = "amqp:internal-error"
NOT_FOUND: Final = "amqp:not-found"
UNAUTHORIZED: Final = "amqp:unauthorized-access"
DECODE_ERROR: Final = "amqp:decode-error"
LIMIT_EXCEEDED: Final = "amqp:resource-limit-exceeded"
NOT_ALLOWED: Final = "amqp:not-allowed"
INVALID_FIELD: Final = "amqp:invalid-field"
NOT_IMPLEMENTED: Final = "amqp:not-implemented"
LOCKED: Final = "amqp:resource-locked"
PRECONDITION_FAILED: Final = "amqp:precondition-failed"
DELETED: Final = "amqp:resource-deleted"
ILLEGAL_STATE: Final = "amqp:illegal-state"
FRAME_TOO_SMALL: Final = "amqp:frame-size-too-small"

CONNECTION_FORCED: Final = "amqp:connection:forced"
FRAMING_ERROR: Final = "amqp:connection:framing-error"

WINDOW_VIOLATION: Final = "amqp:session:window-violation"
ERRANT_LINK: Final = "amqp:session:errant-link"
HANDLE_IN_USE: Final = "amqp:session:handle-in-use"
UNATTACHED_HANDLE: Final = "amqp:session:unattached-handle"

DETACH_FORCED: Final = "amqp:link:detach-forced"
TRANSFER_LIMIT: Final = "amqp:link:transfer-limit-exceeded"
MESSAGE_TOO_LARGE: Final = "amqp:link:message-size-exceeded"
STOLEN: Final = "amqp:link:stolen"


class Amqp10Fault(ProtocolError):
    """Something a peer did, or asked for, that it is told about by a condition."""

    def __init__(self, condition: str, description: str = "") -> None:
        super().__init__(description)
        self.condition = condition
        self.description = description


class ConnectionFault(Amqp10Fault):
    """It closes the connection."""


class SessionFault(Amqp10Fault):
    """It ends the session."""


class LinkFault(Amqp10Fault):
    """It detaches the link."""
