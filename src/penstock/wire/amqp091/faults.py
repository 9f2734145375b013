"""What a broker's closing words mean, and which faults another connection may cure.

Codes of AMQP 0-9-1 become the errors of `penstock.core.errors`. A connection that breaks, a broker
that shuts down and a queue that is not up yet pass; a missing queue or permission does not.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.core import errors


class Lost(errors.ConnectionForced, ConnectionError):
    """The connection, or a channel on it, went; another may be had."""


_NAMES: Final[dict[int, type[errors.PenstockError]]] = {
    311: errors.ContentTooLarge,
    312: errors.NoRoute,
    320: Lost,
    402: errors.NotFound,  # an invalid path
    403: errors.AccessRefused,
    404: errors.NotFound,
    405: errors.ResourceLocked,
    406: errors.PreconditionFailed,
    506: errors.ResourceExhausted,
    530: errors.NotAllowed,
    540: errors.Unsupported,
    541: Lost,  # an internal error of the broker, as while it starts
}

#: What RabbitMQ says of queues and streams that are starting, with it or just declared.
_STARTING: Final = (
    "is down or inaccessible",
    "does not have a replica on the local node",
    "not available",
    "leader",
    "process is stopped",
    "vhost is down",
)
#: Names stand in quotes; a queue may be called anything.
_QUOTED: Final = re.compile("'[^']*'")


def closed_for(code: int, text: str, where: object) -> errors.PenstockError:
    """The error for a close of the connection or of a channel."""
    kind = _NAMES.get(code, errors.ProtocolError)
    said = _QUOTED.sub("", text)
    if any(words in said for words in _STARTING):
        kind = Lost
    return kind(f"{where}: {text} ({code})")


def passing(error: BaseException) -> bool:
    """Whether the same may succeed on another connection, a little later."""
    return isinstance(error, OSError | EOFError | errors.ConnectionForced)
