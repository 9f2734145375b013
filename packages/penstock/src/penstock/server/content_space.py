"""The content space of a virtual host: one x-content exchange and the router's hops, together.

What AMQP and MQTT clients publish to the exchange reaches whoever subscribed at the router, and
what enters there reaches the exchange's bindings: to the router the exchange is a hop like any
other, with what its bindings ask for as subscriptions. What it publishes is advertised for it as it
is seen, so that brokers further away know where to ask.

To clients the space is their router. What they publish goes to the bindings that take everything,
too, wanted or not: the stream that keeps publications is one of those.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from penstock.broker.content_header import message_priority
from penstock.broker.content_routing import ContentRouter, Hop, RouterReceipt
from penstock.broker.contract import ACCEPTED, PRIORITY, Binding, Message
from penstock.content.advertisement_inference import AdvertisementInference
from penstock.content.formatter import format_message, is_name
from penstock.content.messages import Publication, Subscription
from penstock.content.parser import PublicationCache
from penstock.core.basic_properties import decode_header
from penstock.core.errors import PenstockError, ResourceExhausted
from penstock.core.logs import get_logger
from penstock.destinations.content_exchange import ContentExchangeRouter, push_to_destination
from penstock.destinations.exchange import ExchangeDriver
from penstock.destinations.publications import CONTENT_TYPE, encode_publication
from penstock.overlay.messages import RESERVED_CLASSES
from penstock.wire.padres.envelope import DEFAULT_PRIORITY as ORDINARY
from penstock.wire.padres.envelope import EnvelopeKind, PadresEnvelope

if TYPE_CHECKING:
    from penstock.broker.vhost import VirtualHost

#: AMQP's most urgent priority that queues usually know; the language counts down to 0.
HIGHEST_PRIORITY: Final = 9
#: The largest payload of an AMQP or MQTT client's that PADRES clients get, unless they may send
#: each other larger ones. It is in memory for as long as it waits for them.
MAX_PAYLOAD_BYTES: Final = 16 * 1024 * 1024

_log = get_logger("penstock.content")


class ExchangeHop:
    """The exchange as the router sees it, and the router as the exchange does."""

    durable = False  #: its bindings are kept by the virtual host
    checked = False

    def __init__(
        self,
        exchange: ExchangeDriver,
        router: ContentRouter[PadresEnvelope],
        read: PublicationCache,
    ) -> None:
        self.name = f"{router.broker_id}-exchange-{exchange.name}"
        self._exchange = exchange
        assert isinstance(exchange.router, ContentExchangeRouter)
        self._content = exchange.router
        self._router = router
        self._read = read
        settings = exchange.vhost.kernel.settings.padres
        self._most_payload = max(MAX_PAYLOAD_BYTES, settings.max_frame_bytes)
        self._here = f"{router.broker_id}-"
        self._wanted: dict[Binding, list[str]] = {}
        self._asked: Counter[str] = Counter()  # by destination
        self.most = 0  #: how much one destination may ask for; 0 for any number
        self._announcing = AdvertisementInference(self._announce, self._withdraw)
        self._passing: Message | None = None  # comes from the router, and is not to go back

    # What the router says.

    def deliver(self, envelope: PadresEnvelope) -> int:
        if envelope.source == self.name:
            return ACCEPTED  # the exchange has seen to it
        avoid: frozenset[str] = frozenset()
        if envelope.source.startswith(self._here):  # then they have it from `keep`
            avoid = frozenset(one.name for one in self._content.everything)
        message = self._message(envelope, envelope.id)
        self._passing = message
        try:
            return self._exchange.accept(message, avoid)
        finally:
            self._passing = None

    def keep(self, envelope: PadresEnvelope, id_: str) -> int:
        """A client's publication, for those who take everything."""
        outcome = ACCEPTED
        everything = self._content.everything
        if everything:
            message = self._message(envelope, id_)
            for one in everything:
                outcome |= push_to_destination(one, message)
        return outcome

    def _message(self, envelope: PadresEnvelope, id_: str) -> Message:
        return envelope_to_message(envelope, self._read(envelope.text), self._exchange.name, id_)

    # What the exchange says.

    def push(self, message: Message) -> int:
        publication = None if message is self._passing else self._content.said(message)
        if publication is None or publication.class_name in RESERVED_CLASSES:
            return ACCEPTED  # brokers are not controlled from here
        said = valid_attributes(publication)
        try:
            self._announcing.saw(said)
            envelope = message_to_envelope(message, said, self._most_payload)
            self._read.remember(envelope.text, said)
            return self._router.receive(self, envelope).outcome
        except PenstockError as error:  # others need not suffer by it
            _log.debug("publication not shared", exchange=self._exchange.name, error=str(error))
            return ACCEPTED

    def bound(self, binding: Binding, wanted: list[Subscription]) -> None:
        destination = binding.destination.name
        if self.most and self._asked[destination] + len(wanted) > self.most:
            raise ResourceExhausted(
                f"{destination} has asked for {self._asked[destination]} things by content, and "
                f"may for {self.most}: unbind some"
            )
        ids = self._wanted.setdefault(binding, [])
        try:
            for one in wanted:
                options = (("several", "true"),)
                envelope = PadresEnvelope(
                    EnvelopeKind.SUBSCRIBE, format_message(one), options=options
                )
                ids.append(self._router.receive(self, envelope).id)
                self._asked[destination] += 1
        except PenstockError:
            self.unbound(binding)
            raise

    def unbound(self, binding: Binding) -> None:
        ids = self._wanted.pop(binding, ())
        for id_ in ids:
            self._router.receive(self, PadresEnvelope(EnvelopeKind.UNSUBSCRIBE, id_))
        self._asked -= Counter({binding.destination.name: len(ids)})

    def _announce(self, text: str) -> str:
        return self._router.receive(self, PadresEnvelope(EnvelopeKind.ADVERTISE, text)).id

    def _withdraw(self, id_: str) -> None:
        self._router.receive(self, PadresEnvelope(EnvelopeKind.UNADVERTISE, id_))


class ContentSpace:
    """A router that keeps what its clients publish."""

    def __init__(
        self, vhost: VirtualHost, router: ContentRouter[PadresEnvelope], read: PublicationCache
    ) -> None:
        """`read` is what the router reads publications by."""
        self._vhost = vhost
        self._router = router
        self._read = read
        self._settings = vhost.kernel.settings.padres
        self._hop: ExchangeHop | None = None
        self.join()

    @property
    def broker_id(self) -> str:
        return self._router.broker_id

    def join(self) -> None:
        """Make what is missing: exchange, stream, and the gateway between them and the router."""
        vhost, settings = self._vhost, self._settings
        name = settings.exchange
        exchange = vhost.exchanges.get(name)
        if exchange is None:
            exchange = vhost.declare_exchange(name, "x-content", durable=True)
        if not isinstance(exchange, ExchangeDriver) or not isinstance(
            exchange.router, ContentExchangeRouter
        ):
            _log.warning("exchange is of another type, and shares nothing", exchange=name)
            return
        if exchange.router.gateway is None:
            if self._hop is not None:
                self._router.detach(self._hop.name)
            self._hop = ExchangeHop(exchange, self._router, self._read)
            self._router.attach(self._hop)
            exchange.router.open(self._hop, list(exchange.bindings))
            if settings.conformance:  # bindings that were there before are not refused
                self._hop.most = vhost.kernel.settings.overlay.max_asked
        if settings.stream and settings.stream not in vhost.queues:
            arguments: dict[str, str | int] = {"x-queue-type": "stream"}
            if settings.stream_bytes:
                arguments["x-max-length-bytes"] = settings.stream_bytes
            stream = vhost.declare_queue(settings.stream, durable=True, arguments=arguments)
            vhost.bind(name, stream, "", {"x-all": True})

    # A router.

    def attach(self, hop: Hop[PadresEnvelope], notify_subscriptions: bool = False) -> None:
        self.join()
        self._router.attach(hop, notify_subscriptions)

    def detach(self, name: str) -> None:
        self._router.detach(name)

    def receive(self, hop: Hop[PadresEnvelope], envelope: PadresEnvelope) -> RouterReceipt:
        answer = self._router.receive(hop, envelope)
        if envelope.kind is EnvelopeKind.PUBLISH and self._hop is not None:
            kept = self._hop.keep(envelope, answer.id)
            return RouterReceipt(answer.id, answer.outcome | kept)
        return answer


def envelope_to_message(
    envelope: PadresEnvelope, publication: Publication, exchange: str, id_: str
) -> Message:
    time = envelope.time or (publication.time.timestamp() if publication.time else 0.0)
    return encode_publication(
        publication,
        exchange,
        envelope.payload,
        message_id=id_,
        time=time,
        urgency=max(0, min(HIGHEST_PRIORITY, HIGHEST_PRIORITY - envelope.priority)),
        durable=envelope.durable,
    )


def valid_attributes(publication: Publication) -> Publication:
    """With the attributes alone whose names are names in the language: headers may have others."""
    attributes = {name: one for name, one in publication.attributes.items() if is_name(name)}
    return Publication(publication.class_name, attributes, publication.time)


def message_to_envelope(
    message: Message, publication: Publication, most_payload: int
) -> PadresEnvelope:
    properties = decode_header(message.header)
    urgency = (
        message_priority(message.header)
        if message.flags & PRIORITY
        else HIGHEST_PRIORITY - ORDINARY
    )
    told = properties.content_type == CONTENT_TYPE
    return PadresEnvelope(
        EnvelopeKind.PUBLISH,
        format_message(publication),
        payload=b"" if told else _payload(message, most_payload),
        priority=max(0, HIGHEST_PRIORITY - urgency),
        time=float(properties.timestamp or 0),
        durable=properties.delivery_mode == 2,
    )


def _payload(message: Message, most: int) -> bytes:
    """What a message has beside what it says, unless it is too much."""
    if message.spool is None:
        return message.body
    if message.size > most:
        _log.warning("payload left out", bytes=message.size, most=most)
        return b""
    return message.spool.read()
