"""A session against what it promises.

Whatever is published, answered, cut off and restarted in whatever order: nothing that must arrive
is lost, or overtaken; no number is out twice, and what is sent again has the number it had; no
more is out than the client allows; what the client has released is not sent again; and in the end
nothing is left over. Little memory is allowed here, so that messages wait on disk as well, and in
one of the runs there are so few numbers that they must be used again at once.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from penstock.broker.contract import (
    MAX_PACKET_ID,
    Delivery,
    Fragment,
    InflightMessage,
    Message,
    TopicSubscription,
)
from tests.destinations.session.given import (
    Subscriber,
    found_session,
    new_session,
    publication,
    publish,
    publish_run,
    subscribe,
)
from tests.doubles import Stand

#: Room for about four messages with their overhead.
MEMORY = 2000

#: The filters, what each asks for, and the key that shows it.
FILTERS = {"a": 2, "b": 1, "c": 0, "*.both": 1, "d.#": 2, "kept.#": 2}
GRANTED = {"a": 2, "b": 1, "c": 0, "d": 2, "d.both": 2, "e.both": 1}


@dataclass(slots=True)
class Promise:
    """A message, and how far it has got."""

    qos: int
    deadline: float = 0.0  #: from then on it need not arrive
    number: int = 0
    out: bool = False
    released: bool = False
    done: bool = False
    recalled: bool = False


class SessionAgainstItsPromise(RuleBasedStateMachine):
    numbers = MAX_PACKET_ID
    durable = False

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.loop = asyncio.new_event_loop()
        self.promises: list[Promise] = []
        self.client: Subscriber | None = None
        self.window = 0
        self.open = False
        self.seen = 0
        self.patched = ExitStack()
        session = "penstock.destinations.session"
        for module in (f"{session}.session", f"{session}.inflight", "penstock.broker.message_run"):
            few = mock.patch(f"{module}.MAX_PACKET_ID", self.numbers)
            self.patched.enter_context(few)

    @initialize(durable=st.booleans())
    def begin(self, durable: bool) -> None:
        self.durable = durable
        self.stand = Stand(self.folder, self.loop, queue_memory_bytes=MEMORY)
        self.session: Any = new_session(self.stand, durable=durable)
        for pattern, qos in FILTERS.items():
            subscribe(self.stand, self.session, pattern, qos)

    # What happens.

    @rule(
        key=st.sampled_from(sorted(GRANTED)),
        qos=st.integers(0, 2),
        expiry=st.none() | st.integers(1, 5),
        size=st.integers(0, 300),
        count=st.integers(1, 6),
        together=st.booleans(),
    )
    def publish(
        self, key: str, qos: int, expiry: int | None, size: int, count: int, together: bool
    ) -> None:
        messages = []
        for _ in range(count):
            body = b"%d" % len(self.promises)
            body += b"." * size
            promise = Promise(min(qos, GRANTED[key]))
            if expiry is not None:
                promise.deadline = self.stand.clock.time() + expiry
            self.promises.append(promise)
            messages.append(publication(body, key, qos, expiry=expiry))
        if together:
            publish_run(self.stand, self.session, *messages)
        else:
            publish(self.stand, *messages)
        self.collect()

    @rule(qos=st.integers(0, 2), count=st.integers(1, 3))
    def deliver_retained(self, qos: int, count: int) -> None:
        keys = []
        for _ in range(count):
            name = len(self.promises)
            kept = publication(b"%d" % name, f"kept.{name}", qos, retain=True)
            self.stand.vhost.retained.retain(kept)
            self.promises.append(Promise(qos, recalled=True))
            keys.append(b"kept.%d" % name)
        messages = map(self.stand.vhost.retained.get, keys)
        self.session.deliver_past(messages, TopicSubscription("kept.#", 2))
        self.collect()

    @rule(window=st.integers(1, 4), is_open=st.booleans())
    @precondition(lambda self: self.client is None)
    def connect(self, window: int, is_open: bool) -> None:
        self.client = Subscriber(self.session, window, credit=0)
        self.window = window
        self.seen = 0
        owed = sum(promise.released for promise in self.promises)
        self.collect()
        assert len(self.client.inflight) == owed, "each is told that it is released"
        if is_open:
            self.request(True)

    @rule(is_open=st.booleans())
    @precondition(lambda self: self.client is not None)
    def request(self, is_open: bool) -> None:
        assert self.client is not None
        self.open = is_open
        self.client.request(1 << 62 if is_open else 0)
        self.collect()

    @rule(data=st.data(), refused=st.booleans())
    @precondition(lambda self: self.client is not None and self.session.inflight)
    def answer(self, data: st.DataObject, refused: bool) -> None:
        assert self.client is not None
        number = data.draw(st.sampled_from(sorted(self.session.inflight)))
        entry = self.session.inflight[number]
        if isinstance(entry, Message):
            self.acknowledge_plain(number)
            self.client.request(1 << 62 if self.open else 0)
            self.collect()
            return
        promise = self.of(entry)
        if refused and not promise.released:
            promise.done, promise.out = True, False
            self.client.refuse(entry)
        elif promise.qos == 2 and not promise.released:
            promise.released = True
            self.client.confirm(entry)
        else:
            promise.done, promise.out, promise.released = True, False, False
            self.client.confirm(entry)
        if self.open:
            self.client.request()
        self.collect()

    def acknowledge_plain(self, number: int) -> None:
        """PUBACK of a message of a run."""
        promise = self.named(self.session.inflight.pop(number))
        assert promise.qos == 1
        promise.done, promise.out = True, False

    @rule()
    @precondition(lambda self: self.client is not None)
    def cut(self) -> None:
        assert self.client is not None
        self.client.close()
        self.collect()
        self.gone()

    @rule(seconds=st.integers(1, 3))
    def wait(self, seconds: int) -> None:
        self.stand.clock.advance(seconds)
        self.collect()

    @rule()
    def end_turn(self) -> None:
        self.stand.kernel.write_batch.flush()

    @rule(killed=st.booleans())
    @precondition(lambda self: self.durable)
    def restart(self, killed: bool) -> None:
        if self.client is not None and not killed:
            self.client.close()
        self.gone()
        self.loop.run_until_complete(self.stand.close())
        assert self.stand.pool.used == 0
        then = self.stand.clock.time()
        self.stand = Stand(self.folder, self.loop, queue_memory_bytes=MEMORY)
        self.session = found_session(self.stand)
        for promise in self.promises:
            if not promise.qos:
                promise.done = True  # it goes with the broker
            elif promise.deadline:
                left = promise.deadline - then
                promise.deadline = self.stand.clock.time() + max(0, left)

    def gone(self) -> None:
        self.client = None
        self.open = False
        for promise in self.promises:
            promise.out = promise.out and promise.released

    # What must have come of it.

    def of(self, delivery: Delivery) -> Promise:
        if (
            isinstance(delivery, InflightMessage) and delivery.released
        ):  # nothing else is known of it
            return next(
                promise
                for promise in self.promises
                if promise.released and promise.number == delivery.packet_id
            )
        return self.named(delivery.message)

    def named(self, message: Message) -> Promise:
        return self.promises[int(message.body.rstrip(b"."))]

    def collect(self) -> None:
        """Look at what the client was given since the last time."""
        if self.client is None:
            return
        forwarded = self.client.ear.forwarded
        while self.seen < len(forwarded):
            fragment, delivery = forwarded[self.seen]
            self.seen += 1
            assert not isinstance(fragment, Fragment)
            self.given(fragment, delivery)

    def given(self, message: Message, delivery: Delivery | None) -> None:
        promise = self.named(message) if delivery is None else self.of(delivery)
        assert not promise.done, "it has been delivered and answered, or need not be"
        if not isinstance(delivery, InflightMessage) or not delivery.packet_id:
            assert promise.qos == 0
            promise.done = True
            return
        assert delivery.qos == promise.qos > 0
        assert delivery.released == promise.released
        assert promise.number in (0, delivery.packet_id), "what is sent again has its number"
        if not promise.released:
            self.is_in_order(promise)
            assert not promise.out
            assert delivery.count == 0 or promise.number or self.durable
        numbers = [other.number for other in self.promises if other.out and other is not promise]
        assert delivery.packet_id not in numbers
        assert 1 <= delivery.packet_id <= self.numbers
        promise.number = delivery.packet_id
        promise.out = True

    def is_in_order(self, promise: Promise) -> None:
        """What was kept is drawn on the side; all else comes as it was published."""
        if promise.recalled:
            return
        now = self.stand.clock.time()
        before = next(n for n, other in enumerate(self.promises) if other is promise)
        overtaken = [
            other
            for other in self.promises[:before]
            if self.is_owed(other, now) and not other.out and not other.recalled
        ]
        assert not overtaken

    @staticmethod
    def is_owed(promise: Promise, now: float) -> bool:
        """It must still arrive."""
        if promise.done or not promise.qos or (promise.recalled and not promise.number):
            return False
        return promise.released or not promise.deadline or now < promise.deadline

    @invariant()
    def the_window_is_kept(self) -> None:
        if self.client is not None:
            out = sum(promise.out and not promise.released for promise in self.promises)
            assert out <= self.window

    @invariant()
    def nothing_waits_that_could_go(self) -> None:
        if self.open and len(self.session.inflight) < self.window and self.numbers == MAX_PACKET_ID:
            assert self.session.message_count == 0
            now = self.stand.clock.time()
            assert not [one for one in self.promises if self.is_owed(one, now) and not one.out]

    @invariant()
    def what_is_out_is_known(self) -> None:
        if self.client is not None:
            out = {promise.number for promise in self.promises if promise.out}
            assert set(self.session.inflight) == out

    def teardown(self) -> None:
        try:
            if hasattr(self, "stand"):
                self.settle()
                self.loop.run_until_complete(self.stand.close())
        finally:
            self.patched.close()
            self.loop.close()
            shutil.rmtree(self.folder)

    def settle(self) -> None:
        """A good client takes all that is left, and then nothing is."""
        if self.client is None:
            self.connect(window=4, is_open=True)
        assert self.client is not None
        self.request(True)
        while self.session.inflight:
            number, entry = next(iter(self.session.inflight.items()))
            if isinstance(entry, Message):
                self.acknowledge_plain(number)
                self.client.request()
                self.collect()
                continue
            promise = self.of(entry)
            promise.done, promise.out, promise.released = True, False, False
            self.client.answer(entry)
            self.collect()
        now = self.stand.clock.time()
        assert not [promise for promise in self.promises if self.is_owed(promise, now)]
        assert self.session.message_count == 0
        assert not self.session.exactly_once.released
        assert self.stand.pool.used == 0
        store = self.session._pending.store
        store = store._store if store is not None else None
        if store is not None:
            assert store.acks.floor == store.log.next_offset, "nothing is kept on disk"


class FewNumbers(SessionAgainstItsPromise):
    numbers = 5


TestSessionAgainstItsPromise = SessionAgainstItsPromise.TestCase
TestFewNumbers = FewNumbers.TestCase
TestSessionAgainstItsPromise.settings = TestFewNumbers.settings = settings(
    max_examples=40,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
