"""What a publisher is told: an answer to each publication of QoS 1 and 2, in the order they came.

A receipt is the packet's number, with a mark for what is to be done when it comes back: acknowledge
it, once received, or first see the retained copy safe. Answers that can be given at once wait
behind those that wait for the disk. What was received of QoS 2 is remembered by the session until
the client lets go of it, so that it is taken once however often it comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.core.errors import NoRoute
from penstock.terminals.mqtt.encode import acknowledgement
from penstock.terminals.mqtt.fields import PUBACK, PUBCOMP, PUBREC
from penstock.terminals.mqtt.reasons import MqttError, Reason

if TYPE_CHECKING:
    from penstock.broker.contract import Channel, Message
    from penstock.terminals.mqtt.terminal import MqttTerminal

#: Marks of a receipt, above the number of the packet.
TWICE: Final = 1 << 16  #: answered by PUBREC
KEPT: Final = 1 << 17  #: a retained copy must be safe too
SILENT: Final = 1 << 18  #: nobody waits for an answer
LATER: Final = 1 << 19  #: a large one of QoS 2: remembered when it has come whole


class Unremembered(NamedTuple):
    """A large publication of QoS 2 on its way in."""

    number: int
    channel: Channel  #: by which it goes to its exchange


class Answers:
    __slots__ = (
        "_deferred",
        "_keeping",
        "_later",
        "_most",
        "_owed",
        "_producer",
        "_silent",
        "_terminal",
        "_unanswered",
        "_verdicts",
        "posting",
    )

    def __init__(self, terminal: MqttTerminal) -> None:
        self._terminal = terminal
        self._producer: Channel
        self._most = 0  # how many publications may go unanswered
        self._unanswered = 0  # of QoS 1
        self._owed: set[int] = set()  # of QoS 2
        self._later: Unremembered | None = None
        self._silent = 0
        self._deferred = 0  # answers that wait for the disk: later ones wait behind them
        self._verdicts: dict[int, tuple[Reason, str]] = {}  # bad news among those
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
            session.remember(later.number)

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
            return number | TWICE
        self._unanswered += 1
        self._count()
        return number

    def receipt_of_large(self, first: int, number: int, message: Message, channel: Channel) -> int:
        """For one that comes in pieces; it is answered when it has come whole and is safe."""
        qos = first >> 1 & 3
        receipt = self.receipt(qos, number)
        if qos == 2:
            self._later = Unremembered(number, channel)
            receipt |= LATER
        if first & 1:
            if not receipt:
                self._silent = self._silent % 0xFFFF + 1
                receipt = self._silent | SILENT
            receipt |= KEPT
            if self._keeping is None:
                self._keeping = {}
            self._keeping[receipt] = message
        if receipt and not receipt & SILENT:
            self._deferred += 1
        return receipt

    def waits(self) -> None:
        """What was posted goes to the disk, and is answered from there."""
        self.posting = 0
        self._deferred += 1

    def _owe(self, number: int) -> None:
        self._owed.add(number)
        self._count()

    def _count(self) -> None:
        if self._unanswered + len(self._owed) > self._most and self._terminal.version == 5:
            raise MqttError(
                Reason.RECEIVE_MAXIMUM_EXCEEDED,
                f"more than {self._most} publications are not answered yet",
            )

    # Exactly once.

    def is_repeated(self, number: int) -> bool:
        """Whether a publication is one that is here already; then it is only answered again."""
        session = self._terminal.need_session()
        self._owe(number)
        if number not in session.received:
            return False
        self._defer(number | TWICE)
        return True

    def remember(self, number: int) -> None:
        """It was posted, unless it was refused.

        Behind the message itself: a broker killed between the two files may take it twice, but does
        not lose it.
        """
        if number in self._owed and self._terminal.session is not None:
            self._terminal.session.remember(number)

    def release(self, number: int) -> None:
        """The client lets go of a number."""
        terminal = self._terminal
        session = terminal.session
        self._owed.discard(number)
        reason = Reason.SUCCESS
        if session is not None and number in session.received:
            session.forget(number)
        else:
            reason = Reason.PACKET_IDENTIFIER_NOT_FOUND
        terminal.send(acknowledgement(PUBCOMP, number, reason, version=terminal.version))

    # What became of it.

    def confirmed(self, receipt: int) -> None:
        if receipt == self.posting:  # at once; but answers are given in the order of questions
            self.posting = 0
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
        if receipt & LATER and self._later is not None and session is not None:
            self._later = None
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
                self.settle(receipt, Reason.NO_MATCHING_SUBSCRIBERS, "")
        else:
            if self._keeping:
                self._keeping.pop(receipt, None)
            if receipt & LATER:
                self._later = None  # its number is free for another
            if not receipt & SILENT:
                self.settle(receipt & 0x1FFFF, Reason.QUOTA_EXCEEDED, str(error))

    def refuse(self, qos: int, number: int, reason: Reason, text: str) -> None:
        """It goes nowhere. At QoS 0 there is no way to say so."""
        if qos:
            self.posting = self.receipt(qos, number)
            self.settle(self.posting, reason, text)

    def settle(self, receipt: int, reason: Reason, text: str) -> None:
        """Answer with this reason, behind the answers that wait."""
        if self.posting:
            self.posting = 0
        else:
            self._deferred -= 1
        if self._deferred:
            self._verdicts[receipt] = (reason, text)
            self._defer(receipt)
        else:
            self._answer(receipt, reason, text)

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
