"""What a client publishes: packets in, messages to the exchange, acknowledgements back.

The packet reader calls here. A publication without properties takes the short way; topics whose
route is known, and allowed, are remembered. A receipt is the packet's number, with a mark for what
is to be done when it comes back: acknowledge, once received, or first see the retained copy safe.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.broker.contract import MANDATORY, RETAIN, Channel, Message
from penstock.broker.destinations import LOGGED
from penstock.core.errors import NoRoute, PreconditionFailed
from penstock.core.logs import get_logger
from penstock.core.properties import shortstr
from penstock.terminals.mqtt.content import ContentOutlet, is_content, is_told_whole
from penstock.terminals.mqtt.encode import acknowledgement
from penstock.terminals.mqtt.fields import PUBACK, PUBCOMP, PUBREC, PUBREL
from penstock.terminals.mqtt.large import LargePublish
from penstock.terminals.mqtt.properties import Properties, Property
from penstock.terminals.mqtt.reasons import MqttError, Reason
from penstock.terminals.mqtt.topics import to_key
from penstock.terminals.mqtt.translation import SHORT, decoded, flags_for, header_for, plain_header

if TYPE_CHECKING:
    from penstock.broker.destinations import Exchange
    from penstock.terminals.mqtt.terminal import MqttTerminal

#: Topics whose routes are remembered.
ROUTES: Final = 1024
#: Sizes whose headers are remembered.
HEADERS: Final = 4096

#: Marks of a receipt, above the number of the packet.
TWICE: Final = 1 << 16  #: answered by PUBREC
KEPT: Final = 1 << 17  #: a retained copy must be safe too
SILENT: Final = 1 << 18  #: nobody waits for an answer
LATER: Final = 1 << 19  #: a large one of QoS 2: remembered when it has come whole

_log = get_logger("penstock.mqtt")


class Inflow:
    __slots__ = (
        "_aliases",
        "_content",
        "_deferred",
        "_exchange",
        "_headers",
        "_keeping",
        "_large",
        "_later",
        "_most",
        "_owed",
        "_posting",
        "_producer",
        "_routes",
        "_silent",
        "_terminal",
        "_unanswered",
        "_verdicts",
    )

    def __init__(self, terminal: MqttTerminal) -> None:
        self._terminal = terminal
        self._headers = terminal.mqtt.headers
        self._exchange: Exchange
        self._producer: Channel
        self._routes: dict[bytes, bytes] = {}
        self._aliases: dict[int, bytes] = {}
        self._most = 0  #: how many publications may go unanswered
        self._unanswered = 0  #: of QoS 1
        self._owed: set[int] = set()  #: of QoS 2
        self._large: LargePublish | None = None
        self._later = 0  #: the number of a large one of QoS 2 that is not remembered yet
        self._silent = 0
        self._posting = 0  #: the receipt of what is being posted right now
        self._deferred = 0  #: answers that wait for the disk: later ones wait behind them
        self._verdicts: dict[int, tuple[Reason, str]] = {}  #: bad news among those
        self._keeping: dict[int, Message] | None = None  #: large ones to be retained, by receipt
        self._content: ContentOutlet | None = None  #: few clients publish by content

    def open(self, exchange: Exchange) -> None:
        """The client is let in."""
        self._exchange = exchange
        self._producer = Channel(self._terminal.outflow, exchange)
        self._most = self._terminal.host.kernel.settings.mqtt.receive_maximum
        exchange.channel_open(self._producer, {})

    def close(self) -> None:
        if self._large is not None:
            self._large.abandon()
            self._large = None
        session = self._terminal.session
        if self._later and self._producer.state is None and session is not None:
            session.remember(self._later)  # it was posted, and not answered yet
        self._exchange.channel_close(self._producer)
        if self._content is not None:
            self._content.close()

    def forget_permissions(self) -> None:
        self._routes.clear()

    # What the reader finds.

    def on_publish(
        self, first: int, topic: bytes, number: int, properties: bytes, payload: bytes
    ) -> None:
        if properties or not topic:
            self._publish_with(first, topic, number, properties, payload)
            return
        route = self._routes.get(topic)
        if route is None:
            if is_content(topic):
                self._publish_content(first, topic, number, {}, payload)
                return
            route = self._route(topic)
            if route is None:
                self._refuse(first, number, Reason.NOT_AUTHORIZED, topic)
                return
        size = len(payload)
        qos = first >> 1 & 3
        header = self._headers.get(size << 1 | (qos > 0))
        if header is None:
            header = self._header(qos, size)
        self._terminal.published += 1
        if first & 7:
            self._publish(first, number, Message(route, header, payload, flags_for(qos, {})))
        else:
            message = Message(route, header, payload)
            session = self._terminal.session
            if session is not None and session.spurns_own:
                session.mine = message
            self._exchange.channel_post(self._producer, message, 0)

    def on_large_publish(
        self, first: int, topic: bytes, number: int, properties: bytes, size: int
    ) -> None:
        if not self._terminal.opened:
            raise MqttError(Reason.PROTOCOL_ERROR, "a packet before CONNECT was accepted")
        told = self._told(properties)
        topic = self._named(topic, told)
        qos = first >> 1 & 3
        content = self._content_outlet() if is_content(topic) else None
        self._large = LargePublish(
            self._terminal, self._producer if content is None else content.channel
        )
        if content is None:
            message = self._opening(first, topic, told, size)
        elif is_told_whole(told):
            self._refuse(first, number, Reason.QUOTA_EXCEEDED, topic)
            return
        else:
            first &= ~1  # there is nothing to keep it under
            message = content.message(topic, told, qos, size)
        if message is None:
            self._refuse(first, number, Reason.NOT_AUTHORIZED, topic)
            return
        if qos == 2 and self._is_repeated(number):
            return
        self._terminal.published += 1
        message.more = True
        receipt = self._receipt(qos, number)
        if qos == 2:
            self._later = number
            receipt |= LATER
        if first & 1:
            if not receipt:
                self._silent = self._silent % 0xFFFF + 1
                receipt = self._silent | SILENT
            receipt |= KEPT
            if self._keeping is None:
                self._keeping = {}
            self._keeping[receipt] = message
        session = self._terminal.session
        if session is not None and session.spurns_own:
            session.mine = message
        if receipt and not receipt & SILENT:
            self._deferred += 1
        self._large.begin(message, receipt)

    def _opening(self, first: int, topic: bytes, told: Properties, size: int) -> Message | None:
        """A large publication without its payload; None when the client may not publish there."""
        route = self._routes.get(topic) or self._route(topic)
        if route is None:
            return None
        qos = first >> 1 & 3
        flags = flags_for(qos, told) | (RETAIN if first & 1 else 0)
        return Message(route, self._header_for(told, qos, size), b"", flags)

    def on_payload(self, piece: memoryview, more: bool) -> None:
        assert self._large is not None, "a payload follows its packet's opening"
        large = self._large
        if not more:
            self._large = None
        large.pour(piece, more)

    def on_acknowledgement(self, kind: int, number: int, reason: int, properties: bytes) -> None:
        terminal = self._terminal
        session = terminal.session
        if not terminal.opened:
            raise MqttError(Reason.PROTOCOL_ERROR, "a packet before CONNECT was accepted")
        if kind == PUBREL:
            self._release(number)
            return
        letter = session.letters.get(number) if session is not None else None
        channel = terminal.outflow.channel
        if session is None or channel is None or letter is None:
            if kind == PUBREC:  # we know nothing of it: let the client forget it too
                unknown = Reason.PACKET_IDENTIFIER_NOT_FOUND
                terminal.send(acknowledgement(PUBREL, number, unknown, version=terminal.version))
            return
        if kind == PUBACK if letter.qos == 1 else kind == PUBCOMP and letter.released:
            session.channel_confirm(channel, letter)
            terminal.answered += 1
        elif kind == PUBREC and letter.qos == 2:
            if reason >= 0x80:
                session.channel_failure(channel, letter, False)
                terminal.answered += 1
                return
            if not letter.released:
                session.channel_confirm(channel, letter)
            terminal.send(acknowledgement(PUBREL, number, version=terminal.version))
        else:
            raise MqttError(
                Reason.PROTOCOL_ERROR, f"packet {number} is answered by a packet of the wrong kind"
            )

    def on_packet(self, kind: int, flags: int, body: bytes) -> None:
        self._terminal.on_packet(kind, body)

    # Publishing.

    def _header(self, qos: int, size: int) -> bytes:
        if len(self._headers) >= HEADERS:
            self._headers.clear()
        header = self._headers[size << 1 | (qos > 0)] = plain_header(qos, size)
        return header

    def _header_for(self, told: Properties, qos: int, size: int) -> bytes:
        header = header_for(told, qos, size)
        if len(header) + 8 > self._terminal.host.kernel.settings.frame_max:
            raise MqttError(Reason.PACKET_TOO_LARGE, "more properties than fit in a frame of AMQP")
        return header

    def _told(self, properties: bytes) -> Properties:
        return decoded(properties) if properties else {}

    def _publish_with(
        self, first: int, topic: bytes, number: int, properties: bytes, payload: bytes
    ) -> None:
        """A publication with properties, or by alias."""
        told = self._told(properties)
        topic = self._named(topic, told)
        if is_content(topic):
            self._publish_content(first, topic, number, told, payload)
            return
        route = self._routes.get(topic) or self._route(topic)
        if route is None:
            self._refuse(first, number, Reason.NOT_AUTHORIZED, topic)
            return
        qos = first >> 1 & 3
        header = self._header_for(told, qos, len(payload))
        self._terminal.published += 1
        self._publish(first, number, Message(route, header, payload, flags_for(qos, told)))

    def _publish_content(
        self, first: int, topic: bytes, number: int, told: Properties, payload: bytes
    ) -> None:
        """One that goes to whoever wants what it says; there is nothing to keep it under."""
        terminal = self._terminal
        if not terminal.opened:
            raise MqttError(Reason.PROTOCOL_ERROR, "a packet before CONNECT was accepted")
        first &= ~1
        qos = first >> 1 & 3
        outlet = self._content_outlet()
        message = outlet.message(topic, told, qos, len(payload))
        if message is None:
            self._refuse(first, number, Reason.NOT_AUTHORIZED, topic)
            return
        message.body = payload
        terminal.published += 1
        try:
            self._publish(first, number, message, outlet.channel)
        except PreconditionFailed as error:  # a body in the language that is not in the language
            _log.info("publication refused", connection=terminal.name, error=str(error))
            if self._posting:
                self._settle(self._posting, Reason.PAYLOAD_FORMAT_INVALID, str(error))

    def _content_outlet(self) -> ContentOutlet:
        if self._content is None:
            self._content = ContentOutlet(self._terminal)
        return self._content

    def _publish(
        self, first: int, number: int, message: Message, producer: Channel | None = None
    ) -> None:
        """One that is to be answered, kept, or both."""
        channel = producer or self._producer
        qos = first >> 1 & 3
        if qos == 2 and self._is_repeated(number):
            return
        receipt = self._receipt(qos, number)
        if receipt and self._terminal.version == 5:
            message.flags |= MANDATORY
        if first & 1:
            message.flags |= RETAIN
            outcome = self._terminal.vhost.retained.keep(message)
            if receipt and outcome == LOGGED:
                receipt |= KEPT
        session = self._terminal.session
        if session is not None and session.spurns_own:
            session.mine = message
        self._posting = receipt
        channel.driver.channel_post(channel, message, receipt)
        if self._posting:  # it waits for the disk
            self._posting = 0
            self._deferred += 1
        if qos == 2 and number in self._owed and self._terminal.session is not None:
            # Behind the message itself: a broker killed between the two files may take it twice,
            # but does not lose it.
            self._terminal.session.remember(number)

    def _named(self, topic: bytes, told: Properties) -> bytes:
        """The topic, which may have a short name, or get one."""
        alias = told.get(Property.TOPIC_ALIAS)
        if alias is None:
            if not topic:
                raise MqttError(Reason.PROTOCOL_ERROR, "a publication without a topic or an alias")
            return topic
        most = self._terminal.host.kernel.settings.mqtt.topic_alias_maximum
        if not 0 < alias <= most:
            raise MqttError(Reason.TOPIC_ALIAS_INVALID, f"topic alias {alias}: 1 to {most} may be")
        if topic:
            self._aliases[alias] = topic
            return topic
        known = self._aliases.get(alias)
        if known is None:
            raise MqttError(Reason.PROTOCOL_ERROR, f"topic alias {alias} names nothing")
        return known

    def _route(self, topic: bytes) -> bytes | None:
        """Where a topic leads; None when this client may not publish there."""
        terminal = self._terminal
        if not terminal.opened:
            raise MqttError(Reason.PROTOCOL_ERROR, "a packet before CONNECT was accepted")
        key = to_key(topic)
        if len(key) > SHORT:
            raise MqttError(
                Reason.TOPIC_NAME_INVALID, f"a topic of {len(key)} bytes: {SHORT} may be"
            )
        if topic.startswith(b"$SYS") or not terminal.access.may_publish(key.decode()):
            return None
        if len(self._routes) >= ROUTES:
            self._routes.clear()
        route = shortstr(self._exchange.name) + bytes((len(key),)) + key
        self._routes[topic] = route
        return route

    # Exactly once.

    def _is_repeated(self, number: int) -> bool:
        """Whether a publication is one that is here already; then it is only answered again."""
        session = self._terminal.need_session()
        self._owe(number)
        if number not in session.received:
            return False
        self._defer(number | TWICE)
        return True

    def _release(self, number: int) -> None:
        terminal = self._terminal
        session = terminal.session
        self._owed.discard(number)
        reason = Reason.SUCCESS
        if session is not None and number in session.received:
            session.forget(number)
        else:
            reason = Reason.PACKET_IDENTIFIER_NOT_FOUND
        terminal.send(acknowledgement(PUBCOMP, number, reason, version=terminal.version))

    # Answers.

    def _receipt(self, qos: int, number: int) -> int:
        if not qos:
            return 0
        if qos == 2:
            self._owe(number)
            return number | TWICE
        self._unanswered += 1
        self._count()
        return number

    def _owe(self, number: int) -> None:
        self._owed.add(number)
        self._count()

    def _count(self) -> None:
        if self._unanswered + len(self._owed) > self._most and self._terminal.version == 5:
            raise MqttError(
                Reason.RECEIVE_MAXIMUM_EXCEEDED,
                f"more than {self._most} publications are not answered yet",
            )

    def confirmed(self, receipt: int) -> None:
        if receipt == self._posting:  # at once; but answers are given in the order of questions
            self._posting = 0
            if self._deferred or receipt >= KEPT:
                self._defer(receipt & ~KEPT)
                return
        elif not receipt & SILENT:
            self._deferred -= 1
        if receipt < TWICE and not self._verdicts:
            self._unanswered -= 1
            self._terminal.host.kernel.metrics.confirmed += 1
            self._terminal.outflow.send(b"\x40\x02" + receipt.to_bytes(2, "big"))
        elif receipt >= KEPT:
            self._complete(receipt)
        else:
            self._answer(receipt, *self._verdicts.pop(receipt, (Reason.SUCCESS, "")))

    def _defer(self, receipt: int) -> None:
        """Answer when all that was said so far is on disk."""
        self._deferred += 1
        self._terminal.host.kernel.committer.wait(self._producer, receipt)

    def _complete(self, receipt: int) -> None:
        """A large one is where it should be; what is kept of it must be on disk as well."""
        message = self._keeping.pop(receipt, None) if self._keeping else None
        if message is not None:
            self._terminal.vhost.retained.keep(message)
        session = self._terminal.session
        if receipt & LATER and self._later and session is not None:
            self._later = 0
            session.remember(receipt & 0xFFFF)
            session.mine = None
        if not receipt & SILENT:
            self._defer(receipt & ~(KEPT | LATER))

    def failed(self, receipt: int, error: Exception) -> None:
        """No subscriber, no room, or no exchange any more."""
        if not receipt:
            self._terminal.fail(MqttError(Reason.ADMINISTRATIVE_ACTION, str(error)))
        elif isinstance(error, NoRoute):
            self._terminal.host.kernel.metrics.unroutable += 1
            if receipt & KEPT:
                self.confirmed(receipt)
            else:
                self._settle(receipt, Reason.NO_MATCHING_SUBSCRIBERS, "")
        else:
            if self._keeping:
                self._keeping.pop(receipt, None)
            if not receipt & SILENT:
                self._settle(receipt & 0x1FFFF, Reason.QUOTA_EXCEEDED, str(error))

    def _settle(self, receipt: int, reason: Reason, text: str) -> None:
        """Answer with this reason, behind the answers that wait."""
        if self._posting:
            self._posting = 0
        else:
            self._deferred -= 1
        if self._deferred:
            self._verdicts[receipt] = (reason, text)
            self._defer(receipt)
        else:
            self._answer(receipt, reason, text)

    def _refuse(self, first: int, number: int, reason: Reason, topic: bytes) -> None:
        """The client may not publish there. At QoS 0 there is no way to say so."""
        name = topic.decode("utf-8", "replace")
        _log.info("publication refused", connection=self._terminal.name, topic=name)
        qos = first >> 1 & 3
        if qos:
            self._posting = self._receipt(qos, number)
            self._settle(self._posting, reason, f"not allowed to publish to {name}")

    def _answer(self, receipt: int, reason: Reason, text: str) -> None:
        terminal = self._terminal
        number = receipt & 0xFFFF
        kind = PUBREC if receipt & TWICE else PUBACK
        if kind == PUBACK:
            self._unanswered -= 1
        if reason < Reason.UNSPECIFIED_ERROR:
            terminal.host.kernel.metrics.confirmed += 1
        elif terminal.version < 5:  # it has no word for it: what is not closed seems accepted
            terminal.fail(MqttError(reason, text))
            return
        elif kind == PUBREC:
            self._owed.discard(number)
            if terminal.session is not None:
                terminal.session.forget(number)
        told = terminal.explained(text) if text else None
        terminal.send(acknowledgement(kind, number, reason, told, version=terminal.version))
