"""`tx.*`: publishes and acknowledgements that wait for a commit and take effect together.

As in RabbitMQ, `commit-ok` is sent when everything is on disk. A commit is atomic towards the
client, but not across queues if the broker is killed in the middle. A transaction is in memory and
counts against the memory budget. When that is used up the transaction fails: the broker cannot
stop reading, because it would not read the commit either.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
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
    def committed() -> None:
        if not channel.closing:
            channel.reply(methods.TX_COMMIT_OK)

    def failed(error: OSError) -> None:
        channel.connection.fail(error, methods.TX_COMMIT)

    _transaction(channel).commit(committed, failed)


def tx_rollback(channel: AmqpChannel, args: MethodArguments) -> None:
    _transaction(channel).rollback()
    channel.reply(methods.TX_ROLLBACK_OK)


def _transaction(channel: AmqpChannel) -> ChannelTransaction:
    if channel.transaction is None:
        raise PreconditionFailed("channel is not transactional")
    return channel.transaction


#: Memory of a message beside its header and its body: objects, route, lists.
MESSAGE_OVERHEAD_BYTES: Final = 400


#: Delivery tag, delivery, and None for an acknowledgement or whether to requeue.
TransactionalAck = tuple[int, "UnackedDelivery", bool | None]


@dataclass(slots=True)
class PendingCommit:
    acknowledgements: list[TransactionalAck]  #: that wait for the messages
    done: Callable[[], None]
    failed: Callable[[OSError], None]
    is_stored: bool = False


class ChannelTransaction:
    __slots__ = (
        "_acknowledgements",
        "_channel",
        "_commits",
        "_held",
        "_pool",
        "_publishes",
        "committing",
    )

    def __init__(self, channel: AmqpChannel) -> None:
        self._channel = channel
        self._pool = channel.connection.host.kernel.pool
        self._held = 0  #: bytes of the budget
        self._publishes: list[tuple[Amqp091Producer, Message]] = []
        self._acknowledgements: list[TransactionalAck] = []
        self._commits: deque[PendingCommit] = deque()  # without an answer
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

    def commit(self, done: Callable[[], None], failed: Callable[[OSError], None]) -> None:
        """Publish and acknowledge; `done` is called when the messages are on disk.

        Acknowledgements wait for that: after a power cut, a message that the transaction moves
        from one queue to another is in one of them.
        """
        commit = PendingCommit(self._acknowledgements, done, failed)
        publishes, self._publishes = self._publishes, []
        kernel = self._channel.connection.host.kernel
        # The response covers all of it, so nothing may be deferred to a later write batch.
        kernel.write_batch.reader = None
        self.committing = True
        try:
            for producer, message in publishes:
                producer.post(producer, message, 0)
            self._channel.connection.published += len(publishes)
        finally:
            self.committing = False
            self.release(self._held)
        self._acknowledgements = []
        self._commits.append(commit)
        if publishes and commit.acknowledgements:
            kernel.committer.after(partial(self._acknowledge_published, commit), failed)
        else:
            self._acknowledge(commit)
            kernel.committer.after(partial(self._stored, commit), failed)

    def _acknowledge(self, commit: PendingCommit) -> None:
        acknowledgements, commit.acknowledgements = commit.acknowledgements, []
        self.committing = True
        try:
            for tag, unacked, requeue in acknowledgements:
                self._channel.settle(tag, unacked, requeue)
        finally:
            self.committing = False

    def _acknowledge_published(self, commit: PendingCommit) -> None:
        """They are written before the answer is sent; in a cluster, all members get them first."""
        self._acknowledge(commit)
        writer = self._channel.connection.writer
        if writer.awaiting_credit:  # no read ends here that would request the next messages
            writer.request()
        committer = self._channel.connection.host.kernel.committer
        if committer.is_replicated:
            committer.after(partial(self._stored, commit), commit.failed)
        else:
            self._stored(commit)

    def _stored(self, commit: PendingCommit) -> None:
        """Commits are answered in their order."""
        commit.is_stored = True
        while self._commits and self._commits[0].is_stored:
            self._commits.popleft().done()

    def abandon(self) -> None:
        """The channel closes: what was not acknowledged so far is not acknowledged."""
        for commit in reversed(self._commits):
            self._acknowledgements[:0] = commit.acknowledgements
            commit.acknowledgements = []
        self._commits.clear()
        self.rollback()

    def rollback(self) -> None:
        """Discard the publishes; acknowledged deliveries are unacknowledged again."""
        self._publishes.clear()
        self.release(self._held)
        waiting = self._channel.unacked
        waiting.update((tag, unacked) for tag, unacked, _ in self._acknowledgements)
        self._channel.unacked = dict(sorted(waiting.items()))
        self._acknowledgements.clear()
