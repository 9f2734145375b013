"""A call: a request, who makes it, and what its path names, as handlers see it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.access import Access
from penstock.broker.turn import TURN_SECONDS
from penstock.broker.user import User
from penstock.core.errors import AccessRefused, NotFound
from penstock.core.units import parse_count
from penstock.server.management.errors import bad_request
from penstock.server.management.http import Request

if TYPE_CHECKING:
    from penstock.broker.destinations import Exchange, Queue
    from penstock.broker.vhost import VirtualHost
    from penstock.server.broker import Broker
    from penstock.server.management.rates import Rates

#: A body that is one object; definitions may be larger.
BODY_BYTES: Final = 16 << 20

#: In paths, the exchange that has no name.
DEFAULT_EXCHANGE: Final = "amq.default"

#: Things done between two looks at the clock.
SLICE: Final = 16


class Level(IntEnum):
    """What a call asks of the user's tags; each level includes those before it."""

    ANYONE = 0  #: not even a name
    USER = 1  #: a name and a password
    MANAGEMENT = 2  #: their own connections, and the virtual hosts they may enter
    MONITORING = 3  #: everybody's connections, all virtual hosts, the node
    ADMINISTRATOR = 4  #: users, virtual hosts, permissions, definitions


_LEVELS: Final = {
    "management": Level.MANAGEMENT,
    "policymaker": Level.MANAGEMENT,
    "monitoring": Level.MONITORING,
    "administrator": Level.ADMINISTRATOR,
}


def level_of(user: User) -> Level:
    return max((_LEVELS.get(tag, Level.USER) for tag in user.tags), default=Level.USER)


@dataclass(frozen=True, slots=True)
class Call:
    broker: Broker
    rates: Rates
    request: Request
    user: User
    names: dict[str, str]  #: the variable parts of the path

    def within(self, vhost: str) -> Call:
        """The same call with its virtual host named elsewhere than in the path."""
        return replace(self, names={**self.names, "vhost": vhost})

    # What the path names.

    @property
    def vhost(self) -> VirtualHost:
        """The virtual host in the path; the user may enter it."""
        return self.vhost_named(self.names["vhost"])

    def vhost_named(self, name: str) -> VirtualHost:
        vhost = self.broker.vhosts.get(name)
        if vhost is None:
            raise NotFound(f"no vhost '{name}'")
        if not self.broker.users.may_enter(self.user, name):
            raise AccessRefused("User not authorised to access virtual host")
        return vhost

    def vhosts(self) -> list[VirtualHost]:
        """The one in the path, or all that the user may enter."""
        if "vhost" in self.names:
            return [self.vhost]
        users = self.broker.users
        return [
            host for host in self.broker.vhosts.values() if users.may_enter(self.user, host.name)
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

    # Who asks.

    @property
    def access(self) -> Access:
        """The user's permissions in the virtual host of the path."""
        return Access(self.broker.users, self.user, self.vhost.name)

    def allows(self, level: Level) -> bool:
        return level_of(self.user) >= level

    # What was sent along.

    def flag(self, name: str) -> bool:
        return self.request.query.get(name) == "true"

    async def body(self, limit: int = BODY_BYTES) -> dict[str, Any]:
        """The JSON object that was sent; nothing is the empty one."""
        raw = await self.request.read(limit)
        if not raw.strip():
            return {}
        try:
            value = json.loads(raw)
        except (ValueError, RecursionError):
            raise bad_request("not_json") from None
        if not isinstance(value, dict):
            raise bad_request("an object is expected")
        return value

    # Work.

    def done(self) -> None:
        """What was changed takes effect: the turn ends."""
        self.broker.kernel.turn.end()


async def in_slices(things: Iterable[Any], count: int = SLICE) -> AsyncIterator[Any]:
    """The same things, with a pause for others whenever a turn's time is over."""
    deadline = monotonic() + TURN_SECONDS
    for number, thing in enumerate(things, 1):
        yield thing
        if number % count == 0 and monotonic() > deadline:
            await asyncio.sleep(0)
            deadline = monotonic() + TURN_SECONDS


def required(body: dict[str, Any], *keys: str) -> Iterator[Any]:
    """The values of the keys; raises when one is missing."""
    missing = [key for key in keys if key not in body]
    if missing:
        raise bad_request("key_missing: " + ", ".join(missing))
    return (body[key] for key in keys)


def flag_in(body: dict[str, Any], key: str) -> bool:
    value = body.get(key, False)
    if value in ("true", "false"):
        return bool(value == "true")
    if not isinstance(value, bool):
        raise bad_request(f"{key}: a boolean is expected, not {value!r}")
    return value


def table_in(body: dict[str, Any], key: str) -> dict[str, Any]:
    value = body.get(key) or {}
    if not isinstance(value, dict):
        raise bad_request(f"{key}: an object is expected, not {value!r}")
    return value


def number_in(body: dict[str, Any], key: str, default: int) -> int:
    """A count; RabbitMQ's own command line sends it as text."""
    value = body.get(key, default)
    if isinstance(value, str):
        value = parse_count(value)
    if type(value) is not int or value < 0:
        raise bad_request(f"{key}: a whole number is expected, not {body[key]!r}")
    return value


def text_in(body: dict[str, Any], key: str, default: str = "") -> str:
    value = body.get(key, default)
    if not isinstance(value, str):
        raise bad_request(f"{key}: a string is expected, not {value!r}")
    return value
