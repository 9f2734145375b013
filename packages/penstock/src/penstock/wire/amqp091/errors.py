"""Penstock's errors as AMQP 0-9-1 close methods, in both directions.

Codes and scopes are RabbitMQ's where it has a counterpart: a soft error closes the channel, a hard
one the connection. An error that is not Penstock's is sent as an internal error without its text.
For a client, a broken connection, a broker that shuts down and a queue that is starting are
transient; a missing queue or permission is not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from penstock.core import errors
from penstock.core.basic_properties import SHORTSTR_MAX


@dataclass(frozen=True, slots=True)
class CloseReason:
    """The fields of a close method."""

    code: int
    text: str  #: at most 255 bytes of UTF-8
    closes_connection: bool


@dataclass(frozen=True, slots=True)
class _ReplyCode:
    number: int
    name: str
    hard: bool  #: closes the connection, not only the channel


_INTERNAL_ERROR: Final = _ReplyCode(541, "INTERNAL_ERROR", True)

#: An error that is not listed has the code of its nearest ancestor.
_REPLY_CODES: Final[dict[type[BaseException], _ReplyCode]] = {
    errors.ContentTooLarge: _ReplyCode(311, "CONTENT_TOO_LARGE", False),
    errors.NoRoute: _ReplyCode(312, "NO_ROUTE", False),
    errors.ConnectionForced: _ReplyCode(320, "CONNECTION_FORCED", True),
    errors.AccessRefused: _ReplyCode(403, "ACCESS_REFUSED", False),
    errors.AuthenticationFailed: _ReplyCode(403, "ACCESS_REFUSED", True),
    errors.NotFound: _ReplyCode(404, "NOT_FOUND", False),
    errors.ResourceLocked: _ReplyCode(405, "RESOURCE_LOCKED", False),
    errors.PreconditionFailed: _ReplyCode(406, "PRECONDITION_FAILED", False),
    # A publisher gets basic.nack for a full queue; only a transaction can fail for it.
    errors.QueueFull: _ReplyCode(406, "PRECONDITION_FAILED", False),
    errors.FrameError: _ReplyCode(501, "FRAME_ERROR", True),
    errors.WireSyntaxError: _ReplyCode(501, "FRAME_ERROR", True),  # as RabbitMQ, which has no 502
    errors.CommandInvalid: _ReplyCode(503, "COMMAND_INVALID", True),
    errors.ProtocolError: _ReplyCode(503, "COMMAND_INVALID", True),
    errors.ChannelError: _ReplyCode(504, "CHANNEL_ERROR", True),
    errors.UnexpectedFrame: _ReplyCode(505, "UNEXPECTED_FRAME", True),
    errors.NotAllowed: _ReplyCode(530, "NOT_ALLOWED", True),
    # RabbitMQ's answer to a channel too many, rather than 506 RESOURCE_ERROR.
    errors.ResourceExhausted: _ReplyCode(530, "NOT_ALLOWED", True),
    errors.Unsupported: _ReplyCode(540, "NOT_IMPLEMENTED", True),
}


def close_reason(error: BaseException) -> CloseReason:
    for kind in type(error).__mro__:
        if code := _REPLY_CODES.get(kind):
            text = f"{code.name} - {error}" if str(error) else code.name
            return CloseReason(code.number, _truncate_shortstr(text), code.hard)
    return CloseReason(_INTERNAL_ERROR.number, _INTERNAL_ERROR.name, _INTERNAL_ERROR.hard)


def _truncate_shortstr(text: str) -> str:
    """The part of the text that fits into a short string; names in it may be arbitrary bytes."""
    content = text.encode("utf-8", "replace")
    return content[:SHORTSTR_MAX].decode("utf-8", "ignore")


class AmqpConnectionLost(errors.ConnectionForced, ConnectionError):
    """The connection or channel is closed; a new one may work."""


_ERRORS_BY_CODE: Final[dict[int, type[errors.PenstockError]]] = {
    311: errors.ContentTooLarge,
    312: errors.NoRoute,
    320: AmqpConnectionLost,
    402: errors.NotFound,  # an invalid path
    403: errors.AccessRefused,
    404: errors.NotFound,
    405: errors.ResourceLocked,
    406: errors.PreconditionFailed,
    506: errors.ResourceExhausted,
    530: errors.NotAllowed,
    540: errors.Unsupported,
    541: AmqpConnectionLost,  # an internal error of the broker, as while it starts
}

#: In RabbitMQ's reply texts for queues and streams that are starting.
_QUEUE_STARTING_TEXTS: Final = (
    "is down or inaccessible",
    "does not have a replica on the local node",
    "not available",
    "leader",
    "process is stopped",
    "vhost is down",
)
#: A quoted name could contain any of these texts.
_QUOTED_NAME: Final = re.compile("'[^']*'")


def error_from_close(code: int, text: str, where: object) -> errors.PenstockError:
    """The error for a close of the connection or of a channel."""
    kind = _ERRORS_BY_CODE.get(code, errors.ProtocolError)
    unquoted = _QUOTED_NAME.sub("", text)
    if any(words in unquoted for words in _QUEUE_STARTING_TEXTS):
        kind = AmqpConnectionLost
    return kind(f"{where}: {text} ({code})")


def is_transient_amqp_error(error: BaseException) -> bool:
    """Whether a retry on a new connection may succeed."""
    if isinstance(error, errors.ConfigurationError):  # a failed TLS handshake is an OSError, too
        return False
    return isinstance(error, OSError | EOFError | errors.ConnectionForced)
