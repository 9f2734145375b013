"""Maps Penstock's errors to AMQP 1.0 error conditions.

The caller decides the scope: an error about a link's address detaches the link, an error about a
message rejects the message.
"""

from __future__ import annotations

from typing import Final

from penstock.core import errors
from penstock.core.logs import get_logger
from penstock.wire.amqp10 import errors as conditions
from penstock.wire.amqp10.errors import Amqp10Fault, DecodeError, LinkFault
from penstock.wire.amqp10.performatives import Amqp10Error

_log = get_logger("penstock.amqp10")

#: An error that is not listed has the condition of its nearest listed base class.
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
    if isinstance(error, Amqp10Fault):
        return Amqp10Error(error.condition, error.description or None)
    for kind in type(error).__mro__:
        if condition := _CONDITIONS.get(kind):
            return Amqp10Error(condition, str(error) or None)
    _log.error("internal error", exc_info=error)
    return Amqp10Error(conditions.INTERNAL_ERROR)


def to_link_fault(error: BaseException) -> LinkFault:
    fault = to_amqp10_error(error)
    return LinkFault(fault.condition, fault.description or "")
