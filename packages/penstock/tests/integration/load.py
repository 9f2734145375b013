"""A publisher and a consumer that keep books, for tests that take the broker away from them.

Each message's body is its number. The books say what the broker has promised: a confirmed message
is kept, an acknowledged one does not come back. What was under way when the broker died may have
gone either way, and is promised nothing.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pika
from pika import frame, spec

from tests.integration.amqp091.wire import Wire, message_bytes, method_bytes

PERSISTENT = pika.BasicProperties(delivery_mode=2)


@dataclass
class Books:
    """What became of the messages of one queue, as far as its clients know."""

    sent: int = 0  #: messages are numbered from 0 up to this, in the order they were sent
    confirmed: set[int] = field(default_factory=set)
    acknowledging: set[int] = field(default_factory=set)  #: an acknowledgement was sent
    acknowledged: set[int] = field(default_factory=set)  #: and a later question was answered

    @property
    def promised(self) -> set[int]:
        """What must be in the queue."""
        return self.confirmed - self.acknowledging

    def check(self, found: list[int]) -> None:
        """Compare with what the queue holds after the broker came back."""
        assert found == sorted(set(found)), "out of order, or twice"
        assert not (lost := self.promised - set(found)), f"confirmed and lost: {sorted(lost)[:10]}"
        assert not (back := self.acknowledged & set(found)), f"came back: {sorted(back)[:10]}"
        assert all(number < self.sent for number in found), "never sent"


class Publisher(threading.Thread):
    """Publishes with confirms, a few hundred ahead of them, until the broker goes."""

    BATCH = 20
    AHEAD = 400

    def __init__(self, port: int, queue: str, books: Books) -> None:
        super().__init__(daemon=True)
        self.first_confirm = threading.Event()
        self._port = port
        self._queue = queue
        self._books = books

    def run(self) -> None:
        try:
            with Wire(self._port) as wire:
                self._publish(wire)
        except OSError:
            pass  # the broker was taken away: what this is for

    def _publish(self, wire: Wire) -> None:
        wire.negotiate()
        wire.open_channel()
        wire.call(1, spec.Confirm.Select())
        base = self._books.sent  # tag 1 is this number
        outstanding: set[int] = set()
        while True:
            batch = range(self._books.sent, self._books.sent + self.BATCH)
            self._books.sent += self.BATCH
            outstanding.update(batch)
            wire.send(
                b"".join(
                    message_bytes(1, b"%d" % n, routing_key=self._queue, properties=PERSISTENT)
                    for n in batch
                )
            )
            while len(outstanding) > self.AHEAD:
                answer = wire.receive_method()
                if answer is None:
                    return
                assert answer.NAME == "Basic.Ack", answer
                number = base + answer.delivery_tag - 1
                covered = {number}
                if answer.multiple:
                    covered = {each for each in outstanding if each <= number}
                outstanding -= covered
                self._books.confirmed |= covered
                self.first_confirm.set()


class Consumer(threading.Thread):
    """Consumes and acknowledges, asking from time to time whether that has been heard."""

    PREFETCH = 100
    BATCH = 30

    def __init__(self, port: int, queue: str, books: Books) -> None:
        super().__init__(daemon=True)
        self.out_of_order: list[tuple[int, int]] = []
        self._port = port
        self._queue = queue
        self._books = books

    def run(self) -> None:
        try:
            with Wire(self._port) as wire:
                self._consume(wire)
        except OSError:
            pass

    def _consume(self, wire: Wire) -> None:
        wire.negotiate()
        wire.open_channel()
        wire.call(1, spec.Basic.Qos(prefetch_count=self.PREFETCH))
        wire.call(1, spec.Basic.Consume(queue=self._queue))
        held: list[int] = []
        unanswered: list[set[int]] = []  # acknowledged, one set for each question asked
        tag, last = 0, -1
        while (arrived := wire.receive()) is not None:
            if isinstance(arrived, frame.Body):
                number = int(arrived.fragment)
                if number <= last:
                    self.out_of_order.append((last, number))
                last = number
                held.append(number)
            elif isinstance(arrived, frame.Method):
                if isinstance(arrived.method, spec.Basic.Deliver):
                    tag = arrived.method.delivery_tag
                elif isinstance(arrived.method, spec.Basic.QosOk):
                    self._books.acknowledged |= unanswered.pop(0)
            if len(held) >= self.BATCH:
                self._books.acknowledging.update(held)
                unanswered.append(set(held))
                held.clear()
                wire.send(
                    method_bytes(1, spec.Basic.Ack(tag, multiple=True))
                    + method_bytes(1, spec.Basic.Qos(prefetch_count=self.PREFETCH))
                )


def peek(port: int, queue: str, most: int | None = None) -> list[int]:
    """What is in the queue, in order, left where it is; all of it, or no more than asked for."""
    found: list[int] = []
    with Wire(port) as wire:
        wire.negotiate()
        wire.open_channel()
        ready: int = wire.call(1, spec.Queue.Declare(queue=queue, passive=True)).message_count
        if most is not None:
            ready = min(ready, most)
        if ready:
            wire.call(1, spec.Basic.Consume(queue=queue))
        while len(found) < ready:
            arrived = wire.receive()
            assert arrived is not None, "closed while reading"
            if isinstance(arrived, frame.Body):
                found.append(int(arrived.fragment))
        closed = wire.call(0, spec.Connection.Close(200, "", 0, 0))
        while closed is not None and not isinstance(closed, spec.Connection.CloseOk):
            closed = wire.receive_method()
    return found
