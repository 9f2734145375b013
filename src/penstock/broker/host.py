"""What a terminal finds around it: the broker, as far as a terminal may know it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from penstock.broker.admission import Admission
from penstock.broker.alarms import Alarms
from penstock.broker.kernel import Kernel
from penstock.broker.routing import Router
from penstock.broker.users import Users
from penstock.broker.vhost import VirtualHost


class Client(Protocol):
    """A terminal as the broker and its management see it: somebody is connected."""

    name: str

    def alarms_changed(self) -> None:
        """Publishers are to wait, or may go on."""

    def end(self, reason: str) -> None:
        """Tell the client why, and close."""

    def abort(self) -> None:
        """Close without a word."""

    def describe(self) -> dict[str, Any]: ...

    def describe_channels(self) -> list[dict[str, Any]]: ...

    def describe_consumers(self) -> list[dict[str, Any]]: ...


class Links(Protocol):
    """The links to other brokers, as a terminal sees them."""

    def welcome(self, opened: Any, vhost: str, check_user: Callable[[], None]) -> asyncio.Protocol:
        """A broker has connected and said who it is (`wire/padres`): take its connection over.

        `check_user` raises once the user it came as may no longer link brokers.
        """


class Host(Protocol):
    kernel: Kernel
    users: Users
    vhosts: dict[str, VirtualHost]
    alarms: Alarms
    admission: Admission
    clients: dict[Client, None]
    product: dict[str, Any]  #: what the broker tells of itself
    draining: bool

    @property
    def links(self) -> Links: ...

    def router(self, vhost: str) -> Router[Any]:
        """Of the content space of a virtual host; its envelopes are those of `wire/padres`."""

    def client_left(self, client: Client) -> None:
        """A connection has ended."""
