"""`tx.*`: publishes and acknowledgements that wait for a commit and take effect together.

As in RabbitMQ, `commit-ok` is sent when everything is on disk. A commit is atomic towards the
client, but not across queues if the broker is killed in the middle. A transaction is in memory and
counts against the memory budget. When that is used up the transaction fails: the broker cannot
stop reading, because it would not read the commit either.
"""

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


#: Memory of a message beside its header and its body: objects, route, lists.
MESSAGE_OVERHEAD_BYTES: Final = 400


class ChannelTransaction:
    __slots__ = ("_acknowledgements", "_channel", "_held", "_pool", "_publishes", "committing")

    def __init__(self, channel: AmqpChannel) -> None:
        self._channel = channel
        self._pool = channel.connection.host.kernel.pool
        self._held = 0  #: bytes of the budget
        self._publishes: list[tuple[Amqp091Producer, Message]] = []
        self._acknowledgements: list[tuple[int, UnackedDelivery, bool | None]] = []
        self.committing = False

    def hold(self, size: int) -> None:
        """Charge this many bytes to the budget; raises when it is used up."""
        pool = self._pool
        pool.charge(size)
        self._held += size
        if pool.spent:
            raise PreconditionFailed(
                f"transaction of {self._held} bytes exceeds the memory budget: {pool.used} of "
                f"{pool.budget} bytes are in use; commit more often"
            )

    def release(self, size: int) -> None:
        self._held -= size
        self._pool.discharge(size)

    def publish(self, producer: Amqp091Producer, message: Message) -> None:
        self.hold(len(message.header) + len(message.body) + MESSAGE_OVERHEAD_BYTES)
        self._publishes.append((producer, message))

    def add_acknowledgement(self, tag: int, unacked: UnackedDelivery, requeue: bool | None) -> None:
        self._acknowledgements.append((tag, unacked, requeue))

    def commit(self) -> None:
        """Publish and acknowledge; the committer then waits for the disk."""
        self.committing = True
        # The response covers all of it, so nothing may be deferred to a later write batch.
        self._channel.connection.host.kernel.write_batch.reader = None
        try:
            for producer, message in self._publishes:
                producer.post(producer, message, 0)
            self._channel.connection.published += len(self._publishes)
            for tag, unacked, requeue in self._acknowledgements:
                self._channel.settle(tag, unacked, requeue)
        finally:
            self._publishes.clear()
            self._acknowledgements.clear()
            self.committing = False
            self.release(self._held)

    def rollback(self) -> None:
        """Discard the publishes; acknowledged deliveries are unacknowledged again."""
        self._publishes.clear()
        self.release(self._held)
        waiting = self._channel.unacked
        waiting.update((tag, unacked) for tag, unacked, _ in self._acknowledgements)
        self._channel.unacked = dict(sorted(waiting.items()))
        self._acknowledgements.clear()
