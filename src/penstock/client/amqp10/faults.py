"""The error conditions of AMQP 1.0, given their names in `penstock.core.errors`.

A connection that goes is `Lost`, and another may do. What a broker refuses it would refuse again:
that is an error with a name.
"""

from __future__ import annotations

import errno
import socket
import ssl
from typing import Final

from penstock.client.amqp10.endpoint import Endpoint
from penstock.client.errors import BrokerUnreachable
from penstock.core.errors import (
    AccessRefused,
    AuthenticationFailed,
    ContentTooLarge,
    NotAllowed,
    NotFound,
    PenstockError,
    PreconditionFailed,
    ProtocolError,
    ResourceExhausted,
    ResourceLocked,
    Unsupported,
)
from penstock.wire.amqp10 import conditions
from penstock.wire.amqp10.states import Error

_NAMES: Final[dict[str, type[PenstockError]]] = {
    conditions.NOT_FOUND: NotFound,
    conditions.DELETED: NotFound,
    conditions.UNAUTHORIZED: AccessRefused,
    conditions.LOCKED: ResourceLocked,
    conditions.PRECONDITION_FAILED: PreconditionFailed,
    conditions.INVALID_FIELD: PreconditionFailed,
    conditions.NOT_ALLOWED: NotAllowed,
    conditions.NOT_IMPLEMENTED: Unsupported,
    conditions.LIMIT_EXCEEDED: ResourceExhausted,
    conditions.MESSAGE_TOO_LARGE: ContentTooLarge,
}

#: What is said of bytes that are no frames.
_NONSENSE: Final = frozenset({conditions.FRAMING_ERROR, conditions.DECODE_ERROR})

#: With these a broker ends what was well: trying again is all there is to do.
_PASSING: Final = _NONSENSE | frozenset(
    {
        conditions.CONNECTION_FORCED,
        conditions.DETACH_FORCED,
        conditions.INTERNAL_ERROR,
        conditions.LIMIT_EXCEEDED,
        "amqp:connection:redirect",
    }
)


class Lost(Exception):
    """The connection went, for the reason the broker gave, if it gave one."""

    def __init__(self, words: str, error: Error | None = None) -> None:
        super().__init__(words)
        self.error = error


def explain(error: Error | None, what: str) -> PenstockError:
    """Why the broker does not do what was asked: `what` says that."""
    if error is None:
        return ProtocolError(f"{what}: refused by the broker")
    named = _NAMES.get(error.condition, ProtocolError)
    return named(f"{what}: {error.description or error.condition}")


def fatal(endpoint: Endpoint, lost: Lost) -> PenstockError | None:
    """The error a closed connection is when there is no use in trying again."""
    error = lost.error
    if error is None or error.condition in _PASSING:
        return None
    return explain(error, f"{endpoint} closes the connection")


def unreachable(endpoint: Endpoint, error: Exception) -> PenstockError:
    """Why no connection came about."""
    if isinstance(error, AuthenticationFailed):
        who = "a client without a name" if endpoint.user is None else repr(endpoint.user)
        return AuthenticationFailed(
            f"{endpoint} does not let {who} in: wrong name or password (the URL is "
            "amqp+1.0://user:password@host), or a user that may not connect from here"
        )
    if isinstance(error, PenstockError):
        return error
    if isinstance(error, Lost) and (failure := fatal(endpoint, error)) is not None:
        return failure
    if isinstance(error, TimeoutError):
        words = "no answer in time"
    elif isinstance(error, ssl.SSLCertVerificationError):
        words = f"certificate not trusted: {error.verify_message}; see ?cafile="
    elif isinstance(error, socket.gaierror):
        words = "no such host"
    elif isinstance(error, OSError) and error.errno == errno.ECONNREFUSED:
        words = "connection refused"
    elif isinstance(error, Lost) and error.error and error.error.condition in _NONSENSE:
        words = "what listens there does not speak AMQP 1.0"
    elif isinstance(error, Lost):
        words = f"{error} instead of an answer"
    else:
        words = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return BrokerUnreachable(endpoint.host, endpoint.port, words or type(error).__name__)
