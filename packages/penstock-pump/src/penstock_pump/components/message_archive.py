"""save and restore: a queue put into a file, a line a message, and published again from there."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Final

from penstock.core.errors import ConfigurationError, Unsupported
from penstock_pump.components.factory import open_component_factory
from penstock_pump.config.settings import PumpSettings
from penstock_pump.flow.message import message_from_json, message_to_json
from penstock_pump.flow.subscription import PumpDelivery, is_mqtt_url
from penstock_pump.status import ComponentControl

#: So many messages are written and synced together, and then acknowledged.
BATCH: Final = 500
#: So many announcements are under way at a time.
MAX_UNCONFIRMED: Final = 1000


async def save(settings: PumpSettings, control: ComponentControl | None = None) -> int:
    """Take messages from the queue until it is quiet; how many. The file is added to."""
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
    """Publish all that was saved, as it was; how many. The file is left as it is."""
    path = _file(settings)
    sent = 0
    under_way: deque[Awaitable[None]] = deque()
    async with open_component_factory(settings) as factory:
        post_publisher = await factory.post_publisher()
        with path.open(encoding="utf-8") as lines:
            while batch := await asyncio.to_thread(lines.readlines, 1 << 16):
                for line in batch:
                    if line.strip():
                        repeating = post_publisher.repeat(message_from_json(line))
                        under_way.append(asyncio.create_task(repeating))
                        sent += 1
                    while len(under_way) > MAX_UNCONFIRMED:
                        await under_way.popleft()
        while under_way:
            await under_way.popleft()
    return sent


async def _write(path: Path, batch: list[PumpDelivery]) -> int:
    """On the disk first, and acknowledged then."""
    if not batch:
        return 0
    await asyncio.to_thread(_append, path, [message_to_json(each.pump_message) for each in batch])
    count = len(batch)
    for heard in batch:
        await heard.ack()
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


# keep: what exchanges carry goes into the stream `announcements` as well, and so into the lake.

STREAM: Final = "announcements"
#: Posts and reports of either version.
BINDING_KEYS: Final = ("v02.#", "v03.#")


async def keep_in_stream(settings: PumpSettings, exchanges: Sequence[str]) -> None:
    """Have them kept from now on; done before, it changes nothing."""
    if is_mqtt_url(settings.broker):
        raise Unsupported("over MQTT announcements are kept anyway: give an amqp:// URL")
    async with open_component_factory(settings) as factory:
        fabric = await factory.brokers.fabric(settings.broker)
        async with await fabric.amqp.channel() as channel:
            await channel.declare_queue(STREAM, arguments={"x-queue-type": "stream"})
            for name in exchanges:
                await channel.declare_exchange(name, "topic")
                for key in BINDING_KEYS:
                    await channel.bind(STREAM, name, key)
