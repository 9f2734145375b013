"""Acknowledgements to a publisher: PUBACK or PUBREC for each publication of QoS 1 and 2, in order.

A receipt of the contract is the packet id with flags for what is left to do when it is confirmed.
Acknowledgements that are ready wait behind those that wait for the disk. The session keeps the
packet ids of received QoS 2 publications until PUBREL, so that repeated ones are not published
again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.core.errors import NoRoute, SchemaViolation
from penstock.wire.mqtt.fields import PUBACK, PUBCOMP, PUBREC
from penstock.wire.mqtt.packets import encode_acknowledgement, encode_pubacks
from penstock.wire.mqtt.reason_codes import MqttError, ReasonCode

if TYPE_CHECKING:
    from penstock.broker.contract import Channel, Message
    from penstock.protocols.mqtt.terminal import MqttTerminal

#: Flags of a receipt, above the packet id.
QOS2_FLAG: Final = 1 << 16  #: acknowledged by PUBREC
RETAINED_FLAG: Final = 1 << 17  #: the retained copy must be on disk, too
NO_REPLY_FLAG: Final = 1 << 18  #: not acknowledged
LARGE_QOS2_FLAG: Final = 1 << 19  #: large, QoS 2: received when it is complete


class PendingQos2(NamedTuple):
    """A large publication of QoS 2 that is being received."""

    packet_id: int
    channel: Channel  #: to its exchange


class PublishAcknowledgements:
    __slots__ = (
        "_deferred",
        "_failure_reasons",
        "_last_silent",
        "_limit",
        "_pending_qos2",
        "_posting_run",
        "_producer",
        "_retaining",
        "_terminal",
        "_unacked_qos1",
        "_unacked_qos2",
        "posting",
    )

    def __init__(self, terminal: MqttTerminal, producer: Channel, limit: int) -> None:
        self._terminal = terminal
        self._producer = producer
        self._limit = limit  # of unacknowledged publications
        self._unacked_qos1 = 0
        self._unacked_qos2: dict[int, None] = {}  # packet ids; a set is three times as large
        self._pending_qos2: PendingQos2 | None = None
        self._last_silent = 0  # number of the last receipt that is not acknowledged
        self._deferred = 0  # acknowledgements that wait for the disk; later ones wait behind them
        #: By receipt, of those. Created when it is needed: most connections have none.
        self._failure_reasons: dict[int, tuple[ReasonCode, str]] | None = None
        self._retaining: dict[int, Message] | None = None  # large messages to retain, by receipt
        self._posting_run = False  # the messages of a run
        self.posting = 0  #: the receipt of the message that is being posted

    def close(self) -> None:
        """The client has disconnected. A large publication that was posted completely counts as
        received."""
        pending, self._pending_qos2 = self._pending_qos2, None
        session = self._terminal.session
        if pending is not None and pending.channel.state is None and session is not None:
            session.add_received(pending.packet_id)

    @property
    def has_pending(self) -> bool:
        """Whether confirms are outstanding."""
        return bool(self._deferred or self._retaining)

    # Receipts.

    def receipt(self, qos: int, packet_id: int) -> int:
        if not qos:
            return 0
        if qos == 2:
            self._add_qos2(packet_id)
            return packet_id | QOS2_FLAG
        self._unacked_qos1 += 1
        self._check_limit()
        return packet_id

    def receipt_of_large(
        self, first: int, packet_id: int, message: Message, channel: Channel
    ) -> int:
        """For a publication in fragments, acknowledged when it is complete and on disk."""
        qos = first >> 1 & 3
        receipt = self.receipt(qos, packet_id)
        if qos == 2:
            self._pending_qos2 = PendingQos2(packet_id, channel)
            receipt |= LARGE_QOS2_FLAG
        if first & 1:
            if not receipt:
                self._last_silent = self._last_silent % 0xFFFF + 1
                receipt = self._last_silent | NO_REPLY_FLAG
            receipt |= RETAINED_FLAG
            if self._retaining is None:
                self._retaining = {}
            self._retaining[receipt] = message
        if receipt and not receipt & NO_REPLY_FLAG:
            self._deferred += 1
        return receipt

    def defer_posted(self) -> None:
        """The posted message waits for the disk."""
        self.posting = 0
        self._deferred += 1

    def begin_run(self, count: int) -> bool:
        """Before a run of QoS 1 is posted; returns whether the client may send so many."""
        unacked = self._unacked_qos1 + len(self._unacked_qos2) + count
        if unacked > self._limit and self._terminal.version == 5:
            return False
        self._unacked_qos1 += count
        self._posting_run = True
        return True

    def end_run(self, count: int, posted: bool) -> None:
        if not posted:
            self._unacked_qos1 -= count
        elif self._posting_run:  # it waits for the disk
            self._deferred += count
        self._posting_run = False

    def _add_qos2(self, packet_id: int) -> None:
        self._unacked_qos2[packet_id] = None
        self._check_limit()

    def _check_limit(self) -> None:
        unacked = self._unacked_qos1 + len(self._unacked_qos2)
        if unacked > self._limit and self._terminal.version == 5:
            raise MqttError(
                ReasonCode.RECEIVE_MAXIMUM_EXCEEDED, f"receive maximum {self._limit} exceeded"
            )

    # Exactly once.

    def is_repeated(self, packet_id: int) -> bool:
        """Whether the publication was received before; then it is only acknowledged again."""
        session = self._terminal.need_session()
        self._add_qos2(packet_id)
        if packet_id not in session.received:
            return False
        self._defer(packet_id | QOS2_FLAG)
        return True

    def add_received(self, packet_id: int) -> None:
        """The publication was posted, unless it was refused.

        This is written after the message: a broker that is killed in between may publish it twice,
        but does not lose it.
        """
        if packet_id in self._unacked_qos2 and self._terminal.session is not None:
            self._terminal.session.add_received(packet_id)

    def release(self, packet_id: int) -> None:
        """PUBREL: the client may use the packet id again."""
        terminal = self._terminal
        session = terminal.session
        self._unacked_qos2.pop(packet_id, None)
        reason = ReasonCode.SUCCESS
        if session is not None and packet_id in session.received:
            session.release_received(packet_id)
        else:
            reason = ReasonCode.PACKET_IDENTIFIER_NOT_FOUND
        packet = encode_acknowledgement(PUBCOMP, packet_id, reason, version=terminal.version)
        terminal.send_stored(packet)

    # Confirms.

    def confirmed(self, receipt: int) -> None:
        if receipt == self.posting:  # immediately, but acknowledgements keep the order
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
            success = (ReasonCode.SUCCESS, "")
            reasons = self._failure_reasons or {}
            self._acknowledge(receipt, *reasons.pop(receipt, success))

    def confirmed_run(self, channel: Channel, receipts: Sequence[int]) -> None:
        """All messages of a run are confirmed."""
        if self._posting_run:  # immediately, but acknowledgements keep the order
            self._posting_run = False
            if self._deferred:
                self._deferred += len(receipts)
                self._terminal.host.kernel.committer.wait(channel, receipts)
                return
        else:
            self._deferred -= len(receipts)
        if self._failure_reasons:
            for receipt in receipts:
                self._acknowledge(receipt, ReasonCode.SUCCESS, "")
        else:
            self._unacked_qos1 -= len(receipts)
            self._terminal.host.kernel.metrics.confirmed += len(receipts)
            self._terminal.writer.send(encode_pubacks(receipts))

    def _defer(self, receipt: int) -> None:
        """Acknowledge when everything so far is on disk."""
        self._deferred += 1
        self._terminal.host.kernel.committer.wait(self._producer, receipt)

    def _complete(self, receipt: int) -> None:
        """A large message is confirmed; its retained copy must be on disk as well."""
        message = self._retaining.pop(receipt, None) if self._retaining else None
        if message is not None:
            self._terminal.vhost.retained.retain(message)
        session = self._terminal.session
        if receipt & LARGE_QOS2_FLAG and self._pending_qos2 is not None and session is not None:
            self._pending_qos2 = None
            session.add_received(receipt & 0xFFFF)
            session.own_message = None
        if not receipt & NO_REPLY_FLAG:
            self._defer(receipt & ~(RETAINED_FLAG | LARGE_QOS2_FLAG))

    def failed(self, receipt: int, error: Exception) -> None:
        """No subscriber, a full queue, or a deleted exchange."""
        if not receipt:
            self._terminal.fail(MqttError(ReasonCode.ADMINISTRATIVE_ACTION, str(error)))
        elif isinstance(error, NoRoute):
            self._terminal.host.kernel.metrics.unroutable += 1
            if receipt & RETAINED_FLAG:
                self.confirmed(receipt)
            else:
                self.settle(receipt, ReasonCode.NO_MATCHING_SUBSCRIBERS, "")
        else:
            if self._retaining:
                self._retaining.pop(receipt, None)
            if receipt & LARGE_QOS2_FLAG:
                self._pending_qos2 = None  # the packet id is free
            if not receipt & NO_REPLY_FLAG:
                invalid = isinstance(error, SchemaViolation)
                reason = ReasonCode.PAYLOAD_FORMAT_INVALID if invalid else ReasonCode.QUOTA_EXCEEDED
                self.settle(receipt & 0x1FFFF, reason, str(error))

    def refuse(self, qos: int, packet_id: int, reason: ReasonCode, text: str) -> None:
        """At QoS 0 there is no acknowledgement to refuse it with."""
        if qos:
            self.posting = self.receipt(qos, packet_id)
            self.settle(self.posting, reason, text)

    def settle(self, receipt: int, reason: ReasonCode, text: str) -> None:
        """Acknowledge with this reason, behind those that wait for the disk."""
        if self.posting:
            self.posting = 0
        else:
            self._deferred -= 1
        if self._deferred:
            if self._failure_reasons is None:
                self._failure_reasons = {}
            self._failure_reasons[receipt] = (reason, text)
            self._defer(receipt)
        else:
            self._acknowledge(receipt, reason, text)

    def _acknowledge(self, receipt: int, reason: ReasonCode, text: str) -> None:
        terminal = self._terminal
        packet_id = receipt & 0xFFFF
        kind = PUBREC if receipt & QOS2_FLAG else PUBACK
        if kind == PUBACK:
            self._unacked_qos1 -= 1
        if reason < ReasonCode.UNSPECIFIED_ERROR:
            terminal.host.kernel.metrics.confirmed += 1
        elif terminal.version < 5:  # without reason codes, PUBACK means accepted
            terminal.fail(MqttError(reason, text))
            return
        elif kind == PUBREC:
            self._unacked_qos2.pop(packet_id, None)
            if terminal.session is not None:
                terminal.session.release_received(packet_id)
        properties = terminal.reason_properties(text) if text else None
        version = terminal.version
        terminal.send(encode_acknowledgement(kind, packet_id, reason, properties, version=version))
