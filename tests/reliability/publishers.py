"""Publishers of numbered messages that note which were confirmed; one for each way to publish."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any, ClassVar, Final

import pika
import pika.exceptions

from penstock.client.padres import PadresClient
from tests.integration.amqp10.proton import SECONDS, need_proton
from tests.padres import PadresBroker

LARGE_BYTES: Final = 1 << 20
DELAY_MILLISECONDS: Final = 300
PERSISTENT: Final = 2


class ConfirmingPublisher(threading.Thread):
    """Publishes with pika, one message at a time, until the broker is killed."""

    EXCHANGE: ClassVar = ""
    HEADERS: ClassVar[dict[str, Any] | None] = None

    def __init__(self, broker: PadresBroker, queue: str, first: int) -> None:
        super().__init__(name=queue, daemon=True)
        self.confirmed: list[int] = []
        self.first_confirm = threading.Event()
        self.next = first
        self._broker = broker
        self._queue = queue

    def run(self) -> None:
        with contextlib.suppress(pika.exceptions.AMQPError, OSError):
            connection = pika.BlockingConnection(pika.URLParameters(self._broker.server.url))
            channel = connection.channel()
            self._prepare(channel)
            while True:
                self._note(self._publish(channel))

    def end(self) -> None:
        """The broker has been killed: for clients that would wait for it."""

    def _prepare(self, channel: Any) -> None:
        channel.confirm_delivery()

    def _publish(self, channel: Any) -> list[int]:
        return [self._send(channel)]

    def _send(self, channel: Any) -> int:
        number = self._take_number()
        properties = pika.BasicProperties(delivery_mode=PERSISTENT, headers=self.HEADERS)
        channel.basic_publish(self.EXCHANGE, self._queue, self._body(number), properties)
        return number

    def _take_number(self) -> int:
        self.next += 1
        return self.next - 1

    def _note(self, numbers: list[int]) -> None:
        self.confirmed += numbers
        self.first_confirm.set()

    def _body(self, number: int) -> bytes:
        return b"%d" % number


class LargePublisher(ConfirmingPublisher):
    def _body(self, number: int) -> bytes:
        return (b"%d " % number).ljust(LARGE_BYTES, b".")


class DelayedPublisher(ConfirmingPublisher):
    EXCHANGE = "later"
    HEADERS: ClassVar = {"x-delay": DELAY_MILLISECONDS}


class TransactionalPublisher(ConfirmingPublisher):
    """Five messages a transaction; none of it counts before the commit is answered."""

    def _prepare(self, channel: Any) -> None:
        channel.tx_select()

    def _publish(self, channel: Any) -> list[int]:
        numbers = [self._send(channel) for _ in range(5)]
        channel.tx_commit()
        return numbers


class Amqp10Publisher(ConfirmingPublisher):
    """Unsettled transfers by qpid-proton; one counts when its outcome is accepted."""

    def run(self) -> None:
        proton = need_proton()
        from proton.utils import BlockingConnection

        address = f"amqp://guest:guest@127.0.0.1:{self._broker.server.port}"
        with contextlib.suppress(proton.ProtonException, OSError):
            connection = BlockingConnection(
                address, timeout=SECONDS, allowed_mechs="PLAIN", reconnect=False
            )
            sender = connection.create_sender(f"/queue/{self._queue}")
            while True:
                number = self._take_number()
                message = proton.Message(body=self._body(number), durable=True, inferred=True)
                delivery = sender.send(message)
                assert delivery.remote_state == proton.Delivery.ACCEPTED
                self._note([number])


class PadresPublisher(ConfirmingPublisher):
    """Publications that a durable queue subscribes to by content."""

    def run(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(self._publish_all())

    async def _publish_all(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        async with PadresClient(self._broker.url) as client:
            await client.advertise("[class,eq,kills],[n,>,-1]")
            while True:
                number = self._take_number()
                await client.publish(f"[class,kills],[n,{number}]", self._body(number))
                self._note([number])

    def end(self) -> None:
        assert self._task is not None
        self._loop.call_soon_threadsafe(self._task.cancel)


#: Queue → its publisher.
PUBLISHERS: Final[dict[str, type[ConfirmingPublisher]]] = {
    "large": LargePublisher,
    "delayed": DelayedPublisher,
    "transactions": TransactionalPublisher,
    "amqp10": Amqp10Publisher,
    "padres": PadresPublisher,
}
