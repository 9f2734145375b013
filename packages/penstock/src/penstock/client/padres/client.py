"""A PADRES client: advertises, subscribes and publishes in the content language.

    async with PadresClient("padres://localhost/Broker1", id="ada") as client:
        await client.advertise("[class,eq,stock],[price,>,0]")
        await client.subscribe("[class,eq,stock],[price,<,50]")
        await client.publish("[class,stock],[price,45]")
        async for received in client:
            print(received["price"], received.payload)

A client can have several brokers; methods without `broker` use the first one. Publications go to
the client's inbox, unless other inboxes (`inbox`) want them. Closing withdraws all registrations.
The subscriptions of a *lasting* client stay: the broker stores their publications until the client
connects again with its id.
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
        id: str = "",  # noqa: A002 - the term of PADRES
        lasting: bool = False,
        attentive: bool = False,
        tls: ssl.SSLContext | None = None,
        retry_seconds: float = 0.0,
    ) -> None:
        """Without an id, the first broker assigns one. A lasting client needs an id. An attentive
        client gets the subscriptions that match its advertisements, in `interests`."""
        if lasting and not id:
            raise PreconditionFailed("a lasting client needs an id to find its subscriptions")
        self.id = id
        self.brokers: dict[str, PadresRecoveringConnection] = {}  #: by id, in order
        self._urls = urls
        self._lasting = lasting
        self._attentive = attentive
        self._tls = tls
        self._retry_seconds = retry_seconds
        self.interests: PublicationInbox[SubscriptionNotice] = PublicationInbox()
        self._inbox: PublicationInbox[ReceivedPublication] = PublicationInbox()
        self._inboxes: dict[PublicationInbox[ReceivedPublication], tuple[Subscription, ...]] = {}

    async def open(self) -> Self:
        try:
            for url in self._urls:
                await self.connect(url)
        except BaseException:
            await self.close()
            raise
        return self

    async def connect(self, url: str) -> str:
        """Connect to another broker; returns its id."""
        endpoint = parse_endpoint(url)
        if endpoint.broker in self.brokers:
            raise PreconditionFailed(f"the client is already connected to {endpoint.broker}")
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
            raise PreconditionFailed(f"the client is already connected to {broker.id}")
        self.id = self.id or broker.client_id
        self.brokers[broker.id] = broker
        return broker.id

    async def disconnect(self, broker: str = "") -> None:
        """Withdraws all registrations at the broker, unless the client is lasting."""
        found = self._broker(broker)
        del self.brokers[found.id]
        await found.close()

    async def close(self) -> None:
        for inbox in (self._inbox, *self._inboxes):
            inbox.finish()
        self.interests.finish()
        for broker in list(self.brokers):
            await self.disconnect(broker)
        for inbox in (self._inbox, *self._inboxes):
            inbox.fail(FabricClosed("the client is closed"))
        self.interests.fail(FabricClosed("the client is closed"))

    def _broker(self, id_: str) -> PadresRecoveringConnection:
        if not self.brokers:
            raise NotFound("the client is not connected to a broker")
        if not id_:
            return next(iter(self.brokers.values()))
        if id_ not in self.brokers:
            raise NotFound(f"no connection to {id_}; the brokers are {', '.join(self.brokers)}")
        return self.brokers[id_]

    async def advertise(self, text: str, *, broker: str = "", ttl: int = UNLIMITED_TTL) -> str:
        """Announce publications; returns the id to withdraw the advertisement with."""
        return await self._broker(broker).register(
            PadresEnvelope(EnvelopeKind.ADVERTISE, text, ttl=ttl)
        )

    async def subscribe(self, text: str, *, broker: str = "", **options: object) -> str:
        """Returns the id. A composite subscription is in braces.

        Options of a composite are `policy`, `size` and `seconds`. `several=True` allows several
        predicates for one attribute.
        """
        kind = EnvelopeKind.COMPOSITE if text.lstrip().startswith("{") else EnvelopeKind.SUBSCRIBE
        option_pairs = tuple((name, str(value).lower()) for name, value in options.items())
        return await self._broker(broker).register(PadresEnvelope(kind, text, options=option_pairs))

    async def withdraw(self, id_: str) -> None:
        """Withdraw an advertisement or a subscription, at its broker."""
        for broker in self.brokers.values():
            if id_ in broker.registrations:
                await broker.unregister(id_)
                return
        raise NotFound(f"the client has no registration {id_!r}")

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
        """Returns the id of the publication when the broker has confirmed it.

        It is sent again after each lost connection, until it is confirmed.
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
        return await self._broker(broker).send(envelope)

    async def post(
        self, text: str, payload: bytes = b"", *, broker: str = "", durable: bool = True
    ) -> Awaitable[str]:
        """Returns when the socket accepts more; the result is done at the confirm."""
        found = self._broker(broker)
        await found.writable()
        sending = found.send(
            PadresEnvelope(EnvelopeKind.PUBLISH, text, payload=payload, durable=durable)
        )
        return asyncio.ensure_future(sending)

    @property
    def registrations(self) -> list[tuple[str, PadresRegistration]]:
        """Advertisements and subscriptions, each with the id of its broker."""
        return [
            (broker.id, registration)
            for broker in self.brokers.values()
            for registration in broker.registrations.values()
        ]

    def inbox(self, *filters: str) -> PublicationInbox[ReceivedPublication]:
        """An inbox for received publications that satisfy one of these subscriptions.

        It does not subscribe. A publication goes to all inboxes that want it, or to the client's
        own if there is none.
        """
        wanted = tuple(parse_subscription(text, several=True) for text in filters)
        inbox: PublicationInbox[ReceivedPublication] = PublicationInbox(self._inboxes.__delitem__)
        self._inboxes[inbox] = wanted
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
        inboxes = [
            inbox
            for inbox, wanted in self._inboxes.items()
            if not wanted or any(satisfies(publication, one) for one in wanted)
        ]
        inboxes = inboxes or [self._inbox]
        entry = reading.begin(receipt, len(inboxes))
        for inbox in inboxes:
            inbox.put(received, entry)

    def _failed(self, broker: PadresRecoveringConnection, error: PenstockError) -> None:
        """A reconnect was refused. Without another broker, nothing more will be received."""
        others = [one for one in self.brokers.values() if one is not broker]
        if not others:
            for inbox in (self._inbox, *self._inboxes):
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
        if error is not None:  # unread: a lasting client gets it again
            for inbox in (self._inbox, *self._inboxes):
                inbox.drop()
            self.interests.drop()
        await self.close()
