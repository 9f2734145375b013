"""Archives of messages: `save` writes a queue to a file, a line per message, `restore` publishes it
again, and `archive_exchanges` has a stream record exchanges for the lake."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Final

from penstock.client.url import BrokerProtocol, protocol_of
from penstock.core.errors import ConfigurationError, Unsupported
from penstock_pump.components.factory import open_component_factory
from penstock_pump.config.settings import PumpSettings
from penstock_pump.flow.message import message_from_json, message_to_json
from penstock_pump.flow.subscription import PumpDelivery
from penstock_pump.names import ANNOUNCEMENT_STREAM
from penstock_pump.status import ComponentControl

#: Messages that are written and synced together, and then acknowledged.
BATCH: Final = 500
MAX_UNCONFIRMED: Final = 1000
#: Posts and reports of either version.
BINDING_KEYS: Final = ("v02.#", "v03.#")


async def save(settings: PumpSettings, control: ComponentControl | None = None) -> int:
    """Append the messages of a queue to a file until none arrives for `idle` seconds; returns how
    many."""
    control = control or ComponentControl()
    path = _file(settings)
    saved = 0
    async with open_component_factory(settings) as factory:
        subscription = await factory.subscription()
        control.ready.set()
        batch: list[PumpDelivery] = []
        while not control.stop.is_set():
            try:
                async with asyncio.timeout(settings.idle):
                    batch += await subscription.receive()
            except TimeoutError:
                break
            if len(batch) >= min(BATCH, settings.prefetch):
                saved += await _write(path, batch)
        saved += await _write(path, batch)
    return saved


async def restore(settings: PumpSettings) -> int:
    """Publish the messages of a file unchanged; returns how many. The file is not changed."""
    path = _file(settings)
    sent = 0
    unconfirmed: deque[Awaitable[None]] = deque()
    async with open_component_factory(settings) as factory:
        post_publisher = await factory.post_publisher()
        with path.open(encoding="utf-8") as lines:
            while batch := await asyncio.to_thread(lines.readlines, 1 << 16):
                for line in batch:
                    if line.strip():
                        publishing = post_publisher.forward(message_from_json(line))
                        unconfirmed.append(asyncio.create_task(publishing))
                        sent += 1
                    while len(unconfirmed) > MAX_UNCONFIRMED:
                        await unconfirmed.popleft()
        while unconfirmed:
            await unconfirmed.popleft()
    return sent


async def _write(path: Path, batch: list[PumpDelivery]) -> int:
    """Sync before acknowledging."""
    if not batch:
        return 0
    await asyncio.to_thread(_append, path, [message_to_json(each.pump_message) for each in batch])
    count = len(batch)
    for delivery in batch:
        await delivery.ack()
    batch.clear()
    return count


def _append(path: Path, lines: list[str]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines)
        file.flush()
        os.fsync(file.fileno())


def _file(settings: PumpSettings) -> Path:
    if settings.file is None:
        raise ConfigurationError(f"{settings.component} needs a file")
    return settings.file


async def archive_exchanges(settings: PumpSettings, exchanges: Sequence[str]) -> None:
    """Bind the stream `announcements` to the exchanges; idempotent."""
    if protocol_of(settings.broker) is BrokerProtocol.MQTT:
        raise Unsupported("posts over MQTT are always archived: use an amqp:// URL for exchanges")
    async with open_component_factory(settings) as factory:
        fabric = await factory.brokers.fabric(settings.broker)
        async with await fabric.amqp.channel() as channel:
            await channel.declare_queue(ANNOUNCEMENT_STREAM, arguments={"x-queue-type": "stream"})
            for name in exchanges:
                await channel.declare_exchange(name, "topic")
                for key in BINDING_KEYS:
                    await channel.bind(ANNOUNCEMENT_STREAM, name, key)
