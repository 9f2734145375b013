"""SIGKILL under the load of all protocols at once; what clients were told must hold.

A round is one broker that is killed and started again several times, while clients publish and
consume: AMQP 0-9-1 (a queue and a stream with confirms, transactions, large messages, delayed
messages), AMQP 1.0, PADRES, and MQTT sessions of QoS 1 and 2. Some kills are followed by another
one while the broker recovers.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import pika
import pika.exceptions
from pika import frame, spec

from tests.integration.amqp091.wire import Wire
from tests.integration.load import Books, Consumer, Publisher
from tests.integration.mqtt.clients_paho import MQTT_5
from tests.integration.mqtt.clients_steady import Publisher as MqttPublisher
from tests.integration.mqtt.clients_steady import SteadyClient, Subscriber
from tests.integration.mqtt.test_crash_mqtt import check as check_mqtt
from tests.integration.test_crash import replay
from tests.padres import PadresBroker
from tests.reliability.publishers import PUBLISHERS, ConfirmingPublisher
from tests.reliability.records import Records

KILLS_PER_ROUND: Final = 10
#: Of the kills, this part is followed by one of the recovering broker.
KILLED_AGAIN: Final = 0.2
PATIENCE: Final = 60.0
LOAD_SECONDS: Final = 0.4
#: The longest time to a kill of the recovering broker.
RECOVERY_SECONDS: Final = 1.0


class KillRound:
    def __init__(self, padres: PadresBroker, chance: random.Random) -> None:
        self._padres = padres
        self._broker = padres.server
        self._chance = chance
        self._queue, self._stream = Books(), Books()
        self._replayed = 0  # the number of messages found in the stream
        self._confirmed: dict[str, set[int]] = {name: set() for name in PUBLISHERS}
        self._taken: dict[str, set[int]] = {name: set() for name in PUBLISHERS}
        self._first = dict.fromkeys(PUBLISHERS, 0)
        self.confirms = 0  #: what the broker had promised, over all kills

    def run(self, kills: int) -> None:
        self._declare()
        with self._mqtt() as (clients, publishers):
            for _ in range(kills):
                self._kill_under_load(clients, publishers)
                self._restart()
                self._check()
            for client in clients:
                client.resume()
        self.confirms += sum(publisher.confirmed for publisher in publishers)

    def _declare(self) -> None:
        with pika.BlockingConnection(pika.URLParameters(self._broker.url)) as connection:
            channel = connection.channel()
            channel.queue_declare("queue", durable=True)
            channel.queue_declare("stream", durable=True, arguments={"x-queue-type": "stream"})
            delayed = {"x-delayed-type": "direct"}
            channel.exchange_declare("later", "x-delayed-message", durable=True, arguments=delayed)
            channel.exchange_declare("content", "x-content", durable=True)
            for name in PUBLISHERS:
                channel.queue_declare(name, durable=True)
            channel.queue_bind("delayed", "later", "delayed")
            subscription = {"x-subscription": "[class,eq,kills],[n,>,-1]"}
            channel.queue_bind("padres", "content", "", subscription)

    @contextlib.contextmanager
    def _mqtt(self) -> Iterator[tuple[list[SteadyClient], list[MqttPublisher]]]:
        """Clients of both qualities, which are compared at the end."""
        clients, publishers, subscribers = [], [], []
        for qos in (1, 2):
            writer = SteadyClient(self._broker.mqtt_port, f"writer-{qos}", MQTT_5)
            reader = SteadyClient(self._broker.mqtt_port, f"reader-{qos}", MQTT_5)
            publisher = MqttPublisher(writer, f"kills/{qos}", qos)
            subscriber = Subscriber(reader, f"kills/{qos}", qos)
            reader.open()
            subscriber.subscribe()
            writer.open()
            publisher.start()
            clients += [reader, writer]
            publishers.append(publisher)
            subscribers.append(subscriber)
        yield clients, publishers
        for qos, publisher, subscriber in zip((1, 2), publishers, subscribers, strict=True):
            publisher.finish()
            subscriber.wait_for_all(publisher.sent)
            check_mqtt(subscriber.received, publisher, qos)
        for client in clients:
            client.close()

    def _kill_under_load(self, clients: list[SteadyClient], mqtt: list[MqttPublisher]) -> None:
        port = self._broker.port
        confirming = [
            publisher(self._padres, name, self._first[name])
            for name, publisher in PUBLISHERS.items()
        ]
        flood = [Publisher(port, "queue", self._queue), Publisher(port, "stream", self._stream)]
        consumer = Consumer(port, "queue", self._queue)
        _start(confirming)  # slow to connect; the rest is too much load for long
        for client in clients:
            if client.connections and not client.ready:
                client.resume()
        consumer.start()
        _start(flood)
        time.sleep(self._chance.uniform(0.0, LOAD_SECONDS))  # the moment is the point
        self._broker.kill()
        for publisher in confirming:
            publisher.end()
        for thread in (*confirming, *flood, consumer):
            thread.join(PATIENCE)
            assert not thread.is_alive()
        for each in mqtt:
            each.note_crash()
        assert consumer.out_of_order == []
        for publisher in confirming:
            self._confirmed[publisher.name].update(publisher.confirmed)
            self._first[publisher.name] = publisher.next

    def _restart(self) -> None:
        while self._chance.random() < KILLED_AGAIN:
            before = self._broker.pid
            starting = threading.Thread(target=self._try_to_start)
            starting.start()
            while self._broker.pid == before:
                time.sleep(0.005)
            time.sleep(self._chance.uniform(0.0, RECOVERY_SECONDS))
            self._broker.kill()
            starting.join(PATIENCE)
        self._broker.start()

    def _try_to_start(self) -> None:
        with contextlib.suppress(AssertionError):  # it was killed before it was ready
            self._broker.start()

    def _check(self) -> None:
        found = self._drain("queue", self._queue.promised)
        self._queue.check(found)
        last = max(self._stream.confirmed)
        offsets, numbers = replay(self._broker, "stream", last, self._replayed)
        assert offsets == list(range(self._replayed, self._replayed + len(offsets)))
        assert numbers == sorted(set(numbers)), "stream: out of order, or twice"
        assert self._stream.confirmed <= set(numbers), "stream: confirmed and lost"
        self.confirms += len(self._queue.promised) + len(self._stream.confirmed)
        self._replayed += len(numbers)
        self._stream.confirmed.clear()
        self._queue.confirmed.clear()
        self._queue.acknowledged.update(found)
        for name, expected in self._confirmed.items():
            found = self._drain(name, expected)
            lost = sorted(expected - set(found))
            assert not lost, f"{name}: confirmed and lost: {lost[:9]}"
            # What the client repeats, or what is due when the broker dies, may come twice.
            if name not in ("delayed", "padres"):
                assert len(found) == len(set(found)), f"{name}: twice"
                back = sorted(self._taken[name] & set(found))
                assert not back, f"{name}: acknowledged and back: {back[:9]}"
                self._taken[name].update(found)
            self.confirms += len(expected)
            expected.clear()

    def _drain(self, queue: str, expected: set[int]) -> list[int]:
        """All that is in the queue, and what is expected: it is taken out and acknowledged."""
        found: list[int] = []
        with Wire(self._broker.port, PATIENCE) as wire:
            wire.negotiate()
            wire.open_channel()
            ready = wire.call(1, spec.Queue.Declare(queue=queue, passive=True)).message_count
            wire.call(1, spec.Basic.Consume(queue=queue, no_ack=True))
            missing = set(expected)
            body = b""
            size = 0
            while ready > 0 or missing:
                try:
                    arrived = wire.receive()
                except TimeoutError:
                    break
                if isinstance(arrived, frame.Header):
                    body, size = b"", arrived.body_size
                elif isinstance(arrived, frame.Body):
                    size -= len(arrived.fragment)
                    body = body or arrived.fragment
                    if size == 0:
                        found.append(int(body.split(b" ")[0]))
                        missing.discard(found[-1])
                        ready -= 1
                else:
                    assert arrived is not None, f"{queue}: closed while reading"
            answer = wire.call(1, spec.Queue.Declare(queue=queue, passive=True))
            while answer is not None and not isinstance(answer, spec.Queue.DeclareOk):
                answer = wire.receive_method()
        return found


def _start(publishers: Sequence[Publisher | ConfirmingPublisher]) -> None:
    for publisher in publishers:
        publisher.start()
    for publisher in publishers:
        assert publisher.first_confirm.wait(PATIENCE), f"{publisher}: nothing is confirmed"


def run_round(seed: int, kills: int = KILLS_PER_ROUND) -> int:
    """The number of confirms that were checked."""
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        # Many rounds at a time keep the machine busy: a client may need long to log in.
        broker = PadresBroker(Path(folder), "--set", "broker.handshake_timeout=60s")
        broker.start()
        try:
            this = KillRound(broker, random.Random(seed))
            this.run(kills)
        finally:
            broker.stop()
        return this.confirms


def record_round(seed: int) -> dict[str, Any]:
    start = time.monotonic()
    confirms, problem = 0, ""
    try:
        confirms = run_round(seed)
    except AssertionError as error:
        problem = str(error) or traceback.format_exc()
    seconds = round(time.monotonic() - start, 1)
    return {
        "seed": seed,
        "kills": KILLS_PER_ROUND,
        "confirms": confirms,
        "problem": problem,
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000, help="kills in all")
    parser.add_argument("--first-seed", type=int, default=0, help="to continue another run")
    parser.add_argument("--results", type=Path, required=True, help="a line for each round")
    parser.add_argument("--parallel", type=int, default=1, help="brokers at a time")
    options = parser.parse_args()
    records = Records(options.results)
    rounds = -(-options.count // KILLS_PER_ROUND)
    done = {record["seed"] for record in records.all if not record["problem"]}
    seeds = sorted(set(range(options.first_seed, options.first_seed + rounds)) - done)
    pool = ProcessPoolExecutor(options.parallel, get_context("spawn"))

    def record(ended: Future[dict[str, Any]]) -> None:
        if not ended.cancelled():
            records.add(**ended.result())

    rounds_left = [pool.submit(record_round, seed) for seed in seeds]
    for each in rounds_left:
        each.add_done_callback(record)
    try:
        wait(rounds_left)
    finally:  # those under way are finished
        pool.shutdown(cancel_futures=True)


if __name__ == "__main__":
    main()
