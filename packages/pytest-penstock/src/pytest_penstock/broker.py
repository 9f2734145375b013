"""A broker on a thread, virtual hosts for tests, and what was published in each.

Messages are recorded where terminals hand them to exchanges, so every protocol is covered, also
messages that no queue took.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote

from penstock.broker.contract import Channel, Fragment, Message
from penstock.broker.permissions import Permission
from penstock.core.basic_properties import BasicProperties, decode_header
from penstock.core.config import BrokerSettings
from penstock.server import Broker
from penstock.server.event_loop import new_event_loop

T = TypeVar("T")

_LISTEN: Final = ["amqp://127.0.0.1:0", "mqtt://127.0.0.1:0", "http://127.0.0.1:0"]
_USER: Final = "guest"
_EVERYTHING: Final = Permission(".*", ".*", ".*")


@dataclass(frozen=True, slots=True)
class PublishedMessage:
    exchange: str
    routing_key: str
    properties: BasicProperties
    body: bytes


@dataclass(slots=True)
class BrokerFixture:
    """One test's virtual host."""

    vhost: str
    url: str  #: AMQP 0-9-1 and 1.0, with user, password and virtual host
    mqtt_url: str  #: the user name has the virtual host: `vhost:guest`
    management_url: str
    _published: list[PublishedMessage] = field(default_factory=list)
    _arrived: threading.Condition = field(default_factory=threading.Condition)

    @property
    def published(self) -> list[PublishedMessage]:
        """All messages that were published to exchanges of the virtual host so far, in order."""
        with self._arrived:
            return list(self._published)

    def wait_for_published(self, count: int = 1, timeout: float = 10.0) -> list[PublishedMessage]:
        """The published messages, as soon as there are that many."""
        with self._arrived:
            if not self._arrived.wait_for(lambda: len(self._published) >= count, timeout):
                raise AssertionError(
                    f"{len(self._published)} of {count} messages were published in {timeout:g} s"
                )
            return list(self._published)

    def record(self, message: PublishedMessage) -> None:
        with self._arrived:
            self._published.append(message)
            self._arrived.notify_all()


class BrokerThread:
    """`with BrokerThread(directory) as broker:` runs a broker on its own thread and loop."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._loop = new_event_loop()
        self._thread = threading.Thread(target=self._run, name="penstock-broker", daemon=True)
        self._broker: Broker | None = None
        self.ready_seconds = 0.0  #: how long the start took

    def __enter__(self) -> Self:
        began = time.perf_counter()
        self._thread.start()
        try:
            self._call(self._start)
        except BaseException:
            self._end_thread()
            raise
        self.ready_seconds = time.perf_counter() - began
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._call(self.broker.close)
        finally:
            self._end_thread()

    @property
    def broker(self) -> Broker:
        assert self._broker is not None, "the broker has not been started"
        return self._broker

    @contextmanager
    def virtual_host(self) -> Iterator[BrokerFixture]:
        name = f"test-{uuid.uuid4().hex[:12]}"
        amqp, mqtt, http = self.broker.addresses
        fixture = BrokerFixture(
            name,
            f"{_with_user(amqp, _USER)}/{name}",
            _with_user(mqtt, quote(f"{name}:{_USER}", safe="")),
            _with_user(http, _USER),
        )
        self._call(lambda: self._open(name, fixture))
        try:
            yield fixture
        finally:
            self._call(lambda: self._delete(name))

    # On the loop's thread.

    async def _start(self) -> None:
        settings = BrokerSettings(listen=_LISTEN, drain_seconds=0.0)
        self._broker = Broker(settings, data=self._data)
        await self._broker.start()

    async def _open(self, name: str, fixture: BrokerFixture) -> None:
        self.broker.users.set_permissions(_USER, name, _EVERYTHING)
        vhost = self.broker.add_vhost(name)
        make = vhost.exchange_types
        for exchange in vhost.exchanges.values():
            _record_posts(exchange, fixture)
        vhost.exchange_types = {kind: _recorded(factory, fixture) for kind, factory in make.items()}

    async def _delete(self, name: str) -> None:
        self.broker.delete_vhost(name)
        self.broker.users.clear_permissions(_USER, name)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def _call(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return asyncio.run_coroutine_threadsafe(work(), self._loop).result()

    def _end_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


def _with_user(address: str, user: str) -> str:
    return address.replace("://", f"://{user}:{_USER}@", 1)


def _recorded(factory: Callable[..., Any], fixture: BrokerFixture) -> Callable[..., Any]:
    def make(*arguments: Any, **options: Any) -> Any:
        exchange = factory(*arguments, **options)
        _record_posts(exchange, fixture)
        return exchange

    return make


def _record_posts(exchange: Any, fixture: BrokerFixture) -> None:
    """Record what terminals post to an exchange; large messages when their last part has come."""
    post = exchange.channel_post
    partial: dict[Channel, tuple[Message, list[bytes]]] = {}

    def channel_post(channel: Channel, fragment: Message | Fragment, receipt: int = 0) -> None:
        first, parts = (fragment, []) if isinstance(fragment, Message) else partial.pop(channel)
        parts.append(bytes(fragment.body))
        if fragment.more:
            partial[channel] = first, parts
        else:
            fixture.record(
                PublishedMessage(
                    exchange.name, first.routing_key, decode_header(first.header), b"".join(parts)
                )
            )
        post(channel, fragment, receipt)

    exchange.channel_post = channel_post
