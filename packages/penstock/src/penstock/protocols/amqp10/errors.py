"""Penstock's errors as AMQP 1.0 spells them: the one place where the two meet.

How far an error reaches is decided where it is met: what is wrong with a link's address detaches
the link, what is wrong with one message rejects the message.
"""

from __future__ import annotations

from typing import Final

from penstock.core import errors
from penstock.core.logs import get_logger
from penstock.wire.amqp10 import errors as conditions
from penstock.wire.amqp10.errors import Amqp10Fault, DecodeError, LinkFault
from penstock.wire.amqp10.performatives import Amqp10Error

_log = get_logger("penstock.amqp10")

#: An error that is not listed is answered like the nearest of its ancestors that is.
_CONDITIONS: Final[dict[type[BaseException], str]] = {
    DecodeError: conditions.DECODE_ERROR,
    errors.NotFound: conditions.NOT_FOUND,
    errors.AccessRefused: conditions.UNAUTHORIZED,
    errors.ResourceLocked: conditions.LOCKED,
    errors.PreconditionFailed: conditions.PRECONDITION_FAILED,
    errors.NotAllowed: conditions.NOT_ALLOWED,
    errors.Unsupported: conditions.NOT_IMPLEMENTED,
    errors.ContentTooLarge: conditions.MESSAGE_TOO_LARGE,
    errors.ResourceExhausted: conditions.LIMIT_EXCEEDED,
    errors.QueueFull: conditions.LIMIT_EXCEEDED,
    errors.NoRoute: conditions.NOT_FOUND,
    errors.WireSyntaxError: conditions.INVALID_FIELD,
    errors.ProtocolError: conditions.INVALID_FIELD,
    errors.ConnectionForced: conditions.CONNECTION_FORCED,
}


def to_amqp10_error(error: BaseException) -> Amqp10Error:
    """How an error is told to an AMQP 1.0 peer."""
    if isinstance(error, Amqp10Fault):
        return Amqp10Error(error.condition, error.description or None)
    for kind in type(error).__mro__:
        if condition := _CONDITIONS.get(kind):
            return Amqp10Error(condition, str(error) or None)
    _log.error("fault of the broker", exc_info=error)
    return Amqp10Error(conditions.INTERNAL_ERROR)


def to_link_fault(error: BaseException) -> LinkFault:
    told = to_amqp10_error(error)
    return LinkFault(told.condition, told.description or "")
