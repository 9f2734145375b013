"""A queue against the obvious one: a list.

Whatever publishers, consumers and restarts do in whatever order, what a queue holds is what a list
would hold: in order, nothing lost, nothing twice, and what comes back stands where it stood. The
queue pages after a few messages here, so that memory, disk and the way between are all walked.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from penstock.broker.contract import Delivery
from penstock.broker.message_run import MessageRun
from tests.doubles import Client, Stand, message

#: Room for about four messages with their overhead.
MEMORY = 2000


class Expected:
    """What a consumer must have been given."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.holds: list[int] = []
        self.seen = 0


class QueueAgainstList(RuleBasedStateMachine):
    durable = False

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.loop = asyncio.new_event_loop()
        self.next = 0
        self.ready: list[int] = []  #: the model
        self.survives: set[int] = set()
        self.sizes: dict[int, int] = {}
        self.consumers: list[Expected] = []
        self.unacknowledged: dict[int, tuple[Client, Delivery]] = {}

    @initialize(durable=st.booleans())
    def begin(self, durable: bool) -> None:
        self.durable = durable
        self.stand = Stand(self.folder, self.loop, queue_memory_bytes=MEMORY)
        self.queue: Any = self.stand.queue(durable=durable)

    @rule(
        persistent=st.booleans(),
        size=st.integers(0, 300),
        count=st.integers(1, 6),
        together=st.booleans(),
    )
    def push(self, persistent: bool, size: int, count: int, together: bool) -> None:
        messages = []
        for _ in range(count):
            number, self.next = self.next, self.next + 1
            body = b"%d" % number
            body += b"." * size
            if persistent and self.durable:
                self.survives.add(number)
            self.sizes[number] = len(body)
            self.ready.append(number)
            messages.append(message(body, delivery_mode=2 if persistent else 1))
        if together:
            self.queue.push_run(MessageRun.of(messages))
        else:
            for one in messages:
                self.queue.push(one)
        self.collect()

    @rule(credit=st.integers(1, 5), settled=st.booleans())
    @precondition(lambda self: len(self.consumers) < 3)
    def consume(self, credit: int, settled: bool) -> None:
        client = Client(self.queue, settled=settled)
        self.consumers.append(Expected(client))
        client.request(credit)
        self.collect()

    @rule(which=st.integers(0, 2), credit=st.integers(0, 5))
    def request(self, which: int, credit: int) -> None:
        for consumer in self.consumers[which : which + 1]:
            consumer.client.request(credit)
            self.collect()

    @rule(data=st.data())
    @precondition(lambda self: self.unacknowledged)
    def confirm(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.unacknowledged)))
        client, delivery = self.unacknowledged.pop(number)
        client.confirm(delivery)
        self.collect()

    @rule(data=st.data())
    @precondition(lambda self: self.unacknowledged)
    def confirm_together(self, data: st.DataObject) -> None:
        """As `basic.ack` with `multiple` does."""
        last = data.draw(st.sampled_from(sorted(self.unacknowledged)))
        client, _ = self.unacknowledged[last]
        numbers = [
            number
            for number, (owner, _) in sorted(self.unacknowledged.items())
            if owner is client and number <= last
        ]
        deliveries = [self.unacknowledged.pop(number)[1] for number in numbers]
        self.queue.channel_confirm_run(client, deliveries)
        self.collect()

    @rule(data=st.data(), requeue=st.booleans())
    @precondition(lambda self: self.unacknowledged)
    def fail(self, data: st.DataObject, requeue: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.unacknowledged)))
        client, delivery = self.unacknowledged.pop(number)
        if requeue:
            self.ready = sorted([*self.ready, number])
        client.fail(delivery, requeue)
        self.collect()

    @rule(data=st.data())
    @precondition(lambda self: self.unacknowledged)
    def page_out(self, data: st.DataObject) -> None:
        """As the pager does with what stays unacknowledged."""
        number = data.draw(st.sampled_from(sorted(self.unacknowledged)))
        client, delivery = self.unacknowledged[number]
        assert client.pages is not None
        client.pages.page_out(delivery)

    @rule(settled=st.booleans())
    def pull(self, settled: bool) -> None:
        client = Client(self.queue, settled=settled, pull=True)
        client.request(1)
        taken = client.ear.forwarded
        assert len(taken) == (1 if self.ready else 0)
        if taken:
            self.given(client, settled)
        client.close()

    @rule(which=st.integers(0, 2))
    def leave(self, which: int) -> None:
        for consumer in self.consumers[which : which + 1]:
            self.consumers.remove(consumer)
            consumer.client.close()
            for number in [
                n for n, (who, _) in self.unacknowledged.items() if who is consumer.client
            ]:
                client, delivery = self.unacknowledged.pop(number)
                self.ready = sorted([*self.ready, number])
                client.fail(delivery, True)
                self.collect()
            self.collect()

    @rule()
    def purge(self) -> None:
        assert self.queue.purge() == len(self.ready)
        self.ready.clear()

    @rule()
    def end_turn(self) -> None:
        self.stand.kernel.write_batch.flush()

    @rule()
    @precondition(lambda self: self.durable)
    def restart(self) -> None:
        self.loop.run_until_complete(self.stand.close())
        assert self.stand.pool.used == 0
        kept = (set(self.ready) | set(self.unacknowledged)) & self.survives
        self.ready = sorted(kept)
        self.unacknowledged.clear()
        self.consumers.clear()
        self.stand = Stand(self.folder, self.loop, queue_memory_bytes=MEMORY)
        self.queue = self.stand.vhost.queues["q"]

    def collect(self) -> None:
        """Note what consumers were given since the last look; it must have been the head."""
        while any(len(one.client.ear.forwarded) > one.seen for one in self.consumers):
            # Several may have been served: the oldest number among the news went first.
            news = [one for one in self.consumers if len(one.client.ear.forwarded) > one.seen]
            first = min(news, key=lambda one: self.number(one.client, one.seen))
            first.seen += 1
            self.given(first.client, first.client.settled, first.seen - 1)

    def given(self, client: Client, settled: bool, index: int = 0) -> None:
        number = self.number(client, index)
        assert number == self.ready[0], "the head, and nothing else"
        self.ready.pop(0)
        delivery = client.ear.forwarded[index][1]
        if not settled:
            assert delivery is not None
            self.unacknowledged[number] = (client, delivery)

    @staticmethod
    def number(client: Client, index: int) -> int:
        return int(client.ear.bodies[index].rstrip(b"."))

    @invariant()
    def counts_are_right(self) -> None:
        if not hasattr(self, "queue"):
            return
        assert self.queue.ready == self.queue.message_count == len(self.ready)
        assert self.queue.unacknowledged == len(self.unacknowledged)
        assert self.queue.ready_bytes == sum(self.sizes[number] for number in self.ready)
        if self.ready:
            idle = [one for one in self.consumers if one.client.credit > 0]
            assert not idle, "messages wait and so does somebody with credit"

    @invariant()
    def memory_is_bounded(self) -> None:
        if hasattr(self, "queue") and not self.ready:
            assert self.stand.pool.used == 0

    def teardown(self) -> None:
        if hasattr(self, "stand"):
            # All that is left comes out, in order, and nothing is owed afterwards.
            for client, delivery in self.unacknowledged.values():
                client.confirm(delivery)
            rest = Client(self.queue, settled=True).request()
            if not self.consumers:
                assert [int(body.rstrip(b".")) for body in rest.ear.bodies] == self.ready
                assert self.stand.pool.used == 0
            self.loop.run_until_complete(self.stand.close())
        self.loop.close()
        shutil.rmtree(self.folder)


TestQueueAgainstList = QueueAgainstList.TestCase
TestQueueAgainstList.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
