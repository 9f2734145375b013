"""The handshake of a PADRES connection: authentication, the virtual host, the mailbox.

Clients and brokers authenticate in the same way, as a user of this broker. A client gets a mailbox.
The connection of a broker becomes a link of the overlay, if its user has the tag (`LinkAccess`).
"""

from __future__ import annotations

import asyncio
import re
import secrets
from typing import TYPE_CHECKING, Final

from penstock.broker.content_router import RESERVED_HOP_NAMES
from penstock.broker.users import AccessControl as NamedAccess
from penstock.core.client_certificate import certificate_login
from penstock.core.errors import (
    AccessRefused,
    ConnectionForced,
    NotAllowed,
    NotFound,
    PreconditionFailed,
    ResourceExhausted,
    ResourceLocked,
)
from penstock.protocols.connection import check_connection_limits
from penstock.protocols.padres.access import PadresAccess
from penstock.protocols.padres.mailbox import MAILBOX_QUEUE_PREFIX, PadresMailbox
from penstock.wire.padres.frames import OpenFrame, PeerRole

if TYPE_CHECKING:
    from penstock.broker.user import User
    from penstock.broker.vhost import VirtualHost
    from penstock.protocols.padres.terminal import PadresTerminal

_CLIENT_ID: Final = re.compile(r"[^\s\x00-\x1f\x7f]{1,200}")


class PadresHandshake:
    __slots__ = ("_task", "_terminal")

    def __init__(self, terminal: PadresTerminal) -> None:
        self._terminal = terminal
        self._task: asyncio.Task[None] | None = None

    def begin(self, opened: OpenFrame) -> None:
        self._terminal.flow_control.hold()
        self._task = self._terminal.host.kernel.loop.create_task(self._authenticate(opened))

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _authenticate(self, opened: OpenFrame) -> None:
        terminal = self._terminal
        try:
            user = await self._identify(opened)
            self._task = None
            if terminal.closing:
                return
            vhost = self._select_vhost(opened, user)
            terminal.host.connection_limiter.mark_authenticated(terminal.transport)
            if opened.role is PeerRole.BROKER:
                terminal.become_link(opened, vhost, user)
                return
            self._open(opened, vhost, user)
        except AccessRefused as error:
            terminal.host.kernel.metrics.refused += 1
            terminal.fail(error)
        except Exception as error:
            terminal.fail(error)
        terminal.flow_control.resume()
        terminal.host.kernel.write_batch.flush()

    async def _identify(self, opened: OpenFrame) -> User:
        host = self._terminal.host
        address = self._terminal.peer[0]
        if opened.user:
            return await host.users.authenticate(opened.user, opened.password, address=address)
        certified = certificate_login(self._terminal.transport, host.kernel.settings.tls)
        if certified:
            return host.users.certified(certified, address=address)
        if not host.kernel.settings.anonymous:
            raise AccessRefused("a user name and a password are required")
        return host.users.anonymous(host.kernel.settings.anonymous_user, address=address)

    def _select_vhost(self, opened: OpenFrame, user: User) -> VirtualHost:
        host = self._terminal.host
        settings = host.kernel.settings
        if host.draining:
            raise ConnectionForced("the broker is shutting down")
        if settings.max_connections and len(host.clients) > settings.max_connections:
            raise ResourceExhausted(
                f"the broker's limit of {settings.max_connections} connections is reached"
            )
        name = opened.vhost or settings.default_vhost
        vhost = host.vhosts.get(name)
        if vhost is None:
            raise NotFound(f"no vhost '{name}'")
        if opened.role is PeerRole.CLIENT and not host.users.can_access_vhost(user, name):
            raise NotAllowed(f"access to vhost '{name}' refused for user '{user.name}'")
        check_connection_limits(host, user, name)
        return vhost

    def _open(self, opened: OpenFrame, vhost: VirtualHost, user: User) -> None:
        terminal = self._terminal
        host = terminal.host
        settings = host.kernel.settings.padres
        router = host.router(vhost.name)
        if opened.wanted and opened.wanted != router.broker_id:
            raise NotFound(f"this is broker {router.broker_id}, not {opened.wanted}")
        client_id = opened.id or f"c{secrets.token_hex(6)}"
        if not _CLIENT_ID.fullmatch(client_id):
            raise PreconditionFailed(
                f"invalid client id {client_id[:40]!r}: use 1 to 200 characters without blanks"
            )
        if RESERVED_HOP_NAMES.fullmatch(client_id):
            raise PreconditionFailed(f"client id {client_id!r} is reserved for the broker")
        if not host.users.is_client_id_allowed(user, client_id):
            raise AccessRefused(f"user '{user.name}' may not use the client id {client_id!r}")
        terminal.vhost = vhost
        terminal.access = PadresAccess(host.users, user, vhost.name, settings.exchange)
        terminal.mailbox = PadresMailbox(
            vhost,
            f"{router.broker_id}-{client_id}",
            terminal.service.envelope_cache,
            owner=None if opened.durable else terminal,
            checked=settings.conformance,
            most=settings.max_queued,
        )
        self._check_owner(terminal.mailbox, user)
        self._take_over(terminal.mailbox, opened.store)
        if opened.durable:
            terminal.mailbox.set_owner(user.name)
        known = MAILBOX_QUEUE_PREFIX + terminal.mailbox.name in vhost.queues
        terminal.open(opened, client_id, router, known=known)

    def _check_owner(self, mailbox: PadresMailbox, user: User) -> None:
        """A durable mailbox belongs to the user who created it. If that user is unknown or deleted,
        read permission on its queue is enough."""
        terminal = self._terminal
        users, owner = terminal.host.users, mailbox.user
        if owner == user.name:
            return
        if owner and any(one.name == owner for one in users.all()):
            raise AccessRefused(f"mailbox {mailbox.name} belongs to another user")
        name = MAILBOX_QUEUE_PREFIX + mailbox.name
        queue = terminal.vhost.queues.get(name)
        if owner or (queue is not None and queue.durable):
            NamedAccess(users, user, terminal.vhost.name).check("read", "queue", name)

    def _take_over(self, mailbox: PadresMailbox, run: str) -> None:
        """Close an earlier connection of the same client, which may have been lost.

        A durable client is identified by its user, another also by the run of its program.
        """
        terminal = self._terminal
        before = terminal.service.connected.get((terminal.vhost.name, mailbox.name))
        if before is None:
            return
        if not mailbox.durable and (not run or run != before.run):
            raise ResourceLocked(f"client {mailbox.name} is already connected: {before.name}")
        if before.access.user != terminal.access.user:
            raise ResourceLocked(f"client {mailbox.name} is already connected as another user")
        before.fail(ResourceLocked(f"client {mailbox.name} has connected again: {terminal.name}"))
