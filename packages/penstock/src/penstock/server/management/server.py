"""The management server: listeners, host and origin checks, authentication, dispatch."""

from __future__ import annotations

import asyncio
import base64
import binascii
import socket
import ssl
from typing import TYPE_CHECKING, Final

from penstock.broker.user import User
from penstock.core.addresses import ListenAddress
from penstock.core.client_certificate import certificate_login
from penstock.core.errors import AccessRefused, AuthenticationFailed, ConnectionForced, NotFound
from penstock.core.host_policy import SAFE_METHODS, HostPolicy
from penstock.core.logs import get_logger
from penstock.server.listener import SocketListener, bind_listener
from penstock.server.management import (
    api_description,
    cluster,
    connections,
    console,
    content,
    definitions,
    delayed,
    documentation,
    exchanges,
    federation,
    health,
    login,
    message_browser,
    messages,
    metrics,
    mqtt,
    overview,
    policies,
    queues,
    redrive,
    sections,
    snapshots,
    tracing,
    users,
    vhosts,
)
from penstock.server.management.api_call import (
    AccessLevel,
    ApiCall,
    ApiRoute,
    RouteTable,
    has_access,
)
from penstock.server.management.http import (
    ApiError,
    HttpConnection,
    HttpRequest,
    HttpResponse,
    error_response,
    error_status,
)
from penstock.server.management.metrics import RateSampler
from penstock.server.management.sections import SectionProcess

if TYPE_CHECKING:
    from penstock.broker.auth.authorization_code import AuthorizationCodeClient
    from penstock.server.broker import Broker


#: How long responses in progress may take when the broker closes.
SHUTDOWN_SECONDS: Final = 2.0

#: Values of Sec-Fetch-Site for our own pages; another port of the same host is not one.
SAME_SITE_VALUES: Final = frozenset({"same-origin", "none"})

#: The user of routes without authentication.
NO_USER: Final = User("")

_REFUSED: Final = {
    AccessLevel.MANAGEMENT: "Not management user",
    AccessLevel.POLICYMAKER: "Not policymaker user",
    AccessLevel.MONITORING: "Not monitor user",
    AccessLevel.ADMINISTRATOR: "Not administrator user",
}

ROUTES: Final = tuple(
    route
    for module in (
        overview,
        cluster,
        vhosts,
        connections,
        exchanges,
        queues,
        messages,
        message_browser,
        redrive,
        mqtt,
        users,
        login,
        policies,
        federation,
        tracing,
        delayed,
        definitions,
        snapshots,
        content,
        console,
        sections,
        documentation,
        api_description,
        health,
        metrics,
    )
    for route in module.routes
)

_log = get_logger("penstock.management")


class ManagementServer:
    def __init__(self, broker: Broker, policy: HostPolicy) -> None:
        self._broker = broker
        self._policy = policy
        self._routing = RouteTable(ROUTES)
        self._rates = RateSampler(broker.kernel.loop, broker.kernel.metrics)
        self._rates.start()
        self._servers: list[SocketListener] = []
        self._connections: set[HttpConnection] = set()
        self._closing = asyncio.Event()
        self._sections = SectionProcess(broker)
        self._login: AuthorizationCodeClient | None = None
        if broker.settings.oauth2.client_id and "oauth2" in broker.settings.auth_backends:
            from penstock.broker.auth.authorization_code import AuthorizationCodeClient

            self._login = AuthorizationCodeClient(broker.settings.oauth2)

    async def listen(self, address: ListenAddress, context: ssl.SSLContext | None) -> ListenAddress:
        """Returns the address with its actual port."""
        loop = self._broker.kernel.loop
        server, actual = await bind_listener(
            self._broker,
            address,
            lambda: HttpConnection(loop, self._connections, self.answer),
            context,
        )
        self._servers.append(server)
        return actual

    def streams_url(self, address: ListenAddress) -> str:
        """The URL of stream ranges for clients, which may be on other hosts."""
        everywhere = address.host in ("0.0.0.0", "::")  # noqa: S104 - a comparison
        host = socket.gethostname() if everywhere else address.host
        return f"{ListenAddress(address.scheme, host, address.port)}/api/streams"

    async def close(self) -> None:
        """Stop accepting; responses in progress get some time."""
        self._rates.stop()
        self._closing.set()
        for server in self._servers:
            server.close()
        answering = [task for connection in self._connections if (task := connection.task)]
        if answering:
            await asyncio.wait(answering, timeout=SHUTDOWN_SECONDS)
        for connection in list(self._connections):
            if connection.task is None:
                connection.close()
            else:
                connection.abort()
        await self._sections.close()
        await asyncio.sleep(0)  # sockets close in the next pass of the loop

    async def answer(self, request: HttpRequest) -> HttpResponse:
        try:
            return await self._answer(request)
        except (ConnectionError, asyncio.CancelledError):
            raise
        except Exception as error:
            if error_status(error)[0] == 500:
                _log.error("request failed", path=request.path, exc_info=error)
            return error_response(error)

    async def _answer(self, request: HttpRequest) -> HttpResponse:
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
            return HttpResponse(200 if request.method == "OPTIONS" else 405, b"", allow)
        user = NO_USER if route.level is AccessLevel.ANYONE else await self._user(request, route)
        call = ApiCall(
            self._broker,
            self._rates,
            request,
            user,
            names,
            self.answer,
            self._closing,
            self._sections,
            self._login,
        )
        response = await route.handler(call)
        if self._broker.cluster is not None and request.method not in SAFE_METHODS:
            await self._broker.replicated()
        return response

    def _check_site(self, request: HttpRequest) -> None:
        """Protect against cross-site requests: a browser sends its password with any form."""
        host, origin = request.headers.get("host"), request.headers.get("origin")
        try:
            self._policy.check_host(host)
            if request.method not in SAFE_METHODS:
                self._policy.check_origin(origin, host)
                if (
                    origin is None
                    and request.headers.get("sec-fetch-site", "none") not in SAME_SITE_VALUES
                ):
                    raise AccessRefused("cross-site requests are refused")
        except AccessRefused as error:
            raise ApiError(403, "forbidden", str(error)) from None

    async def _user(self, request: HttpRequest, route: ApiRoute) -> User:
        users = self._broker.users
        authorization = request.headers.get("authorization", "")
        name = certificate_login(request.transport, self._broker.settings.tls)
        try:
            if name and not authorization:
                user = users.certified(name, address=request.peer)
            else:
                name, password = _credentials(authorization)
                user = await users.authenticate(name, password, address=request.peer)
        except AuthenticationFailed as error:
            self._broker.kernel.metrics.refused += 1
            _log.info("login refused", user=name, peer=request.peer, reason=str(error))
            raise AuthenticationFailed("Login failed") from None
        if not has_access(user, route.level):
            raise AccessRefused(_REFUSED[route.level])
        if request.transport is not None:
            self._broker.connection_limiter.mark_authenticated(request.transport)
        return user


def _credentials(authorization: str) -> tuple[str, bytes]:
    """A name and a password; a bearer token is a password without a name."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return "", encoded.strip().encode("utf-8", "replace")
    if scheme.lower() != "basic":
        raise AuthenticationFailed("a user name and a password are required")
    try:
        name, _, password = base64.b64decode(encoded, validate=True).partition(b":")
    except binascii.Error:
        raise AuthenticationFailed(
            "invalid credentials: expected base64 of NAME:PASSWORD"
        ) from None
    return name.decode("utf-8", "replace"), password
