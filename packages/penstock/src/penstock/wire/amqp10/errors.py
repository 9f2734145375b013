"""Errors of AMQP 1.0: of the codec, and the conditions that are sent to a peer.

A fault has a *condition*, a symbol for programs, and a description for people. Its class is its
scope: a fault of a link detaches the link, one of a session ends the session, one of the connection
closes it. The connection that reads the frames catches a fault and sends the detach, end or close.
"""

from __future__ import annotations

from typing import Final

from penstock.core.errors import PenstockError, ProtocolError, WireSyntaxError


class DecodeError(WireSyntaxError):
    """Invalid bytes: `amqp:decode-error`."""


class TruncatedValue(DecodeError):
    """A value extends past the end of the bytes or of its container."""


class EncodeError(PenstockError, ValueError):
    """A value that AMQP 1.0 cannot represent."""


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
HANDLE_IN_USE: Final = "amqp:session:handle-in-use"
UNATTACHED_HANDLE: Final = "amqp:session:unattached-handle"

DETACH_FORCED: Final = "amqp:link:detach-forced"
UNKNOWN_TRANSACTION: Final = "amqp:transaction:unknown-id"
TRANSACTION_ROLLBACK: Final = "amqp:transaction:rollback"
TRANSFER_LIMIT: Final = "amqp:link:transfer-limit-exceeded"
MESSAGE_TOO_LARGE: Final = "amqp:link:message-size-exceeded"
STOLEN: Final = "amqp:link:stolen"


class Amqp10Fault(ProtocolError):
    """An error that is reported to the peer."""

    def __init__(self, condition: str, description: str = "") -> None:
        super().__init__(description)
        self.condition = condition
        self.description = description


class ConnectionFault(Amqp10Fault):
    """Closes the connection."""


class SessionFault(Amqp10Fault):
    """Ends the session."""


class LinkFault(Amqp10Fault):
    """Detaches the link."""
