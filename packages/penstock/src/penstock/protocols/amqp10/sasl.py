"""SASL authentication against the broker's users: PLAIN, ANONYMOUS if it is allowed, and EXTERNAL
by the user name in a verified client certificate."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.core.client_certificate import certificate_login
from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.wire.amqp10.sasl import ANONYMOUS, EXTERNAL, PLAIN, SaslServer, decode_plain_response

if TYPE_CHECKING:
    from penstock.broker.user import User
    from penstock.protocols.amqp10.terminal import Amqp10Terminal

_log = get_logger("penstock.amqp10")


class BrokerAuthenticator:
    __slots__ = ("_identity", "_task", "_terminal", "opening", "user")

    def __init__(self, terminal: Amqp10Terminal) -> None:
        self._terminal = terminal
        tls = terminal.host.kernel.settings.tls
        self._identity = certificate_login(terminal.transport, tls)
        self._task: asyncio.Task[None] | None = None
        self.user: User | None = None  #: once authenticated
        self.opening = SaslServer(terminal.connection, self)

    @property
    def mechanisms(self) -> tuple[str, ...]:
        offered = [PLAIN]
        if self._terminal.host.kernel.settings.anonymous:
            offered.append(ANONYMOUS)
        if self._identity:
            offered.append(EXTERNAL)
        return tuple(offered)

    @property
    def allows_anonymous(self) -> bool:
        return self._terminal.host.kernel.settings.anonymous

    def authenticate(self, mechanism: str, response: bytes) -> None:
        loop = self._terminal.host.kernel.loop
        if mechanism == PLAIN:
            self._terminal.flow_control.pause()
            self._task = loop.create_task(self._check_password(response))
            return
        host = self._terminal.host
        try:
            if mechanism == ANONYMOUS:
                name = host.kernel.settings.anonymous_user
                self.user = host.users.anonymous(name, address=self._terminal.peer[0])
            else:
                self.user = host.users.certified(self._identity, address=self._terminal.peer[0])
        except PenstockError:
            self._reject(mechanism)
            return
        loop.call_soon(self._accept)

    async def _check_password(self, response: bytes) -> None:
        terminal = self._terminal
        try:
            name, password = decode_plain_response(response)
            users, address = terminal.host.users, terminal.peer[0]
            self.user = await users.authenticate(name, password, address=address)
        except PenstockError:
            self._reject(PLAIN)
            return
        self._accept()

    def _accept(self) -> None:
        if self._terminal.closing:
            return
        self.opening.accept()
        self._terminal.flow_control.force_resume()
        self._terminal.data_received(b"")

    def _reject(self, mechanism: str) -> None:
        terminal = self._terminal
        terminal.host.kernel.metrics.refused += 1
        _log.info("login refused", connection=terminal.name, mechanism=mechanism)
        self.opening.reject()
        terminal.host.kernel.write_batch.flush()

    def on_refused(self, reason: str) -> None:
        _log.info("connection refused", connection=self._terminal.name, reason=reason)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        del self.opening  # a reference cycle
