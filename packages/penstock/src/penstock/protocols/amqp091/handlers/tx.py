"""`tx.*`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.broker.contract import Message
from penstock.core.errors import PreconditionFailed
from penstock.protocols.amqp091.channel import AmqpChannel
from penstock.wire.amqp091 import methods
from penstock.wire.amqp091.methods import MethodArguments

if TYPE_CHECKING:
    from penstock.protocols.amqp091.channel import Amqp091Producer, AmqpChannel, UnackedDelivery


def tx_select(channel: AmqpChannel, args: MethodArguments) -> None:
    if channel.confirm:
        raise PreconditionFailed("cannot switch from confirm to tx mode")
    if channel.transaction is None:
        channel.transaction = ChannelTransaction(channel)
    channel.reply(methods.TX_SELECT_OK)


def tx_commit(channel: AmqpChannel, args: MethodArguments) -> None:
    _transaction(channel).commit()

    def committed() -> None:
        if not channel.closing:
            channel.reply(methods.TX_COMMIT_OK)

    def failed(error: OSError) -> None:
        channel.connection.fail(error, methods.TX_COMMIT)

    channel.connection.host.kernel.committer.after(committed, failed)


def tx_rollback(channel: AmqpChannel, args: MethodArguments) -> None:
    _transaction(channel).rollback()
    channel.reply(methods.TX_ROLLBACK_OK)


def _transaction(channel: AmqpChannel) -> ChannelTransaction:
    if channel.transaction is None:
        raise PreconditionFailed("channel is not transactional")
    return channel.transaction


# Transactions (`tx`): publishes and answers that wait for a commit, and happen together then.
#
# As in RabbitMQ a commit is answered when all of it is safe on disk; it is atomic towards the
# client, not across queues when the broker dies in the middle.
#
# What waits is in memory and counts against the broker's budget. Reading cannot stop when that is
# spent, for the commit would not be read either: the transaction that asks for more has failed.

#: What a message in a transaction takes beside its header and its body: objects, route, lists.
MESSAGE_OVERHEAD_BYTES: Final = 400


class ChannelTransaction:
    __slots__ = ("_answers", "_channel", "_held", "_pool", "_publishes", "committing")

    def __init__(self, channel: AmqpChannel) -> None:
        self._channel = channel
        self._pool = channel.connection.host.kernel.pool
        self._held = 0  #: bytes of the budget
        self._publishes: list[tuple[Amqp091Producer, Message]] = []
        self._answers: list[tuple[int, UnackedDelivery, bool | None]] = []
        self.committing = False

    def hold(self, size: int) -> None:
        """Charge this many bytes; raises when the budget is spent."""
        pool = self._pool
        pool.charge(size)
        self._held += size
        if pool.spent:
            raise PreconditionFailed(
                f"a transaction of {self._held} bytes does not fit the broker's memory budget, of "
                f"which {pool.used} of {pool.budget} bytes are in use: commit more often"
            )

    def release(self, size: int) -> None:
        self._held -= size
        self._pool.discharge(size)

    def publish(self, producer: Amqp091Producer, message: Message) -> None:
        self.hold(len(message.header) + len(message.body) + MESSAGE_OVERHEAD_BYTES)
        self._publishes.append((producer, message))

    def answer(self, tag: int, unacked: UnackedDelivery, requeue: bool | None) -> None:
        self._answers.append((tag, unacked, requeue))

    def commit(self) -> None:
        """Do it all; what must be safe before the client hears of it is then with the committer."""
        self.committing = True
        # All of it is done before the client hears that it is: nothing is put off.
        self._channel.connection.host.kernel.write_batch.reader = None
        try:
            for producer, message in self._publishes:
                producer.post(producer, message, 0)
            self._channel.connection.published += len(self._publishes)
            for tag, unacked, requeue in self._answers:
                self._channel.settle(tag, unacked, requeue)
        finally:
            self._publishes.clear()
            self._answers.clear()
            self.committing = False
            self.release(self._held)

    def rollback(self) -> None:
        """Forget the publishes; answered deliveries wait for an answer again."""
        self._publishes.clear()
        self.release(self._held)
        waiting = self._channel.unacked
        waiting.update((tag, unacked) for tag, unacked, _ in self._answers)
        self._channel.unacked = dict(sorted(waiting.items()))
        self._answers.clear()
