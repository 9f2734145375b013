"""Transactions (`tx`): publishes and answers that wait for a commit, and happen together then.

As in RabbitMQ a commit is answered when all of it is safe on disk; it is atomic towards the
client, not across queues when the broker dies in the middle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.contract import Message

if TYPE_CHECKING:
    from penstock.terminals.amqp091.channel import AmqpChannel, Unanswered
    from penstock.terminals.amqp091.conversations import Producer


class Transaction:
    __slots__ = ("_answers", "_channel", "_publishes", "committing")

    def __init__(self, channel: AmqpChannel) -> None:
        self._channel = channel
        self._publishes: list[tuple[Producer, Message]] = []
        self._answers: list[tuple[int, Unanswered, bool | None]] = []
        self.committing = False

    def publish(self, producer: Producer, message: Message) -> None:
        self._publishes.append((producer, message))

    def answer(self, tag: int, unanswered: Unanswered, requeue: bool | None) -> None:
        self._answers.append((tag, unanswered, requeue))

    def commit(self) -> None:
        """Do it all; what must be safe before the client hears of it is then with the committer."""
        self.committing = True
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

    def rollback(self) -> None:
        """Forget the publishes; answered deliveries wait for an answer again."""
        self._publishes.clear()
        waiting = self._channel.unanswered
        waiting.update((tag, unanswered) for tag, unanswered, _ in self._answers)
        self._channel.unanswered = dict(sorted(waiting.items()))
        self._answers.clear()
