"""What an open gate costs, and a terminal of the broker behind one."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from pathlib import Path
from typing import cast

from websockets.asyncio.client import connect
from websockets.frames import Opcode

from penstock.core.config import BrokerSettings
from penstock.server import Broker
from penstock.server.websocket import WebSocketConnection
from tests.protocols.toy import ToyTerminal
from tests.server.websocket.connections import (
    MAX_BYTES,
    MQTT,
    PATHS,
    SUBPROTOCOLS,
    Terminal,
    frame,
)
from tests.server.websocket.test_request import POLICY, request


class Socket(asyncio.Transport):
    """A transport that goes nowhere."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass


async def test_an_open_gate_is_small() -> None:
    terminal = Terminal()
    count = 500

    def opened() -> WebSocketConnection:
        gate = WebSocketConnection(terminal, SUBPROTOCOLS, PATHS, MAX_BYTES, 30, POLICY)
        gate.connection_made(Socket())
        gate.data_received(request(Cookie="x" * 4000))
        gate.data_received(frame(Opcode.BINARY, b"connect"))
        return gate

    warm = opened()
    tracemalloc.start()
    try:
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        gates = [opened() for _ in range(count)]
        terminal.heard = asyncio.Queue()
        gc.collect()
        each = (tracemalloc.get_traced_memory()[0] - before) / count
    finally:
        tracemalloc.stop()
    assert each < 1500
    for gate in (warm, *gates):
        gate.closing = True


async def test_a_terminal_of_the_broker_speaks_through_it(tmp_path: Path) -> None:
    settings = BrokerSettings(listen=["amqp://127.0.0.1:0"])
    async with Broker(settings, data=tmp_path) as broker:
        broker.vhosts["/"].declare_queue("jobs", durable=True)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: WebSocketConnection(
                ToyTerminal(broker), SUBPROTOCOLS, PATHS, MAX_BYTES, 30, POLICY
            ),
            "127.0.0.1",
            0,
        )
        port = server.sockets[0].getsockname()[1]
        async with connect(f"ws://127.0.0.1:{port}/ws", subprotocols=[MQTT]) as client:
            await client.send(b"PUB /exchange//jobs tidy ")
            await client.send(b"up\nSUB /queue/jobs\n")
            heard = b""
            while heard.count(b"\n") < 3:
                heard += cast(bytes, await client.recv())
        server.close()
    assert sorted(heard.splitlines()) == [b"MSG 2 tidy up", b"OK", b"OK"]
