"""What the terminals of all protocols have in common: the end of a read, the handshake timeout,
admission of a user to a virtual host, and descriptions for the management API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.broker.connection_registry import SocketTerminal
from penstock.broker.flow_control import READ_BYTES
from penstock.core.errors import NotAllowed, PenstockError
from penstock.core.logs import get_logger
from penstock.protocols.socket_writer import SocketWriter

if TYPE_CHECKING:
    from penstock.broker.host import Host
    from penstock.broker.user import User
    from penstock.broker.vhost import VirtualHost

#: How long a client may take to answer a close, or to close the socket after it.
CLOSE_SECONDS: Final = 5.0

_log = get_logger("penstock.connections")


class UserAccess(Protocol):
    @property
    def user(self) -> User: ...


class ClientTerminal(SocketTerminal, Protocol):
    output: SocketWriter
    vhost: VirtualHost
    published: int  #: messages since the connection was made
    opened: bool
    closing: bool

    @property
    def access(self) -> UserAccess: ...

    def post_partial_buckets(self) -> None:
        """Post all partial buckets of large messages."""


def finish_read(terminal: ClientTerminal, size: int, published: int) -> None:
    """Account for a read of `size` bytes, before which `published` messages had been received; stop
    reading if the client is over a limit."""
    metrics = terminal.host.kernel.metrics
    flow_control = terminal.flow_control
    metrics.bytes_in += size
    if size >= READ_BYTES or flow_control.wide:
        flow_control.adapt_read_size(size)
    filling = flow_control.has_pending_buckets
    if terminal.published != published or filling:
        metrics.published += terminal.published - published
        if filling and flow_control.account.spent:
            terminal.post_partial_buckets()
        flow_control.check_limits()
    output = terminal.output
    if (output.paused or output.deferred_bytes) and flow_control.is_unread:
        flow_control.pause()


def abort_handshake(terminal: SocketTerminal) -> None:
    _log.info("handshake timed out", connection=terminal.name)
    terminal.transport.abort()


def check_admission(host: Host, user: User, vhost: str) -> None:
    if not host.users.can_access_vhost(user, vhost):
        raise NotAllowed(f"access to vhost '{vhost}' refused for user '{user.name}'")
    limit = host.kernel.settings.max_connections
    if limit and len(host.clients) > limit:
        raise NotAllowed(f"the broker's limit of {limit} connections is reached")
    check_connection_limits(host, user, vhost)
    if host.draining:
        raise NotAllowed("the broker is shutting down")


async def renewed_user(terminal: ClientTerminal, secret: bytes) -> User:
    """The user with the permissions of a new token; raises `NotAllowed` if it is refused.

    Other credentials do not expire, and are not checked again.
    """
    host, user = terminal.host, terminal.access.user
    if user.expires is None:
        return user
    try:
        renewed = await host.users.authenticate(user.name, secret, address=terminal.peer[0])
    except PenstockError as error:
        _log.info("new secret refused", connection=terminal.name, reason=str(error))
        raise NotAllowed("New secret was refused by one of the backends") from None
    if renewed.name != user.name or renewed.origin != user.origin:
        raise NotAllowed(f"New secret was refused: it is not a secret of user '{user.name}'")
    if not host.users.can_access_vhost(renewed, terminal.vhost.name):
        raise NotAllowed(
            f"access to vhost '{terminal.vhost.name}' refused for user '{renewed.name}'"
        )
    if not terminal.closing:
        host.credential_expiry.watch(terminal, renewed, host.kernel.loop)
    return renewed


def check_connection_limits(host: Host, user: User, vhost: str) -> None:
    """Limits of the virtual host and of the user, with RabbitMQ's error texts."""
    limit = host.vhosts[vhost].policies.limits.get("max-connections")
    if limit is not None and _connections(host, "vhost", vhost) >= limit:
        raise NotAllowed(
            f"access to vhost '{vhost}' refused for user '{user.name}': "
            f"connection limit ({limit}) is reached"
        )
    limit = host.users.limit(user, "max-connections")
    if limit is not None and _connections(host, "user", user.name) >= limit:
        raise NotAllowed(
            f"connection refused for user '{user.name}': user connection limit ({limit}) is reached"
        )


def _connections(host: Host, field: str, value: str) -> int:
    return sum(client.describe()[field] == value for client in host.clients)


def check_channel_limit(host: Host, user: User) -> None:
    limit = host.users.limit(user, "max-channels")
    if limit is None:
        return
    described = (client.describe() for client in host.clients)
    if sum(each["channels"] for each in described if each["user"] == user.name) >= limit:
        raise NotAllowed(
            f"number of channels opened for user '{user.name}' has reached the maximum allowed "
            f"user limit of ({limit})"
        )


# Descriptions have RabbitMQ's field names. A connection may be described after it was lost.


def describe_connection(
    terminal: ClientTerminal,
    protocol: str,
    client_properties: dict[str, Any],
    *,
    channels: int = 0,
    channel_max: int = 0,
    frame_max: int = 0,
    timeout: float = 0,
) -> dict[str, Any]:
    opened = terminal.opened
    if terminal.closing:
        state = "closing"
    elif terminal.flow_control.blocked:
        state = "blocked"
    else:
        state = "running" if opened else "starting"
    return {
        "name": terminal.name,
        "protocol": protocol,
        "user": terminal.access.user.name if opened else "",
        "vhost": terminal.vhost.name if opened else "",
        "peer_host": terminal.peer[0],
        "peer_port": terminal.peer[1],
        "ssl": terminal.tls,
        "channels": channels,
        "channel_max": channel_max,
        "frame_max": frame_max,
        "timeout": int(timeout),
        "client_properties": client_properties,
        "state": state,
    }


def describe_channel(terminal: ClientTerminal, number: int, **fields: Any) -> dict[str, Any]:
    return {
        "name": f"{terminal.name} ({number})",
        "number": number,
        "user": terminal.access.user.name,
        "vhost": terminal.vhost.name,
        "connection_details": {"name": terminal.name},
        "prefetch_count": 0,
        "global_prefetch_count": 0,
        "transactional": False,
        "state": "running",
        **fields,
    }


def describe_consumer(
    terminal: ClientTerminal,
    tag: str,
    queue: str,
    *,
    channel: int | None = None,
    ack_required: bool = True,
    prefetch: int = 0,
    exclusive: bool = True,
    arguments: dict[str, Any] | None = None,
) -> dict[str, Any]:
    details: dict[str, Any] = {"name": terminal.name}
    if channel is not None:
        details = {"name": f"{terminal.name} ({channel})", "number": channel}
    return {
        "consumer_tag": tag,
        "queue": {"name": queue, "vhost": terminal.vhost.name},
        "channel_details": details,
        "ack_required": ack_required,
        "prefetch_count": prefetch,
        "exclusive": exclusive,
        "arguments": arguments or {},
    }
