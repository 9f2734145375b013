"""Power cuts: a broker starts with what a disk may have then, and what clients were told must hold.

A round records what a broker does to its files under load, and when clients were told what. A cut
is a moment of the record, and one of the many states that a disk may have at that moment
(`simulated_disk`). A broker starts with it, and its queues and its stream are compared with what
clients knew by then.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

import paho.mqtt.client as paho
import pika
import pika.exceptions
from paho.mqtt.enums import CallbackAPIVersion

from penstock.core.config import BrokerSettings
from penstock.destinations.session.session import MqttSessionQueue
from penstock.server import Broker
from tests.peers import Process, free_port
from tests.reliability.exactly_once import (
    PUBLISHER,
    SUBSCRIBER,
    ExactlyOnceClient,
    check_exactly_once,
)
from tests.reliability.records import Records
from tests.reliability.simulated_disk import Record, SimulatedDisk, read_trace

CUTS_PER_ROUND: Final = 20
LOAD_SECONDS: Final = 2.0
PERSISTENT: Final = pika.BasicProperties(delivery_mode=2)
#: So large that a message has a file of its own.
LARGE_BYTES: Final = 300_000
QUEUES: Final[dict[str, dict[str, Any]]] = {
    "classic": {},
    "quorum": {"x-queue-type": "quorum"},
    "stream": {"x-queue-type": "stream"},
    "large": {},
    "transactions": {},
    "mqtt": {},
    "once": {},
    # From here …
    "work": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work-rejected"},
    "order": {},
    # … to there, by a rejection or a transaction.
    "work-rejected": {},
    "order-done": {},
}
#: A message of the first is in one of both.
MOVES: Final = {"work": "work-rejected", "order": "order-done"}
_TRACED: Final = Path(__file__).with_name("traced_broker.py")


class ClientEvent(NamedTuple):
    at: int  #: nanoseconds of the monotonic clock
    #: `sent`; `confirmed`; `taking` before an acknowledgement; of QoS 2 also `completed` by PUBCOMP
    #: for the publisher, `released` by PUBREL for the subscriber.
    kind: str
    queue: str
    message: str = ""


class RecordedLoad:
    """Clients of a broker, and what they were told."""

    def __init__(self, port: int, mqtt_port: int) -> None:
        self._port, self._mqtt_port = port, mqtt_port
        self.events: list[ClientEvent] = []
        self._stop = threading.Event()

    def run(self, seconds: float) -> None:
        with self._channel() as channel:
            for queue, arguments in QUEUES.items():
                channel.queue_declare(queue, durable=True, arguments=arguments)
            channel.queue_bind("mqtt", "amq.topic", "t")
            channel.queue_bind("once", "amq.topic", "once")
        subscriber = ExactlyOnceClient(self._mqtt_port, SUBSCRIBER)
        subscriber.subscribe()
        loads = (
            *(lambda queue=queue: self._publish(queue) for queue in ("classic", "quorum")),
            *(lambda queue=queue: self._publish(queue) for queue in ("stream", "large", *MOVES)),
            *(self._publish_transactions, self._take, self._declare, self._publish_mqtt),
            *(self._reject, self._process, self._publish_once),
            lambda: self._receive_once(subscriber),
        )
        threads = [threading.Thread(target=load, daemon=True) for load in loads]
        for thread in threads:
            thread.start()
        self._stop.wait(seconds)
        self._stop.set()
        subscriber.stop()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()

    def _note(self, kind: str, queue: str, *messages: str) -> None:
        for message in messages or ("",):
            self.events.append(ClientEvent(time.monotonic_ns(), kind, queue, message))

    @contextlib.contextmanager
    def _channel(self) -> Iterator[Any]:
        parameters = pika.ConnectionParameters("127.0.0.1", self._port)
        with pika.BlockingConnection(parameters) as connection:
            yield connection.channel()

    def _bodies(self, queue: str) -> Iterator[str]:
        filler = "." * LARGE_BYTES if queue == "large" else ""
        for number in count(1):
            if self._stop.is_set():
                return
            yield f"{queue}-{number}{filler}"

    def _publish(self, queue: str) -> None:
        with self._channel() as channel:
            channel.confirm_delivery()
            for body in self._bodies(queue):
                self._note("sent", queue, body)
                channel.basic_publish("", queue, body.encode(), PERSISTENT)
                self._note("confirmed", queue, body)

    def _publish_transactions(self) -> None:
        with self._channel() as channel:
            channel.tx_select()
            for body in self._bodies("transactions"):
                bodies = [f"{body}-{number}" for number in range(3)]
                self._note("sent", "transactions", *bodies)
                for one in bodies:
                    channel.basic_publish("", "transactions", one.encode(), PERSISTENT)
                channel.tx_commit()
                self._note("confirmed", "transactions", *bodies)

    def _take(self) -> None:
        """Acknowledge some, in transactions."""
        with self._channel() as channel:
            channel.tx_select()
            while not self._stop.is_set():
                for queue in ("classic", "quorum", "large"):
                    method, _, body = channel.basic_get(queue)
                    if method is None:
                        continue
                    self._note("taking", queue, body.decode())
                    channel.basic_ack(method.delivery_tag)
                    channel.tx_commit()

    def _reject(self) -> None:
        with self._channel() as channel:
            while not self._stop.is_set():
                method, _, _ = channel.basic_get("work")
                if method is not None:
                    channel.basic_reject(method.delivery_tag, requeue=False)

    def _process(self) -> None:
        """Consume and publish in one transaction."""
        with self._channel() as channel:
            channel.tx_select()
            while not self._stop.is_set():
                method, _, body = channel.basic_get("order")
                if method is not None:
                    channel.basic_publish("", "order-done", body, PERSISTENT)
                    channel.basic_ack(method.delivery_tag)
                    channel.tx_commit()
                    self._note("confirmed", "order-done", body.decode())

    def _declare(self) -> None:
        with self._channel() as channel:
            for name in self._bodies("temporary"):
                channel.queue_declare(name, durable=True)
                channel.queue_delete(name)

    def _publish_mqtt(self) -> None:
        client = paho.Client(CallbackAPIVersion.VERSION2, client_id="publisher")
        client.username_pw_set("guest", "guest")
        client.connect("127.0.0.1", self._mqtt_port)
        client.loop_start()
        for body in self._bodies("mqtt"):
            self._note("sent", "mqtt", body)
            client.publish("t", body, qos=1).wait_for_publish(60)
            self._note("confirmed", "mqtt", body)
        client.disconnect()
        client.loop_stop()

    def _publish_once(self) -> None:
        """With one packet id, which is used again at once or a little later."""
        with ExactlyOnceClient(self._mqtt_port, PUBLISHER) as client:
            for body in self._bodies("once"):
                self._note("sent", "once", body)
                client.publish(body)
                self._note("confirmed", "once", body)
                client.release()
                self._note("completed", "once", body)
                self._stop.wait(random.uniform(0.0, 0.02))

    def _receive_once(self, client: ExactlyOnceClient) -> None:
        bodies: dict[bytes, str] = {}
        with client, contextlib.suppress(EOFError, OSError):
            while True:
                arrival = client.receive()
                if arrival.body:
                    bodies[arrival.packet_id] = arrival.body
                    self._note("taking", "subscription", arrival.body)
                else:
                    self._note("released", "subscription", bodies.pop(arrival.packet_id))
                client.has(arrival)


class CutRound:
    """A recorded load, and the cuts of it."""

    def __init__(self, folder: Path, seconds: float = LOAD_SECONDS) -> None:
        self._folder = folder
        port, mqtt_port = free_port(), free_port()
        data = folder / "data"
        data.mkdir()
        listen = (f"amqp://127.0.0.1:{port}", f"mqtt://127.0.0.1:{mqtt_port}")
        process = Process(
            [
                *(sys.executable, str(_TRACED), str(folder / "trace"), "broker"),
                *("--data", str(data), *(word for url in listen for word in ("--listen", url))),
            ],
            folder / "broker.log",
            dict(os.environ),
        )
        try:
            process.wait_for_line("penstock broker ready")
            load = RecordedLoad(port, mqtt_port)
            load.run(seconds)
        finally:
            process.end(signal.SIGUSR1)
        self.trace = read_trace(folder / "trace")
        self._events = load.events
        self._check_completeness(data)

    def _check_completeness(self, data: Path) -> None:
        """The records lead to the files that are there."""
        disk = SimulatedDisk()
        for record in self.trace:
            disk.apply(record)
        recorded = {path: content for path, content in disk.files(None) if content is not None}
        found = {
            path.relative_to(data).as_posix(): path.read_bytes()
            for path in data.rglob("*")
            if path.is_file()
        }
        differing = [
            path for path in recorded.keys() | found.keys() if recorded.get(path) != found.get(path)
        ]
        assert not differing, f"the record is incomplete: {sorted(differing)[:5]}"

    def cut(self, chance: random.Random, drop: Callable[[Record], bool] = lambda _: False) -> None:
        """One power cut; raises AssertionError with the promise that does not hold. Records that
        are to `drop` are ignored, to make a disk that lies."""
        end = chance.randrange(1, len(self.trace))
        disk = SimulatedDisk()
        for record in self.trace[:end]:
            if not drop(record):
                disk.apply(record)
        known = [event for event in self._events if event.at < self.trace[end][0]]
        with tempfile.TemporaryDirectory(dir=self._folder, ignore_cleanup_errors=True) as folder:
            data = Path(folder) / "data"
            disk.write(data, chance)
            asyncio.run(_check(data, known))


async def _check(data: Path, known: list[ClientEvent]) -> None:
    settings = BrokerSettings(listen=["amqp://127.0.0.1:0", "mqtt://127.0.0.1:0"])
    async with Broker(settings, data=data) as broker:
        queues = {name for name in broker.vhosts["/"].queues if name in QUEUES}
        port, mqtt_port = (int(url.rpartition(":")[2]) for url in broker.addresses)
        # A confirm says that the declarations before it are on disk, too.
        if any(event[1:3] == ("confirmed", "once") for event in known):
            session = broker.vhosts["/"].queues.get(f"mqtt-subscription-{SUBSCRIBER}")
            kept = isinstance(session, MqttSessionQueue) and session.subscription_count
            assert kept, "once: the subscription is lost"
            known = [*known, *await asyncio.to_thread(_check_once, mqtt_port, known)]
        found = await asyncio.to_thread(_contents, port, queues)
    check_promises(known, found)


def _check_once(port: int, known: list[ClientEvent]) -> list[ClientEvent]:
    """What the clients of QoS 2 find when they return; returns what else is known then."""
    told: dict[tuple[str, str], set[str]] = {}
    for event in known:
        told.setdefault((event.kind, event.queue), set()).add(event.message)
    last = [event.kind for event in known if event.queue == "once"][-1]
    published = check_exactly_once(
        port,
        is_id_free=last == "completed",
        confirmed=told.get(("confirmed", "once"), set()),
        taken=told.get(("taking", "subscription"), set()),
        released=told.get(("released", "subscription"), set()),
    )
    kinds = ("sent", "confirmed")
    return [ClientEvent(0, kind, "once", body) for body in published for kind in kinds]


def _contents(port: int, queues: set[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {queue: [] for queue in queues}
    offsets: list[int] = []
    # On a busy machine the broker may end a handshake that takes too long.
    parameters = pika.ConnectionParameters("127.0.0.1", port, connection_attempts=5)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        for queue in queues - {"stream"}:
            while True:
                method, _, body = channel.basic_get(queue, auto_ack=True)
                if method is None:
                    break
                found[queue].append(body.decode())
        if "stream" in queues:
            channel.basic_qos(prefetch_count=1000)
            first = {"x-stream-offset": "first"}
            for method, properties, body in channel.consume(
                "stream", arguments=first, inactivity_timeout=0.1
            ):
                if method is None:
                    break
                offsets.append(properties.headers["x-stream-offset"])
                found["stream"].append(body.decode())
                channel.basic_ack(method.delivery_tag)
    assert offsets == list(range(len(offsets))), "stream offsets have gaps"
    return found


def check_promises(known: list[ClientEvent], found: dict[str, list[str]]) -> None:
    told: dict[tuple[str, str], set[str]] = {}
    for event in known:
        told.setdefault((event.kind, event.queue), set()).add(event.message)
    for source, target in MOVES.items():
        told["sent", target] = told.get(("sent", source), set())
    for queue in QUEUES:
        messages = found.get(queue, [])
        there = set(messages)
        lost = told.get(("confirmed", queue), set()) - there - told.get(("taking", queue), set())
        if queue in MOVES:
            lost -= set(found.get(MOVES[queue], []))
        assert not lost, f"{queue}: confirmed and lost: {_short(lost)}"
        assert len(messages) == len(there), f"{queue}: twice"
        strange = there - told.get(("sent", queue), set())
        if queue == "large":  # files of their own have no checksum: these were not confirmed
            confirmed = {one.partition(".")[0] for one in told.get(("confirmed", queue), set())}
            strange = {one for one in strange if one.partition(".")[0] in confirmed}
        assert not strange, f"{queue}: never sent: {_short(strange)}"


def _short(names: set[str]) -> list[str]:
    return [name[:40] for name in sorted(names)[:5]]


def run_round(seed: int, cuts: int = CUTS_PER_ROUND) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="power-cuts-") as folder:
        recorded = CutRound(Path(folder))
        for number in range(cuts):
            state = chance.getstate()
            try:
                recorded.cut(chance)
            except AssertionError as error:
                raise AssertionError(f"cut {number} of seed {seed}: {error}") from error
            assert chance.getstate() != state


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000, help="cuts in all")
    parser.add_argument("--first-seed", type=int, default=0, help="to continue another run")
    parser.add_argument("--results", type=Path, required=True, help="a line for each round")
    options = parser.parse_args()
    records = Records(options.results)
    rounds = range(len(records.all), -(-options.count // CUTS_PER_ROUND))
    for seed in (options.first_seed + number for number in rounds):
        start = time.monotonic()
        problem = ""
        try:
            run_round(seed)
        except AssertionError as error:
            problem = str(error) or "a wait timed out"
        seconds = round(time.monotonic() - start, 1)
        records.add(seed=seed, cuts=CUTS_PER_ROUND, problem=problem, seconds=seconds)


if __name__ == "__main__":
    main()
