"""What a publisher is told: an answer to each publication of QoS 1 and 2, in the order they came.

A receipt is the packet's number, with a mark for what is to be done when it comes back: acknowledge
it, once received, or first see the retained copy safe. Answers that can be given at once wait
behind those that wait for the disk. What was received of QoS 2 is remembered by the session until
the client lets go of it, so that it is taken once however often it comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.core.errors import NoRoute
from penstock.wire.mqtt.fields import PUBACK, PUBCOMP, PUBREC
from penstock.wire.mqtt.packets import encode_acknowledgement
from penstock.wire.mqtt.reason_codes import MqttError, ReasonCode

if TYPE_CHECKING:
    from penstock.broker.contract import Channel, Message
    from penstock.protocols.mqtt.terminal import MqttTerminal

#: Marks of a receipt, above the number of the packet.
QOS2_FLAG: Final = 1 << 16  #: answered by PUBREC
RETAINED_FLAG: Final = 1 << 17  #: a retained copy must be safe too
NO_REPLY_FLAG: Final = 1 << 18  #: nobody waits for an answer
LARGE_QOS2_FLAG: Final = 1 << 19  #: a large one of QoS 2: remembered when it has come whole


class PendingQos2(NamedTuple):
    """A large publication of QoS 2 on its way in."""

    number: int
    channel: Channel  #: by which it goes to its exchange


class PublishAcknowledgements:
    __slots__ = (
        "_deferred",
        "_failure_reasons",
        "_keeping",
        "_later",
        "_most",
        "_producer",
        "_silent",
        "_terminal",
        "_unacked_qos1",
        "_unacked_qos2",
        "posting",
    )

    def __init__(self, terminal: MqttTerminal) -> None:
        self._terminal = terminal
        self._producer: Channel
        self._most = 0  # how many publications may go unanswered
        self._unacked_qos1 = 0  # of QoS 1
        self._unacked_qos2: set[int] = set()  # of QoS 2
        self._later: PendingQos2 | None = None
        self._silent = 0
        self._deferred = 0  # answers that wait for the disk: later ones wait behind them
        self._failure_reasons: dict[int, tuple[ReasonCode, str]] = {}  # bad news among those
        self._keeping: dict[int, Message] | None = None  # large ones to be retained, by receipt
        self.posting = 0  #: the receipt of what is being posted right now

    def open(self, producer: Channel, most: int) -> None:
        self._producer = producer
        self._most = most

    def close(self) -> None:
        """The client has gone. A large one that was posted, and not answered yet, was received."""
        later, self._later = self._later, None
        session = self._terminal.session
        if later is not None and later.channel.state is None and session is not None:
            session.add_received(later.number)

    @property
    def is_awaited(self) -> bool:
        """Whether there is something to do yet when the disk has answered."""
        return bool(self._deferred or self._keeping)

    # Receipts.

    def receipt(self, qos: int, number: int) -> int:
        if not qos:
            return 0
        if qos == 2:
            self._owe(number)
            return number | QOS2_FLAG
        self._unacked_qos1 += 1
        self._count()
        return number

    def receipt_of_large(self, first: int, number: int, message: Message, channel: Channel) -> int:
        """For one that comes in pieces; it is answered when it has come whole and is safe."""
        qos = first >> 1 & 3
        receipt = self.receipt(qos, number)
        if qos == 2:
            self._later = PendingQos2(number, channel)
            receipt |= LARGE_QOS2_FLAG
        if first & 1:
            if not receipt:
                self._silent = self._silent % 0xFFFF + 1
                receipt = self._silent | NO_REPLY_FLAG
            receipt |= RETAINED_FLAG
            if self._keeping is None:
                self._keeping = {}
            self._keeping[receipt] = message
        if receipt and not receipt & NO_REPLY_FLAG:
            self._deferred += 1
        return receipt

    def waits(self) -> None:
        """What was posted goes to the disk, and is answered from there."""
        self.posting = 0
        self._deferred += 1

    def _owe(self, number: int) -> None:
        self._unacked_qos2.add(number)
        self._count()

    def _count(self) -> None:
        if (
            self._unacked_qos1 + len(self._unacked_qos2) > self._most
            and self._terminal.version == 5
        ):
            raise MqttError(
                ReasonCode.RECEIVE_MAXIMUM_EXCEEDED,
                f"more than {self._most} publications are not answered yet",
            )

    # Exactly once.

    def is_repeated(self, number: int) -> bool:
        """Whether a publication is one that is here already; then it is only answered again."""
        session = self._terminal.need_session()
        self._owe(number)
        if number not in session.received:
            return False
        self._defer(number | QOS2_FLAG)
        return True

    def remember(self, number: int) -> None:
        """It was posted, unless it was refused.

        Behind the message itself: a broker killed between the two files may take it twice, but does
        not lose it.
        """
        if number in self._unacked_qos2 and self._terminal.session is not None:
            self._terminal.session.add_received(number)

    def release(self, number: int) -> None:
        """The client lets go of a number."""
        terminal = self._terminal
        session = terminal.session
        self._unacked_qos2.discard(number)
        reason = ReasonCode.SUCCESS
        if session is not None and number in session.received:
            session.release_received(number)
        else:
            reason = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
        terminal.send(encode_acknowledgement(PUBCOMP, number, reason, version=terminal.version))

    # What became of it.

    def confirmed(self, receipt: int) -> None:
        if receipt == self.posting:  # at once; but answers are given in the order of questions
            self.posting = 0
            if self._deferred or receipt >= RETAINED_FLAG:
                self._defer(receipt & ~RETAINED_FLAG)
                return
        elif not receipt & NO_REPLY_FLAG:
            self._deferred -= 1
        if receipt < QOS2_FLAG and not self._failure_reasons:
            self._unacked_qos1 -= 1
            self._terminal.host.kernel.metrics.confirmed += 1
            self._terminal.writer.send(b"\x40\x02" + receipt.to_bytes(2, "big"))
        elif receipt >= RETAINED_FLAG:
            self._complete(receipt)
        else:
            self._answer(receipt, *self._failure_reasons.pop(receipt, (ReasonCode.SUCCESS, "")))

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
        if receipt & LARGE_QOS2_FLAG and self._later is not None and session is not None:
            self._later = None
            session.add_received(receipt & 0xFFFF)
            session.own_message = None
        if not receipt & NO_REPLY_FLAG:
            self._defer(receipt & ~(RETAINED_FLAG | LARGE_QOS2_FLAG))

    def failed(self, receipt: int, error: Exception) -> None:
        """No subscriber, no room, or no exchange any more."""
        if not receipt:
            self._terminal.fail(MqttError(ReasonCode.ADMINISTRATIVE_ACTION, str(error)))
        elif isinstance(error, NoRoute):
            self._terminal.host.kernel.metrics.unroutable += 1
            if receipt & RETAINED_FLAG:
                self.confirmed(receipt)
            else:
                self.settle(receipt, ReasonCode.NO_MATCHING_SUBSCRIBERS, "")
        else:
            if self._keeping:
                self._keeping.pop(receipt, None)
            if receipt & LARGE_QOS2_FLAG:
                self._later = None  # its number is free for another
            if not receipt & NO_REPLY_FLAG:
                self.settle(receipt & 0x1FFFF, ReasonCode.QUOTA_EXCEEDED, str(error))

    def refuse(self, qos: int, number: int, reason: ReasonCode, text: str) -> None:
        """It goes nowhere. At QoS 0 there is no way to say so."""
        if qos:
            self.posting = self.receipt(qos, number)
            self.settle(self.posting, reason, text)

    def settle(self, receipt: int, reason: ReasonCode, text: str) -> None:
        """Answer with this reason, behind the answers that wait."""
        if self.posting:
            self.posting = 0
        else:
            self._deferred -= 1
        if self._deferred:
            self._failure_reasons[receipt] = (reason, text)
            self._defer(receipt)
        else:
            self._answer(receipt, reason, text)

    def _answer(self, receipt: int, reason: ReasonCode, text: str) -> None:
        terminal = self._terminal
        number = receipt & 0xFFFF
        kind = PUBREC if receipt & QOS2_FLAG else PUBACK
        if kind == PUBACK:
            self._unacked_qos1 -= 1
        if reason < ReasonCode.UNSPECIFIED_ERROR:
            terminal.host.kernel.metrics.confirmed += 1
        elif terminal.version < 5:  # it has no word for it: what is not closed seems accepted
            terminal.fail(MqttError(reason, text))
            return
        elif kind == PUBREC:
            self._unacked_qos2.discard(number)
            if terminal.session is not None:
                terminal.session.release_received(number)
        told = terminal.explained(text) if text else None
        terminal.send(encode_acknowledgement(kind, number, reason, told, version=terminal.version))
