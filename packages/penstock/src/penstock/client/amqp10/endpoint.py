"""What a URL says of a broker that speaks AMQP 1.0.

`amqp+1.0://user:password@host:5672/vhost` and `amqps+1.0://`. Who is not named is `guest`; an empty
name is nobody, whom some brokers let in (SASL's ANONYMOUS). A virtual host is told to the broker as
RabbitMQ has it, by the hostname `vhost:NAME`. The rest is in the query: `container_id=` (who we
say we are), `heartbeat=` seconds, `cafile=`.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote
from uuid import uuid4

from penstock.client import errors as errors_client
from penstock.client.errors import BrokerUnreachable
from penstock.client.url import create_tls_context, format_host_port, parse_url
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

#: A peer that vanished without a word is missed after twice as much.
HEARTBEAT_SECONDS: Final = 15

_OPTIONS: Final = ("container_id", "heartbeat", "cafile")
_SCHEMES: Final = {"amqp+1.0": "amqp10", "amqps+1.0": "amqps10"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Amqp10Endpoint:
    host: str
    port: int
    user: str | None  #: None is nobody in particular
    password: str = field(repr=False)
    vhost: str | None  #: None is the broker's own choice
    container_id: str
    tls: bool = False
    cafile: str | None = None
    heartbeat: int = HEARTBEAT_SECONDS

    @property
    def hostname(self) -> str:
        """What the broker is told that we want to reach."""
        return self.host if self.vhost is None else f"vhost:{self.vhost}"

    def tls_context(self) -> ssl.SSLContext | None:
        return create_tls_context(self.cafile) if self.tls else None

    def __str__(self) -> str:
        return format_host_port(self.host, self.port)


def parse_endpoint(url: str) -> Amqp10Endpoint:
    parts = parse_url(url, _OPTIONS)
    vhost = unquote(parts.path[1:])
    return Amqp10Endpoint(
        host=parts.host,
        port=DEFAULT_PORTS[_SCHEMES[parts.scheme]] if parts.port is None else parts.port,
        user="guest" if parts.user is None else parts.user or None,
        password="guest" if parts.user is None else parts.password or "",
        vhost=vhost or None,
        container_id=parts.options.get("container_id") or f"penstock-{uuid4().hex[:12]}",
        tls=parts.scheme == "amqps+1.0",
        cafile=parts.options.get("cafile"),
        heartbeat=parts.seconds("heartbeat", HEARTBEAT_SECONDS, 1, 3600),
    )


# The error conditions of AMQP 1.0, given their names in `penstock.core.errors`.
#
# A connection that goes is `Amqp10ConnectionLost`, and another may do. What a broker refuses it
# would refuse again: that is an error with a name.

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

#: What is said of bytes that are no frames.
_MALFORMED: Final = frozenset({errors.FRAMING_ERROR, errors.DECODE_ERROR})

#: With these a broker ends what was well: trying again is all there is to do.
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
    """The connection went, for the reason the broker gave, if it gave one."""

    def __init__(self, words: str, error: Amqp10Error | None = None) -> None:
        super().__init__(words)
        self.error = error


def to_penstock_error(error: Amqp10Error | None, what: str) -> PenstockError:
    """Why the broker does not do what was asked: `what` says that."""
    if error is None:
        return ProtocolError(f"{what}: refused by the broker")
    named = _ERRORS.get(error.condition, ProtocolError)
    return named(f"{what}: {error.description or error.condition}")


def permanent_error(endpoint: Amqp10Endpoint, lost: Amqp10ConnectionLost) -> PenstockError | None:
    """The error a closed connection is when there is no use in trying again."""
    error = lost.error
    if error is None or error.condition in _TRANSIENT:
        return None
    return to_penstock_error(error, f"{endpoint} closes the connection")


def connect_error(endpoint: Amqp10Endpoint, error: Exception) -> PenstockError:
    """Why no connection came about."""
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
    return errors_client.connect_error(endpoint.host, endpoint.port, error)
