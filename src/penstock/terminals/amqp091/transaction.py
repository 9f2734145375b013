"""Transactions (`tx`): publishes and answers that wait for a commit, and happen together then.

As in RabbitMQ a commit is answered when all of it is safe on disk; it is atomic towards the
client, not across queues when the broker dies in the middle.

What waits is in memory and counts against the broker's budget. Reading cannot stop when that is
spent, for the commit would not be read either: the transaction that asks for more has failed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.broker.contract import Message
from penstock.core.errors import PreconditionFailed

if TYPE_CHECKING:
    from penstock.terminals.amqp091.channel import AmqpChannel, Unanswered
    from penstock.terminals.amqp091.conversations import Producer

#: What a message in a transaction takes beside its header and its body: objects, route, lists.
OVERHEAD: Final = 400


class Transaction:
    __slots__ = ("_answers", "_channel", "_held", "_pool", "_publishes", "committing")

    def __init__(self, channel: AmqpChannel) -> None:
        self._channel = channel
        self._pool = channel.connection.host.kernel.pool
        self._held = 0  #: bytes of the budget
        self._publishes: list[tuple[Producer, Message]] = []
        self._answers: list[tuple[int, Unanswered, bool | None]] = []
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

    def publish(self, producer: Producer, message: Message) -> None:
        self.hold(len(message.header) + len(message.body) + OVERHEAD)
        self._publishes.append((producer, message))

    def answer(self, tag: int, unanswered: Unanswered, requeue: bool | None) -> None:
        self._answers.append((tag, unanswered, requeue))

    def commit(self) -> None:
        """Do it all; what must be safe before the client hears of it is then with the committer."""
        self.committing = True
        # All of it is done before the client hears that it is: nothing is put off.
        self._channel.connection.host.kernel.turn.reader = None
        try:
            for producer, message in self._publishes:
                producer.post(producer, message, 0)
            self._channel.connection.published += len(self._publishes)
            for tag, unanswered, requeue in self._answers:
                self._channel.settle(tag, unanswered, requeue)
        finally:
            self._publishes.clear()
            self._answers.clear()
            self.committing = False
            self.release(self._held)

    def rollback(self) -> None:
        """Forget the publishes; answered deliveries wait for an answer again."""
        self._publishes.clear()
        self.release(self._held)
        waiting = self._channel.unanswered
        waiting.update((tag, unanswered) for tag, unanswered, _ in self._answers)
        self._channel.unanswered = dict(sorted(waiting.items()))
        self._answers.clear()
