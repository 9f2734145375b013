"""A PADRES client: advertises, subscribes and publishes in the content language.

    async with Client("padres://localhost/Broker1", id="ada") as client:
        await client.advertise("[class,eq,stock],[price,>,0]")
        await client.subscribe("[class,eq,stock],[price,<,50]")
        await client.publish("[class,stock],[price,45]")
        async for received in client:
            print(received["price"], received.payload)

It may be connected to several brokers at once, of which the first is meant where none is named.
Publications wait in the client's own inbox, unless others (`inbox`) want them. Leaving withdraws
all it asked for, except that a *lasting* client's subscriptions stay, and what comes meanwhile
waits at the broker until it returns under its id.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable
from types import TracebackType
from typing import Self

from penstock.client.errors import FabricClosed
from penstock.client.padres.connection import PadresRecoveringConnection, PadresRegistration
from penstock.client.padres.endpoint import parse_endpoint
from penstock.client.padres.inbox import (
    PublicationInbox,
    ReadProgress,
    ReceivedPublication,
    SubscriptionNotice,
)
from penstock.content import Subscription, parse_subscription, satisfies
from penstock.core.errors import NotFound, PenstockError, PreconditionFailed
from penstock.wire.padres.envelope import (
    DEFAULT_PRIORITY,
    UNLIMITED_TTL,
    EnvelopeKind,
    PadresEnvelope,
)


class PadresClient:
    def __init__(
        self,
        *urls: str,
        id: str = "",  # noqa: A002 - PADRES' word
        lasting: bool = False,
        attentive: bool = False,
        tls: ssl.SSLContext | None = None,
        retry_seconds: float = 0.0,
    ) -> None:
        """Without an id the first broker gives it one; a lasting client has to say who it is.

        An attentive one is told by `interests` who subscribes to what it advertises.
        """
        if lasting and not id:
            raise PreconditionFailed("a lasting client needs an id, to be known by when it returns")
        self.id = id
        self.brokers: dict[
            str, PadresRecoveringConnection
        ] = {}  #: by id, in the order they were connected
        self._urls = urls
        self._lasting = lasting
        self._attentive = attentive
        self._tls = tls
        self._retry_seconds = retry_seconds
        self.interests: PublicationInbox[SubscriptionNotice] = PublicationInbox()
        self._inbox: PublicationInbox[ReceivedPublication] = PublicationInbox()
        self._others: dict[PublicationInbox[ReceivedPublication], tuple[Subscription, ...]] = {}

    # Brokers.

    async def open(self) -> Self:
        try:
            for url in self._urls:
                await self.connect(url)
        except BaseException:
            await self.close()
            raise
        return self

    async def connect(self, url: str) -> str:
        """One more broker; returns its id."""
        endpoint = parse_endpoint(url)
        if endpoint.broker in self.brokers:
            raise PreconditionFailed(f"there is a connection to {endpoint.broker} already")
        broker = PadresRecoveringConnection(
            endpoint,
            self.id,
            lasting=self._lasting,
            attentive=self._attentive,
            tls=self._tls,
            take=self._take,
            failed=self._failed,
        )
        await broker.open(self._retry_seconds)
        if broker.id in self.brokers:
            await broker.close()
            raise PreconditionFailed(f"there is a connection to {broker.id} already")
        self.id = self.id or broker.client_id
        self.brokers[broker.id] = broker
        return broker.id

    async def disconnect(self, broker: str = "") -> None:
        """Leave a broker; what was asked for there is withdrawn, unless the client is lasting."""
        found = self._broker(broker)
        del self.brokers[found.id]
        await found.close()

    async def close(self) -> None:
        for inbox in (self._inbox, *self._others):
            inbox.finish()
        self.interests.finish()
        for broker in list(self.brokers):
            await self.disconnect(broker)
        for inbox in (self._inbox, *self._others):
            inbox.fail(FabricClosed("the client is closed"))
        self.interests.fail(FabricClosed("the client is closed"))

    def _broker(self, id_: str) -> PadresRecoveringConnection:
        if not self.brokers:
            raise NotFound("the client is not connected to a broker")
        if not id_:
            return next(iter(self.brokers.values()))
        if id_ not in self.brokers:
            raise NotFound(f"no connection to {id_}: there are {', '.join(self.brokers)}")
        return self.brokers[id_]

    # Messages.

    async def advertise(self, text: str, *, broker: str = "", ttl: int = UNLIMITED_TTL) -> str:
        """Say what is going to be published; returns the id it is withdrawn by."""
        return await self._broker(broker).ask(PadresEnvelope(EnvelopeKind.ADVERTISE, text, ttl=ttl))

    async def subscribe(self, text: str, *, broker: str = "", **options: object) -> str:
        """Ask for publications; returns the id. A composite subscription stands in braces.

        Options of a composite are `policy`, `size` and `seconds`; any may have `several=True`, so
        that one attribute can have several predicates.
        """
        kind = EnvelopeKind.COMPOSITE if text.lstrip().startswith("{") else EnvelopeKind.SUBSCRIBE
        option_pairs = tuple((name, str(value).lower()) for name, value in options.items())
        return await self._broker(broker).ask(PadresEnvelope(kind, text, options=option_pairs))

    async def withdraw(self, id_: str) -> None:
        """Undo an advertisement or a subscription, at whichever broker it was asked for."""
        for broker in self.brokers.values():
            if id_ in broker.asked:
                await broker.undo(id_)
                return
        raise NotFound(f"nothing of this client has the id {id_!r}")

    async def publish(
        self,
        text: str,
        payload: bytes = b"",
        *,
        broker: str = "",
        priority: int = DEFAULT_PRIORITY,
        ttl: int = UNLIMITED_TTL,
        trace: str = "",
        durable: bool = True,
    ) -> str:
        """Returns the publication's id when the broker has it safe.

        It is said again, for as long as connections break before the broker's word arrives.
        """
        envelope = PadresEnvelope(
            EnvelopeKind.PUBLISH,
            text,
            payload=payload,
            priority=priority,
            ttl=ttl,
            trace=trace,
            durable=durable,
        )
        return await self._broker(broker).say(envelope)

    async def post(
        self, text: str, payload: bytes = b"", *, broker: str = "", durable: bool = True
    ) -> Awaitable[str]:
        """Returns when there is room for more; await the result to know it is safe."""
        found = self._broker(broker)
        await found.room()
        saying = found.say(
            PadresEnvelope(EnvelopeKind.PUBLISH, text, payload=payload, durable=durable)
        )
        return asyncio.ensure_future(saying)

    @property
    def asked(self) -> list[tuple[str, PadresRegistration]]:
        """What was advertised and subscribed to, each with the broker it was asked of."""
        return [(one.id, asked) for one in self.brokers.values() for asked in one.asked.values()]

    # Publications.

    def inbox(self, *filters: str) -> PublicationInbox[ReceivedPublication]:
        """A place of their own for publications that satisfy one of these subscriptions.

        It asks no broker for anything: it parts what comes. What no such place wants goes to the
        client itself; what several want goes to each.
        """
        wanted = tuple(parse_subscription(text, several=True) for text in filters)
        inbox: PublicationInbox[ReceivedPublication] = PublicationInbox(self._others.__delitem__)
        self._others[inbox] = wanted
        return inbox

    async def receive(self) -> ReceivedPublication:
        return await self._inbox.receive()

    def __aiter__(self) -> AsyncIterator[ReceivedPublication]:
        return aiter(self._inbox)

    def _take(
        self, broker: str, envelope: PadresEnvelope, reading: ReadProgress, receipt: int
    ) -> None:
        if envelope.kind is not EnvelopeKind.PUBLISH:
            self.interests.put(SubscriptionNotice.of(envelope, broker), reading.begin(receipt, 1))
            return
        received = ReceivedPublication.of(envelope, broker)
        publication = received.publication
        places = [
            inbox
            for inbox, wanted in self._others.items()
            if not wanted or any(satisfies(publication, one) for one in wanted)
        ]
        places = places or [self._inbox]
        entry = reading.begin(receipt, len(places))
        for place in places:
            place.put(received, entry)

    def _failed(self, broker: PadresRecoveringConnection, error: PenstockError) -> None:
        """A broker will not have us back: if there is no other, that is all there will be."""
        others = [one for one in self.brokers.values() if one is not broker]
        if not others:
            for inbox in (self._inbox, *self._others):
                inbox.fail(error)
            self.interests.fail(error)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:  # what is in hand was not dealt with: a lasting client gets it again
            for inbox in (self._inbox, *self._others):
                inbox.drop()
            self.interests.drop()
        await self.close()
