"""The errors of AMQP 0-9-1, read two ways.

`passing` tells the faults of a connection, which a new connection cures, from those of the
request, which it does not. `explain` gives the latter their names in `penstock.core.errors`.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiormq import exceptions as aiormq

from penstock.core.errors import (
    AccessRefused,
    NoRoute,
    NotAllowed,
    NotFound,
    PenstockError,
    PreconditionFailed,
    ProtocolError,
    QueueFull,
    ResourceLocked,
    Unsupported,
)


class Reopen(Exception):
    """Try again on a new channel: the next attempt will go another way."""


#: Answers to what we asked: asking again would bring the same.
_OURS: Final = (
    aiormq.ConnectionNotAllowed,
    aiormq.ConnectionNotImplemented,
    aiormq.ConnectionCommandInvalid,
    aiormq.ConnectionSyntaxError,
    aiormq.ConnectionFrameError,
    aiormq.DeliveryError,
)

_NAMES: Final[dict[type[BaseException], type[PenstockError]]] = {
    aiormq.ChannelNotFoundEntity: NotFound,
    aiormq.ChannelAccessRefused: AccessRefused,
    aiormq.ChannelLockedResource: ResourceLocked,
    aiormq.ChannelPreconditionFailed: PreconditionFailed,
    aiormq.ConnectionNotAllowed: NotAllowed,
    aiormq.ConnectionNotImplemented: Unsupported,
    aiormq.PublishError: NoRoute,
    aiormq.DeliveryError: QueueFull,
}


def passing(error: BaseException | None) -> bool:
    """Whether the connection was at fault, so that another may do."""
    if isinstance(error, asyncio.CancelledError):
        # aiormq cancels what waits on a connection that ends; our own end is told by the task.
        task = asyncio.current_task()
        return task is None or not task.cancelling()
    if isinstance(error, aiormq.ChannelClosed):
        # The broker gives a code for what was wrong; without one, the channel just went.
        return error.args[:1] == (None,)
    if isinstance(error, _OURS):
        return False
    return error is None or isinstance(
        error, Reopen | OSError | RuntimeError | aiormq.AMQPError | TimeoutError
    )


def explain(error: BaseException) -> PenstockError:
    if isinstance(error, PenstockError):
        return error
    words = " ".join(str(part) for part in error.args if part is not None)
    if isinstance(error, aiormq.PublishError):
        words = f"no queue takes what is sent to {error.args[1]!r}"
    elif isinstance(error, aiormq.DeliveryError):
        words = "the broker refused the message: its queue is full, or could not store it"
    named = _NAMES.get(type(error), ProtocolError)(words or repr(error))
    named.__cause__ = error
    return named
