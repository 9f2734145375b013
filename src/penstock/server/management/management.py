"""The management server: its listeners, and the way of a request from the socket to a handler."""

from __future__ import annotations

import asyncio
import base64
import binascii
import socket
import ssl
from typing import TYPE_CHECKING, Final

from penstock.broker.user import User
from penstock.core.addresses import Address
from penstock.core.errors import (
    AccessRefused,
    AuthenticationFailed,
    ConfigurationError,
    ConnectionForced,
    NotFound,
)
from penstock.core.host_policy import READING, HostPolicy
from penstock.core.logs import get_logger
from penstock.server.door import Door, open_door
from penstock.server.management.call import Call, Level, level_of
from penstock.server.management.connection import HttpConnection
from penstock.server.management.errors import Refusal, answer_to, status_of
from penstock.server.management.http import Request, Response
from penstock.server.management.rates import Rates
from penstock.server.management.routes import ROUTES
from penstock.server.management.routing import Route, Routing

if TYPE_CHECKING:
    from penstock.server.broker import Broker

#: How long answers under way may take once the broker closes.
FINISH_SECONDS: Final = 2.0

#: What a browser says of our own pages; those of another port of the same machine are none.
OWN: Final = frozenset({"same-origin", "none"})

#: Who asks for what needs no name.
NOBODY: Final = User("")

_REFUSED: Final = {
    Level.MANAGEMENT: "Not management user",
    Level.MONITORING: "Not monitor user",
    Level.ADMINISTRATOR: "Not administrator user",
}

_log = get_logger("penstock.management")


class Management:
    def __init__(self, broker: Broker, policy: HostPolicy) -> None:
        self._broker = broker
        self._policy = policy
        self._routing = Routing(ROUTES)
        self._rates = Rates(broker.kernel.loop, broker.kernel.metrics)
        self._rates.start()
        self._servers: list[Door] = []
        self._connections: set[HttpConnection] = set()

    # Life.

    async def listen(self, address: Address, context: ssl.SSLContext | None) -> Address:
        """Open a listener; returns the address it really has."""
        loop = self._broker.kernel.loop
        try:
            server = await open_door(
                loop,
                address.host,
                address.port,
                lambda: HttpConnection(loop, self._connections, self.answer),
                self._broker.admission,
                context if address.tls else None,
                self._broker.settings.handshake_timeout,
            )
        except OSError as error:
            raise ConfigurationError(f"cannot listen on {address}: {error.strerror}") from error
        self._servers.append(server)
        return Address(address.scheme, address.host, server.sockets[0].getsockname()[1])

    def streams_url(self, address: Address) -> str:
        """Where clients find ranges of streams; they may come from other machines."""
        host = socket.gethostname() if address.host in ("0.0.0.0", "::") else address.host
        return f"{Address(address.scheme, host, address.port)}/api/streams"

    async def close(self) -> None:
        """Stop accepting; what is being answered gets a little time."""
        self._rates.stop()
        for server in self._servers:
            server.close()
        answering = [task for connection in self._connections if (task := connection.task)]
        if answering:
            await asyncio.wait(answering, timeout=FINISH_SECONDS)
        for connection in list(self._connections):
            if connection.task is None:
                connection.close()
            else:
                connection.abort()
        await asyncio.sleep(0)  # the sockets close in the loop's next round

    # Answering.

    async def answer(self, request: Request) -> Response:
        try:
            return await self._answer(request)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:
            if status_of(error)[0] == 500:
                _log.error("request failed", path=request.path, exc_info=error)
            return answer_to(error)

    async def _answer(self, request: Request) -> Response:
        if self._broker.draining:
            raise ConnectionForced("the broker is shutting down")
        self._check_site(request)
        found = self._routing.find(request.path)
        if found is None:
            raise NotFound("Not Found")
        methods, names = found
        route = methods.get("GET" if request.method == "HEAD" else request.method)
        if route is None:
            allow = {"allow": ", ".join(["HEAD", *methods, "OPTIONS"])}
            return Response(200 if request.method == "OPTIONS" else 405, b"", allow)
        user = NOBODY if route.level is Level.ANYONE else await self._user(request, route)
        return await route.handler(Call(self._broker, self._rates, request, user, names))

    def _check_site(self, request: Request) -> None:
        """A browser that remembers a password would lend it to any page that sends a form."""
        host, origin = request.headers.get("host"), request.headers.get("origin")
        try:
            self._policy.check_host(host)
            if request.method not in READING:
                self._policy.check_origin(origin, host)
                if origin is None and request.headers.get("sec-fetch-site", "none") not in OWN:
                    raise AccessRefused("another site's page may not change anything here")
        except AccessRefused as error:
            raise Refusal(403, "forbidden", str(error)) from None

    async def _user(self, request: Request, route: Route) -> User:
        name, password = _credentials(request.headers.get("authorization", ""))
        try:
            user = await self._broker.users.authenticate(name, password, address=request.peer)
        except AuthenticationFailed as error:
            self._broker.kernel.metrics.refused += 1
            _log.info("login refused", user=name, peer=request.peer, reason=str(error))
            raise AuthenticationFailed("Login failed") from None
        if level_of(user) < route.level:
            raise AccessRefused(_REFUSED[route.level])
        if request.transport is not None:
            self._broker.admission.admit(request.transport)
        return user


def _credentials(authorization: str) -> tuple[str, bytes]:
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        raise AuthenticationFailed("a name and a password are needed")
    try:
        name, _, password = base64.b64decode(encoded, validate=True).partition(b":")
    except binascii.Error:
        raise AuthenticationFailed("these are no credentials") from None
    return name.decode("utf-8", "replace"), password
