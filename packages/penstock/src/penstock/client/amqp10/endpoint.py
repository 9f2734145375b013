"""URLs and errors of AMQP 1.0.

`amqp+1.0://user:password@host:5672/vhost` and `amqps+1.0://`, with the options `container_id=`,
`heartbeat=` in seconds and `cafile=`. The default user is `guest`; an empty user is anonymous (SASL
ANONYMOUS). As in RabbitMQ, the hostname `vhost:NAME` selects the virtual host.

A lost connection is `Amqp10ConnectionLost`, and the client reconnects. Error conditions of refusals
become the errors of `penstock.core.errors`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote
from uuid import uuid4

from penstock.client import errors as client_errors
from penstock.client.errors import BrokerUnreachable
from penstock.client.url import BrokerEndpoint, parse_url
from penstock.core.addresses import DEFAULT_PORTS
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
from penstock.wire.amqp10 import errors
from penstock.wire.amqp10.performatives import Amqp10Error

#: A silent peer is given up after two intervals.
HEARTBEAT_SECONDS: Final = 15

_OPTIONS: Final = ("container_id", "heartbeat", "cafile")
_SCHEMES: Final = {"amqp+1.0": "amqp10", "amqps+1.0": "amqps10"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Amqp10Endpoint(BrokerEndpoint):
    user: str | None  #: None is anonymous
    password: str = field(repr=False)
    vhost: str | None  #: None is the broker's default
    container_id: str
    heartbeat: int = HEARTBEAT_SECONDS

    @property
    def hostname(self) -> str:
        """The hostname of the open frame."""
        return self.host if self.vhost is None else f"vhost:{self.vhost}"


def parse_endpoint(url: str) -> Amqp10Endpoint:
    parts = parse_url(url, _OPTIONS)
    vhost = unquote(parts.path[1:])
    default = DEFAULT_PORTS[_SCHEMES[parts.scheme]]
    return Amqp10Endpoint(
        host=parts.host,
        port=default if parts.port is None else parts.port,
        others=[(host, port or default) for host, port in parts.others],
        user="guest" if parts.user is None else parts.user or None,
        password="guest" if parts.user is None else parts.password or "",
        vhost=vhost or None,
        container_id=parts.options.get("container_id") or f"penstock-{uuid4().hex[:12]}",
        tls=parts.scheme == "amqps+1.0",
        cafile=parts.options.get("cafile"),
        heartbeat=parts.seconds("heartbeat", HEARTBEAT_SECONDS, 1, 3600),
    )


_ERRORS: Final[dict[str, type[PenstockError]]] = {
    errors.NOT_FOUND: NotFound,
    errors.DELETED: NotFound,
    errors.UNAUTHORIZED: AccessRefused,
    errors.LOCKED: ResourceLocked,
    errors.PRECONDITION_FAILED: PreconditionFailed,
    errors.INVALID_FIELD: PreconditionFailed,
    errors.NOT_ALLOWED: NotAllowed,
    errors.NOT_IMPLEMENTED: Unsupported,
    errors.LIMIT_EXCEEDED: ResourceExhausted,
    errors.MESSAGE_TOO_LARGE: ContentTooLarge,
}

_MALFORMED: Final = frozenset({errors.FRAMING_ERROR, errors.DECODE_ERROR})

#: The client reconnects after these.
_TRANSIENT: Final = _MALFORMED | frozenset(
    {
        errors.CONNECTION_FORCED,
        errors.DETACH_FORCED,
        errors.INTERNAL_ERROR,
        errors.LIMIT_EXCEEDED,
        "amqp:connection:redirect",
    }
)


class Amqp10ConnectionLost(Exception):
    """The connection was lost, with the error of the broker, if it sent one."""

    def __init__(self, text: str, error: Amqp10Error | None = None) -> None:
        super().__init__(text)
        self.error = error


def to_penstock_error(error: Amqp10Error | None, what: str) -> PenstockError:
    """The error for an operation, `what`, that the broker refused."""
    if error is None:
        return ProtocolError(f"{what}: refused by the broker")
    named = _ERRORS.get(error.condition, ProtocolError)
    return named(f"{what}: {error.description or error.condition}")


def permanent_error(endpoint: Amqp10Endpoint, lost: Amqp10ConnectionLost) -> PenstockError | None:
    """The error of a lost connection that must not be reopened."""
    error = lost.error
    if error is None or error.condition in _TRANSIENT:
        return None
    return to_penstock_error(error, f"{endpoint} closed the connection")


def connect_error(endpoint: Amqp10Endpoint, error: Exception) -> PenstockError:
    """The error to raise when a connection could not be opened."""
    if isinstance(error, AuthenticationFailed):
        who = "an anonymous client" if endpoint.user is None else repr(endpoint.user)
        return AuthenticationFailed(
            f"{endpoint}: authentication failed for {who}: wrong user or password (the URL is "
            "amqp+1.0://user:password@host), or the user may not connect from this address"
        )
    if isinstance(error, Amqp10ConnectionLost):
        if (failure := permanent_error(endpoint, error)) is not None:
            return failure
        malformed = error.error is not None and error.error.condition in _MALFORMED
        reason = "what listens there does not speak AMQP 1.0" if malformed else f"{error}"
        return BrokerUnreachable(endpoint.host, endpoint.port, reason)
    return client_errors.connect_error(endpoint.host, endpoint.port, error)
