"""Which names an HTTP service answers to, and whose pages may use it.

A page of any site can have a browser connect to a service on the same machine or network. Two
headers tell such a request from others, and a page cannot change them:

* `Host`: the name the browser believes it talks to. With DNS rebinding a site lets its own name
  resolve to our address, so that the browser takes us for that site. Addresses, `localhost` and the
  machine's own name cannot be taken over so; any other name has to be allowed.
* `Origin`: the site of the page. It has to be the service itself, or a site that is allowed.

Programs that are no browsers send a `Host` that they were configured with, and no `Origin`.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from ipaddress import ip_address
from typing import Any, Final
from urllib.parse import urlsplit

from penstock.core.errors import AccessRefused

#: Allowed hosts that are remembered.
MAX_CACHED_HOSTS: Final = 256
#: In a list: every name, or every site.
ANY_HOST: Final = "*"

AsgiScope = MutableMapping[str, Any]
AsgiMessage = MutableMapping[str, Any]
AsgiReceive = Callable[[], Awaitable[AsgiMessage]]
AsgiSend = Callable[[AsgiMessage], Awaitable[None]]
AsgiApp = Callable[[AsgiScope, AsgiReceive, AsgiSend], Awaitable[None]]

#: Methods that change nothing: what they return, a page of another site cannot read.
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class HostPolicy:
    """The names and sites that are allowed; `setting` is where an administrator adds one."""

    __slots__ = ("_hosts", "_origins", "_seen", "_setting")

    def __init__(
        self, hosts: Iterable[str] = (), origins: Iterable[str] = (), *, setting: str
    ) -> None:
        own = socket.gethostname()
        self._hosts = {name.lower().rstrip(".") for name in (*hosts, own, own.partition(".")[0])}
        self._origins = {origin.lower().rstrip("/") for origin in origins}
        self._setting = setting
        self._seen: set[str] = set()  # hosts that were allowed, as they were written

    def check_host(self, host: str | None) -> None:
        """Raises `AccessRefused` for a request to a name that is not ours."""
        if host is None or host in self._seen:
            return
        if not self._is_ours(host):
            raise AccessRefused(
                f"host {host!r} is none of this service's names: use its address or localhost, or "
                f"allow the name with {self._setting}"
            )
        if len(self._seen) < MAX_CACHED_HOSTS:
            self._seen.add(host)

    def check_origin(self, origin: str | None, host: str | None) -> None:
        """Raises `AccessRefused` for a page of another site; `host` has been checked."""
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
    """An ASGI application behind a policy."""

    def __init__(self, app: AsgiApp, policy: HostPolicy) -> None:
        self._app = app
        self._policy = policy

    async def __call__(self, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        if scope["type"] in ("http", "websocket"):
            try:
                check_scope(self._policy, scope)
            except AccessRefused as error:
                await _refuse(scope, send, str(error))
                return
        await self._app(scope, receive, send)


def check_scope(policy: HostPolicy, scope: AsgiScope) -> None:
    """The same for a request of ASGI; a page of another site may read what is public."""
    found: dict[bytes, list[str]] = {b"host": [], b"origin": []}
    for name, value in scope["headers"]:
        if name in found:
            found[name].append(value.decode("latin-1"))
    hosts, origins = found.values()
    for host in hosts:
        policy.check_host(host)
    if scope["type"] == "websocket" or scope["method"] not in SAFE_METHODS:
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
    """Host and port of an origin, as a `Host` header has them; empty for none."""
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
