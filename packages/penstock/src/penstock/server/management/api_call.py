"""A call of the management API as handlers see it, and the table of routes.

Paths are split before they are percent-decoded, so that the virtual host `/` is one part (`%2F`).
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from penstock.broker.user import User
from penstock.broker.users import AccessControl
from penstock.broker.write_batch import MAX_BATCH_SECONDS
from penstock.core.errors import AccessRefused, NotFound
from penstock.core.units import parse_count
from penstock.server.management.http import (
    HttpRequest,
    HttpResponse,
    RequestHandler,
    bad_request,
)

if TYPE_CHECKING:
    from penstock.broker.auth.authorization_code import AuthorizationCodeClient
    from penstock.broker.contract import Exchange, Queue
    from penstock.broker.vhost import VirtualHost
    from penstock.server.broker import Broker
    from penstock.server.management.metrics import RateSampler
    from penstock.server.management.sections import SectionProcess


#: The largest body, except that of definitions.
MAX_BODY_BYTES: Final = 16 << 20

#: The default exchange in paths.
DEFAULT_EXCHANGE: Final = "amq.default"

#: Items between two checks of the clock.
ITEMS_PER_SLICE: Final = 16


class AccessLevel(IntEnum):
    """What a route requires of the user's tags; each level includes those before it."""

    ANYONE = 0  #: no authentication
    USER = 1  #: any user
    MANAGEMENT = 2  #: the user's own connections and virtual hosts
    POLICYMAKER = 3  #: policies of these virtual hosts; the tag `monitoring` does not include it
    MONITORING = 4  #: all connections, all virtual hosts, the node
    ADMINISTRATOR = 5  #: users, virtual hosts, permissions, definitions


_LEVELS: Final = {
    "management": AccessLevel.MANAGEMENT,
    "policymaker": AccessLevel.POLICYMAKER,
    "monitoring": AccessLevel.MONITORING,
    "administrator": AccessLevel.ADMINISTRATOR,
}


def has_access(user: User, level: AccessLevel) -> bool:
    if level is AccessLevel.POLICYMAKER:
        return not {"policymaker", "administrator"}.isdisjoint(user.tags)
    return any(_LEVELS.get(tag, AccessLevel.USER) >= level for tag in (*user.tags, ""))


@dataclass(frozen=True, slots=True)
class ApiCall:
    broker: Broker
    rates: RateSampler
    request: HttpRequest
    user: User
    names: dict[str, str]  #: variables of the path
    answer: RequestHandler  #: makes another call, with the same checks
    closing: asyncio.Event  #: the server closes: long responses end
    sections: SectionProcess  #: of installed packages
    login: AuthorizationCodeClient | None  #: at the token issuer, if there is one

    def within(self, vhost: str) -> ApiCall:
        """The same call for a virtual host that is not in the path."""
        return replace(self, names={**self.names, "vhost": vhost})

    @property
    def vhost(self) -> VirtualHost:
        """The virtual host in the path; raises if the user has no access."""
        return self.vhost_named(self.names["vhost"])

    def vhost_named(self, name: str) -> VirtualHost:
        vhost = self.broker.vhosts.get(name)
        if vhost is None:
            raise NotFound(f"no vhost '{name}'")
        if not self.broker.users.can_access_vhost(self.user, name):
            raise AccessRefused("User not authorised to access virtual host")
        return vhost

    def vhosts(self) -> list[VirtualHost]:
        """The one in the path, or all to which the user has access."""
        if "vhost" in self.names:
            return [self.vhost]
        users = self.broker.users
        return [
            host
            for host in self.broker.vhosts.values()
            if users.can_access_vhost(self.user, host.name)
        ]

    @property
    def name(self) -> str:
        return self.names["name"]

    @property
    def exchange(self) -> Exchange:
        return self.vhost.exchange(self.exchange_name)

    @property
    def exchange_name(self) -> str:
        return "" if self.name == DEFAULT_EXCHANGE else self.name

    @property
    def queue(self) -> Queue:
        return self.vhost.queue(self.name)

    @property
    def access(self) -> AccessControl:
        """The user's permissions in the virtual host of the path."""
        return AccessControl(self.broker.users, self.user, self.vhost.name)

    def allows(self, level: AccessLevel) -> bool:
        return has_access(self.user, level)

    def flag(self, name: str) -> bool:
        return self.request.query.get(name) == "true"

    async def body(self, limit: int = MAX_BODY_BYTES) -> dict[str, Any]:
        """The JSON object in the body; an empty body is an empty object."""
        raw = await self.request.read(limit)
        if not raw.strip():
            return {}
        try:
            value = json.loads(raw)
        except (ValueError, RecursionError):
            raise bad_request("not_json") from None
        if not isinstance(value, dict):
            raise bad_request("a JSON object is expected")
        return value

    def done(self) -> None:
        """End the write batch: changes take effect."""
        self.broker.kernel.write_batch.flush()


async def iterate_in_slices(
    items: Iterable[Any], count: int = ITEMS_PER_SLICE
) -> AsyncIterator[Any]:
    """The same items, yielding to the event loop when the time of a write batch is over."""
    deadline = monotonic() + MAX_BATCH_SECONDS
    for number, item in enumerate(items, 1):
        yield item
        if number % count == 0 and monotonic() > deadline:
            await asyncio.sleep(0)
            deadline = monotonic() + MAX_BATCH_SECONDS


async def committed(call: ApiCall) -> None:
    """Wait until everything appended so far is on disk."""
    kernel = call.broker.kernel
    written: asyncio.Future[None] = kernel.loop.create_future()
    kernel.committer.after(lambda: written.set_result(None), written.set_exception)
    kernel.write_batch.flush()
    await written


def required_fields(body: dict[str, Any], *keys: str) -> Iterator[Any]:
    missing = [key for key in keys if key not in body]
    if missing:
        raise bad_request("key_missing: " + ", ".join(missing))
    return (body[key] for key in keys)


def flag_field(body: dict[str, Any], key: str) -> bool:
    value = body.get(key, False)
    if value in ("true", "false"):
        return bool(value == "true")
    if not isinstance(value, bool):
        raise bad_request(f"{key}: a boolean is expected, not {value!r}")
    return value


def table_field(body: dict[str, Any], key: str) -> dict[str, Any]:
    value = body.get(key) or {}
    if not isinstance(value, dict):
        raise bad_request(f"{key}: an object is expected, not {value!r}")
    return value


def number_field(body: dict[str, Any], key: str, default: int) -> int:
    """RabbitMQ's command line sends numbers as strings."""
    value = body.get(key, default)
    if isinstance(value, str):
        value = parse_count(value)
    if type(value) is not int or value < 0:
        raise bad_request(f"{key}: a whole number is expected, not {body[key]!r}")
    return value


def text_field(body: dict[str, Any], key: str, default: str = "") -> str:
    value = body.get(key, default)
    if not isinstance(value, str):
        raise bad_request(f"{key}: a string is expected, not {value!r}")
    return value


Handler = Callable[[ApiCall], Awaitable[HttpResponse]]


@dataclass(frozen=True, slots=True)
class ApiRoute:
    method: str
    path: str  #: with variables in braces: `/api/queues/{vhost}/{name}`
    handler: Handler
    level: AccessLevel = AccessLevel.MANAGEMENT

    @property
    def summary(self) -> str:
        """What the call does, for the reference: the first paragraph of the handler's docstring."""
        text = inspect.getdoc(self.handler) or ""
        return text.partition("\n\n")[0].replace("\n", " ")


class RouteTable:
    def __init__(self, routes: Iterable[ApiRoute]) -> None:
        self._by_parts: dict[int, dict[tuple[str, ...], dict[str, ApiRoute]]] = {}
        for route in routes:
            parts = tuple(route.path.strip("/").split("/"))
            paths = self._by_parts.setdefault(len(parts), {})
            paths.setdefault(parts, {})[route.method] = route

    def find(self, path: str) -> tuple[dict[str, ApiRoute], dict[str, str]] | None:
        """The routes of a path by method, and its variables."""
        parts = [unquote(part) for part in path.removeprefix("/").split("/")]
        if len(parts) > 1 and not parts[-1]:
            parts.pop()
        for pattern, methods in self._by_parts.get(len(parts), {}).items():
            names = _match_path(pattern, parts)
            if names is not None:
                return methods, names
        return None


def _match_path(pattern: tuple[str, ...], parts: list[str]) -> dict[str, str] | None:
    names: dict[str, str] = {}
    for expected, part in zip(pattern, parts, strict=True):
        if expected.startswith("{"):
            names[expected[1:-1]] = part
        elif expected != part:
            return None
    return names
