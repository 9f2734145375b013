"""Host and origin checks of HTTP services, against DNS rebinding and cross-site requests.

A page of any site can make a browser connect to a service on the same machine or network. Two
headers, which a page cannot change, identify such requests:

* `Host`: a site can resolve its own name to our address (DNS rebinding). Addresses, `localhost` and
  the machine's name cannot be taken over; any other name must be allowed.
* `Origin`: the site of the page. It must be the service itself, or an allowed site.

Programs other than browsers send the configured `Host` and no `Origin`.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from penstock.core.errors import AccessRefused

MAX_CACHED_HOSTS: Final = 256
#: Allows every name, or every site.
ANY_HOST: Final = "*"

AsgiScope = MutableMapping[str, Any]
AsgiMessage = MutableMapping[str, Any]
AsgiReceive = Callable[[], Awaitable[AsgiMessage]]
AsgiSend = Callable[[AsgiMessage], Awaitable[None]]
AsgiApp = Callable[[AsgiScope, AsgiReceive, AsgiSend], Awaitable[None]]

#: Methods without side effects; pages of other sites cannot read their responses.
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class HostPolicy:
    """Allowed names and sites; `setting` is the option that adds one, for errors."""

    __slots__ = ("_hosts", "_origins", "_seen", "_setting")

    def __init__(
        self, hosts: Iterable[str] = (), origins: Iterable[str] = (), *, setting: str
    ) -> None:
        own = socket.gethostname()
        self._hosts = {name.lower().rstrip(".") for name in (*hosts, own, own.partition(".")[0])}
        self._origins = {origin.lower().rstrip("/") for origin in origins}
        self._setting = setting
        self._seen: set[str] = set()  # allowed hosts, as written

    def has_allowed(self, host: str) -> bool:
        """Whether the host was allowed before; quicker than the check."""
        return host in self._seen

    def check_host(self, host: str | None) -> None:
        """Raises `AccessRefused` for a name that is not allowed."""
        if host is None or host in self._seen:
            return
        if not self._is_ours(host):
            raise AccessRefused(
                f"host {host!r} is not a name of this service: use its address or localhost, or "
                f"allow the name with {self._setting}"
            )
        if len(self._seen) < MAX_CACHED_HOSTS:
            self._seen.add(host)

    def check_origin(self, origin: str | None, host: str | None) -> None:
        """Raises `AccessRefused` for a page of another site; the host was checked before."""
        if origin is None or ANY_HOST in self._origins or origin.lower() in self._origins:
            return
        if not host or _site(origin) != host.lower():
            raise AccessRefused(
                f"pages of {origin!r} may not use this service: allow the site with {self._setting}"
            )

    def _is_ours(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").rstrip(".")
        except ValueError:
            return False
        if ANY_HOST in self._hosts or name in self._hosts:
            return True
        return name == "localhost" or name.endswith(".localhost") or _is_address(name)


class HostPolicyMiddleware:
    """`cross_site_paths` accept forms of pages of other sites; they must change nothing."""

    def __init__(
        self, app: AsgiApp, policy: HostPolicy, cross_site_paths: Collection[str] = ()
    ) -> None:
        self._app = app
        self._policy = policy
        self._cross_site_paths = frozenset(cross_site_paths)

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        if scope["type"] in ("http", "websocket"):
            try:
                is_open = scope["type"] == "http" and scope.get("path") in self._cross_site_paths
                check_scope(self._policy, scope, check_origin=not is_open)
            except AccessRefused as error:
                await _refuse(scope, send, str(error))
                return
        await self._app(scope, receive, send)


def check_scope(policy: HostPolicy, scope: AsgiScope, *, check_origin: bool = True) -> None:
    """Check an ASGI request. Pages of other sites may send requests without side effects."""
    found: dict[bytes, list[str]] = {b"host": [], b"origin": []}
    for name, value in scope["headers"]:
        if name in found:
            found[name].append(value.decode("latin-1"))
    hosts, origins = found.values()
    for host in hosts:
        policy.check_host(host)
    has_effects = scope["type"] == "websocket" or scope["method"] not in SAFE_METHODS
    if check_origin and has_effects:
        for origin in origins:
            policy.check_origin(origin, hosts[0] if hosts else None)


async def _refuse(scope: AsgiScope, send: AsgiSend, detail: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": "host or origin refused"})
        return
    document = {"type": "about:blank", "title": "Forbidden", "status": 403, "detail": detail}
    headers = [(b"content-type", b"application/problem+json"), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps(document).encode()})


def _site(origin: str) -> str:
    """Host and port of an origin, as in a `Host` header; empty if there are none."""
    try:
        return urlsplit(origin.lower()).netloc
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True
