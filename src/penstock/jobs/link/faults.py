"""What a broker's closing words mean, and which faults another connection cures."""

from __future__ import annotations

from typing import Final

from penstock.core import errors


class Lost(errors.PenstockError, ConnectionError):
    """The connection, or a channel on it, went; another may be had."""


_NAMES: Final[dict[int, type[errors.PenstockError]]] = {
    312: errors.NoRoute,
    320: Lost,
    403: errors.AccessRefused,
    404: errors.NotFound,
    405: errors.ResourceLocked,
    406: errors.PreconditionFailed,
    506: errors.ResourceExhausted,
    530: errors.NotAllowed,
    540: errors.Unsupported,
    541: Lost,  # an internal error of the broker, as while it starts
}
#: What a broker that is starting says of queues it does not have up yet.
_STARTING: Final = ("is down or inaccessible", "vhost is down", "process is stopped")


def closed_for(code: int, text: str) -> errors.PenstockError:
    """The error for a close of the connection or of a channel."""
    kind = _NAMES.get(code, errors.ProtocolError)
    if any(words in text for words in _STARTING):
        kind = Lost
    return kind(f"{text} ({code})")
