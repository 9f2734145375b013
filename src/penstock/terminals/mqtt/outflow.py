"""The writing side of a connection: what drivers forward, confirm and fail, on its way out.

This is the terminal that drivers know (`broker/contract.py`). Packets gather in a list and leave
in one write when the turn ends. A socket that does not take them is *choked*: the session is asked
to wait until it has caught up. A large message leaves a piece at a time, and nothing may come
between its pieces: answers wait behind it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from penstock.broker.buckets import Bucket
from penstock.broker.contract import (
    EXPIRES,
    RECALLED,
    RETAIN,
    UNLIMITED,
    Channel,
    Delivery,
    Fragment,
    Message,
)
from penstock.broker.sessions import Letter
from penstock.terminals.mqtt.encode import acknowledgement, publish_start
from penstock.terminals.mqtt.fields import PUBREL, VARINT_MAX
from penstock.terminals.mqtt.press import NONE
from penstock.terminals.mqtt.properties import Property, encode_properties

if TYPE_CHECKING:
    from penstock.terminals.mqtt.terminal import MqttTerminal

#: Output that may gather for one socket before its session is asked to wait.
CHOKE_BYTES: Final = 256 * 1024

#: As large as packets get.
_NO_LIMIT: Final = VARINT_MAX + 5


class Outflow:
    __slots__ = (
        "_behind",
        "_buckets",
        "_bytes",
        "_delivered",
        "_gone",
        "_introduced",
        "_large",
        "_metrics",
        "_press",
        "_print",
        "_terminal",
        "_touched",
        "_turn",
        "aliases",
        "channel",
        "choked",
        "largest",
        "most_aliases",
        "out",
        "paused",
    )

    def __init__(self, terminal: MqttTerminal) -> None:
        kernel = terminal.host.kernel
        self._terminal = terminal
        self._turn = kernel.turn
        self._metrics = kernel.metrics
        self._press = terminal.mqtt.press
        self._print = self._press.print4
        self.out: list[bytes | memoryview] = []
        self.channel: Channel | None = None  #: to the session
        self.largest = _NO_LIMIT  #: the largest packet the client takes
        self.most_aliases = 0
        self.aliases: dict[bytes, int] | None = None  #: short names for topics
        self.choked = False  #: the session sends nothing until the socket has caught up
        self.paused = False  #: the transport's buffer is full
        self._bytes = 0
        self._delivered = 0
        self._touched = False
        self._gone = False
        self._introduced = b""  #: the topic that the packet at hand gives a short name
        self._large: Letter | None = None  #: a large message that is on its way
        self._behind: list[bytes] = []
        self._buckets: list[Bucket] | None = None

    def limit(self, largest: int) -> None:
        """The client takes no larger packets; 0 if it did not say."""
        self.largest = largest or _NO_LIMIT

    def begin(self, version: int, aliases: int) -> None:
        """What the client speaks is known."""
        if version == 5:
            self._print = self._press.print5
        self.most_aliases = aliases
        if aliases:
            self.aliases = {}

    # What drivers ask for.

    def channel_forward(
        self, channel: Channel, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        if delivery is not None or self.aliases is not None:
            self._forward(channel, fragment, delivery)
            return
        packet = self._print(fragment)  # type: ignore[arg-type]  # small ones come whole
        size = len(packet)
        if not size or size > self.largest:
            self._metrics.dropped += 1
            return
        if not self._touched:
            self._touched = True
            self._turn.touched.append(self)
        self.out.append(packet)
        self._delivered += 1
        self._bytes += size
        if self._bytes > CHOKE_BYTES and not self.choked:
            self._choke()

    def _forward(
        self, channel: Channel, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        if isinstance(fragment, Fragment):
            self._forward_piece(channel, fragment)
            return
        letter = delivery if isinstance(delivery, Letter) else None
        if letter is not None and letter.qos == 1 and self._forward_plain(fragment, letter):
            return
        if letter is not None and letter.released:
            packet = acknowledgement(PUBREL, letter.number, version=self._terminal.version)
            self.send(packet)
            return
        opening = self._opening(fragment, letter)
        size = len(opening) + (fragment.size if fragment.more else len(fragment.body))
        if not opening or size > self.largest:
            self._metrics.dropped += 1
            if self.aliases is not None and self._introduced:
                del self.aliases[self._introduced]  # the client never heard of it
            if letter is not None:
                channel.driver.channel_failure(channel, letter, False)
            return
        self.touch()
        self.out.append(opening)
        if fragment.more:
            self._large = letter
            self._draw_soon(channel)
        elif fragment.body:
            self.out.append(fragment.body)
        if letter is not None and letter.count:
            self._metrics.redelivered += 1
        self._delivered += 1
        self._bytes += size if not fragment.more else len(opening)
        if self._bytes > CHOKE_BYTES and not self.choked:
            self._choke()

    def _forward_plain(self, message: Message, letter: Letter) -> bool:
        """The short way of QoS 1, if there is nothing to say but the message."""
        if letter.count or letter.expires or not letter.grant.plain or self.aliases is not None:
            return False
        if message.more:
            return False
        packet = self._press.numbered(message, letter.number, self._terminal.version)
        if not packet or len(packet) > self.largest:
            return False
        if not self._touched:
            self._touched = True
            self._turn.touched.append(self)
        self.out.append(packet)
        self._delivered += 1
        self._bytes += len(packet)
        if self._bytes > CHOKE_BYTES and not self.choked:
            self._choke()
        return True

    def _opening(self, message: Message, letter: Letter | None) -> bytes:
        """A PUBLISH up to its payload; empty when the client cannot be told of it."""
        press = self._press
        press.set(message)
        topic = press.topic
        if not topic:
            return b""
        first = 0x30
        number = 0
        identifiers: tuple[int, ...] = ()
        retain = message.flags & RECALLED
        if letter is not None:
            first |= letter.qos << 1
            number = letter.number
            if letter.count and letter.qos:
                first |= 8
            identifiers = letter.grant.identifiers
            retain |= letter.grant.as_published and message.flags & RETAIN
        if retain:
            first |= 1
        encoded: bytes | None = None
        if self._terminal.version == 5:
            encoded = press.encoded
            alias, topic = self._alias(topic)
            waited = letter is not None and letter.expires and message.flags & EXPIRES
            if alias or identifiers or waited:
                properties = dict(press.properties)
                if alias:
                    properties[Property.TOPIC_ALIAS] = alias
                if identifiers:
                    properties[Property.SUBSCRIPTION_IDENTIFIER] = list(identifiers)
                if waited and letter is not None:
                    left = letter.expires - self._turn.loop.time()
                    properties[Property.MESSAGE_EXPIRY] = max(0, math.ceil(left))
                encoded = encode_properties(properties) if properties else NONE
        if message.size + len(topic) + len(encoded or b"") + 9 > VARINT_MAX:
            return b""
        if message.more:
            return publish_start(first, topic, number, encoded, message.size)
        return publish_start(first, topic, number, encoded, len(message.body))

    def _alias(self, topic: bytes) -> tuple[int, bytes]:
        """The short name of a topic, and what of the topic must still be said."""
        aliases = self.aliases
        self._introduced = b""
        if aliases is None:
            return 0, topic
        alias = aliases.get(topic)
        if alias is not None:
            return alias, b""
        if len(aliases) >= self.most_aliases:
            return 0, topic
        aliases[topic] = alias = len(aliases) + 1
        self._introduced = topic
        return alias, topic

    def channel_confirm(self, channel: Channel, receipt: int) -> None:
        self._terminal.inflow.answers.confirmed(receipt)

    def channel_failure(self, channel: Channel, receipt: int, error: Exception) -> None:
        if self._gone and not receipt:
            return
        if channel is not self.channel:
            self._terminal.inflow.answers.failed(receipt, error)
        elif isinstance(error, OSError):  # half a message is out, and the rest cannot be read
            letter, self._large = self._large, None
            if letter is not None:
                channel.driver.channel_failure(channel, letter, False)
            self._terminal.fail(error)
        else:
            self._terminal.session_ended()

    # Large messages.

    def _forward_piece(self, channel: Channel, fragment: Fragment) -> None:
        if self._terminal.closing:
            fragment.bucket.release()
            return
        self.touch()
        self.out.append(fragment.body)
        self._bytes += len(fragment.body)
        if self._buckets is None:
            self._buckets = []
        self._buckets.append(fragment.bucket)
        if fragment.more:
            self._draw_soon(channel)
            return
        self._large = None
        self.out += self._behind
        self._behind.clear()

    def _draw_soon(self, channel: Channel) -> None:
        if not self.choked:
            self._turn.loop.call_soon(self._draw, channel)

    def _draw(self, channel: Channel) -> None:
        """Ask for the next piece of a large message, if the socket has room for it."""
        if channel is self.channel and not self.choked and not self._terminal.closing:
            channel.driver.channel_request(channel, UNLIMITED)
            self._turn.end()

    @property
    def held(self) -> int:
        """Bytes of answers that wait behind a large message."""
        return sum(map(len, self._behind)) if self._behind else 0

    # Writing.

    def touch(self) -> None:
        if not self._touched:
            self._touched = True
            self._turn.touched.append(self)

    def send(self, packet: bytes) -> None:
        if self._gone:  # a receipt may come when the client has left
            return
        if self._large is not None:
            self._behind.append(packet)
            return
        self.touch()
        self.out.append(packet)

    def flush(self) -> None:
        self._touched = False
        out = self.out
        if not out:
            return
        data = b"".join(out)
        out.clear()
        self._bytes = 0
        self._metrics.bytes_out += len(data)
        self._metrics.delivered += self._delivered
        self._delivered = 0
        self._terminal.transport.write(data)
        if self._buckets:
            self._release()
        if self.choked and not self.paused:
            self._turn.loop.call_soon(self._unchoke)

    def _release(self) -> None:
        for bucket in self._buckets or ():
            bucket.release()
        self._buckets = None

    # Credit.

    def open(self, channel: Channel) -> None:
        """A session sends from now on."""
        self.channel = channel
        if not self.choked:
            channel.driver.channel_request(channel, UNLIMITED)

    def pause(self) -> None:
        self.paused = True
        self._choke()

    def resume(self) -> None:
        self.paused = False
        self._unchoke()

    def _choke(self) -> None:
        """The socket is behind: nothing more until it has caught up."""
        self.choked = True
        if self.channel is not None:
            self.channel.driver.channel_request(self.channel, 0)

    def _unchoke(self) -> None:
        if self.choked and not self.paused and not self._terminal.closing:
            self.choked = False
            if self.channel is not None:
                self.channel.driver.channel_request(self.channel, UNLIMITED)
            self._turn.end()

    def forget(self) -> None:
        """The connection has ended."""
        self._gone = True
        self.out.clear()
        self._behind.clear()
        self._release()
        self.channel = None
