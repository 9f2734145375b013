"""Penstock's errors as AMQP 0-9-1 spells them: a reply code, a reply text, and how far it reaches.

The one place where the two meet. Codes and reach are RabbitMQ's where it has a counterpart: a soft
error closes the channel, a hard one the connection. An error that is none of ours is a fault of
the broker: the peer learns that it happened, the log learns what.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.core import errors


@dataclass(frozen=True, slots=True)
class Reply:
    """What a close method says."""

    code: int
    text: str  #: at most 255 bytes of UTF-8
    closes_connection: bool


@dataclass(frozen=True, slots=True)
class _Code:
    number: int
    name: str
    hard: bool  #: closes the connection, not only the channel


_INTERNAL: Final = _Code(541, "INTERNAL_ERROR", True)

#: An error that is not listed is answered like the nearest of its ancestors that is.
_CODES: Final[dict[type[BaseException], _Code]] = {
    errors.ContentTooLarge: _Code(311, "CONTENT_TOO_LARGE", False),
    errors.NoRoute: _Code(312, "NO_ROUTE", False),
    errors.ConnectionForced: _Code(320, "CONNECTION_FORCED", True),
    errors.AccessRefused: _Code(403, "ACCESS_REFUSED", False),
    errors.AuthenticationFailed: _Code(403, "ACCESS_REFUSED", True),
    errors.NotFound: _Code(404, "NOT_FOUND", False),
    errors.ResourceLocked: _Code(405, "RESOURCE_LOCKED", False),
    errors.PreconditionFailed: _Code(406, "PRECONDITION_FAILED", False),
    # A publisher hears of a full queue by basic.nack; only a transaction can fail for it.
    errors.QueueFull: _Code(406, "PRECONDITION_FAILED", False),
    errors.FrameError: _Code(501, "FRAME_ERROR", True),
    errors.WireSyntaxError: _Code(501, "FRAME_ERROR", True),  # as RabbitMQ, which has no 502
    errors.CommandInvalid: _Code(503, "COMMAND_INVALID", True),
    errors.ProtocolError: _Code(503, "COMMAND_INVALID", True),
    errors.ChannelError: _Code(504, "CHANNEL_ERROR", True),
    errors.UnexpectedFrame: _Code(505, "UNEXPECTED_FRAME", True),
    errors.NotAllowed: _Code(530, "NOT_ALLOWED", True),
    # RabbitMQ's answer to a channel too many, rather than 506 RESOURCE_ERROR.
    errors.ResourceExhausted: _Code(530, "NOT_ALLOWED", True),
    errors.Unsupported: _Code(540, "NOT_IMPLEMENTED", True),
}


def reply(error: BaseException) -> Reply:
    """How an error is told to an AMQP 0-9-1 peer."""
    for kind in type(error).__mro__:
        if code := _CODES.get(kind):
            text = f"{code.name} - {error}" if str(error) else code.name
            return Reply(code.number, _shortened(text), code.hard)
    return Reply(_INTERNAL.number, _INTERNAL.name, _INTERNAL.hard)


def _shortened(text: str) -> str:
    """As much of the text as a short string holds; a name in it may be anything a peer sent."""
    content = text.encode("utf-8", "replace")
    return content[:255].decode("utf-8", "ignore")
