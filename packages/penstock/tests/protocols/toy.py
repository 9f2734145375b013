"""A toy protocol of lines, as a terminal: what it takes to add one.

    PUB /exchange/NAME/KEY BODY     answered OK, or ERR and why
    SUB /queue/NAME                 answered OK; then MSG NUMBER BODY for each, one at a time
    ACK NUMBER                      done with it: the next one comes
    REQ NUMBER                      put it back

It keeps no messages and knows nothing of queues: it looks up a path and speaks the contract.
"""

from __future__ import annotations

import asyncio
from typing import cast

from penstock.broker import vhost
from penstock.broker.contract import PERSISTENT, Channel, Delivery, Fragment, Message
from penstock.broker.host import Host
from penstock.core.basic_properties import BasicProperties, encode_header, encode_route
from penstock.core.errors import PenstockError


class ToyTerminal(asyncio.Protocol):
    def __init__(self, host: Host) -> None:
        self.vhost = host.vhosts["/"]
        self.write_batch = host.kernel.write_batch
        self.channels: dict[str, Channel] = {}
        self.unanswered: dict[int, tuple[Channel, Delivery]] = {}
        self.out: list[bytes] = []
        self.tail = b""
        self.number = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        for channel in self.channels.values():
            channel.driver.channel_close(channel)
        for channel, delivery in self.unanswered.values():
            channel.driver.channel_failure(channel, delivery, True)
        self.write_batch.flush()

    def data_received(self, data: bytes) -> None:
        *lines, self.tail = (self.tail + data).split(b"\n")
        for line in lines:
            verb, _, rest = line.decode().partition(" ")
            try:
                getattr(self, f"on_{verb.lower()}")(rest)
            except (PenstockError, AttributeError, KeyError, ValueError) as error:
                self.say(f"ERR {error}")
        self.write_batch.flush()

    def on_pub(self, rest: str) -> None:
        name, _, body = rest.partition(" ")
        path = vhost.parse_destination(name)
        header = encode_header(BasicProperties(delivery_mode=2), len(body.encode()))
        message = Message(encode_route(path.name, path.key), header, body.encode(), PERSISTENT)
        channel = self.channel(f"/exchange/{path.name}")
        self.number += 1
        channel.driver.channel_post(channel, message, self.number)

    def on_sub(self, path: str) -> None:
        channel = self.channel(path)
        self.say("OK")
        channel.driver.channel_request(channel, 1)

    def on_ack(self, number: str) -> None:
        channel, delivery = self.unanswered.pop(int(number))
        channel.driver.channel_confirm(channel, delivery)
        channel.driver.channel_request(channel, 1)

    def on_req(self, number: str) -> None:
        channel, delivery = self.unanswered.pop(int(number))
        channel.driver.channel_failure(channel, delivery, True)
        channel.driver.channel_request(channel, 1)

    def channel(self, path: str) -> Channel:
        if path not in self.channels:
            channel = Channel(self, self.vhost.lookup(path))
            channel.driver.channel_open(channel, {"prefetch": 1})
            self.channels[path] = channel
        return self.channels[path]

    # What drivers call.

    def channel_forward(
        self, channel: Channel, fragment: Message | Fragment, delivery: Delivery | None
    ) -> None:
        assert isinstance(fragment, Message), "a toy has no use for large messages"
        assert delivery is not None
        self.number += 1
        self.unanswered[self.number] = (channel, delivery)
        self.say(f"MSG {self.number} {fragment.body.decode()}")

    def channel_confirm(self, channel: Channel, receipt: int) -> None:
        self.say("OK")

    def channel_failure(self, channel: Channel, receipt: int, error: Exception) -> None:
        self.say(f"ERR {error}")

    # One write a turn.

    def say(self, line: str) -> None:
        if not self.out:
            self.write_batch.to_flush.append(self)
        self.out.append(line.encode() + b"\n")

    def flush(self) -> None:
        self.transport.write(b"".join(self.out))
        self.out.clear()
