"""What a broker's closing words mean, and which faults another connection may cure.

Codes of AMQP 0-9-1 become the errors of `penstock.core.errors`. A connection that breaks, a broker
that shuts down and a stream that is not up yet pass; a missing stream or permission does not.
"""

from __future__ import annotations

from typing import Final

from penstock.core import errors

_NAMES: Final[dict[int, type[errors.PenstockError]]] = {
    312: errors.NoRoute,
    320: errors.ConnectionForced,
    402: errors.NotFound,  # an invalid path
    403: errors.AccessRefused,
    404: errors.NotFound,
    405: errors.ResourceLocked,
    406: errors.PreconditionFailed,
    506: errors.ResourceExhausted,
    530: errors.NotAllowed,
    540: errors.Unsupported,
    541: errors.ConnectionForced,  # an internal error of the broker, as while it starts
}

#: What RabbitMQ says of a stream that is starting, with its broker or just declared.
_STARTING: Final = (
    "is down or inaccessible",
    "does not have a replica on the local node",
    "not available",
    "leader",
    "vhost is down",
)


def closed_for(code: int, text: str, where: object) -> errors.PenstockError:
    """The error for a close of the connection or a channel."""
    kind = _NAMES.get(code, errors.ProtocolError)
    may_start = kind in (errors.NotFound, errors.PreconditionFailed)
    if may_start and any(words in text for words in _STARTING):
        kind = errors.ConnectionForced
    return kind(f"{where}: {text} ({code})")


def passing(error: BaseException) -> bool:
    """Whether the same may succeed on another connection, a little later."""
    return isinstance(error, OSError | EOFError | errors.ConnectionForced)
