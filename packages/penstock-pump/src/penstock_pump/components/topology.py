"""What a component needs at its brokers: exchanges, queue and bindings, declared or deleted."""

from __future__ import annotations

import asyncio

from penstock.client.amqp091.connection import connect
from penstock.client.url import BrokerProtocol, protocol_of
from penstock.wire.amqp091.address import parse_amqp_url
from penstock_pump.components.factory import (
    ComponentFactory,
    bindings,
    needs_post_broker,
    open_component_factory,
)
from penstock_pump.config.settings import Component, PumpSettings
from penstock_pump.flow.subscription import declare_exchange, declare_queue
from penstock_pump.names import posted_exchange, queue_file, queue_name, state_folder, user_of

_POSTERS = (Component.POST, Component.WATCH, Component.POLL)


async def declare_component(settings: PumpSettings) -> list[str]:
    """Returns the names of what was declared. A queue of MQTT is a session."""
    async with open_component_factory(settings) as factory:
        declared = []
        if settings.component not in _POSTERS:
            declared.append(await _declare_queue(factory))
        url = settings.post_broker or settings.broker
        if settings.component in _POSTERS or needs_post_broker(settings):
            name, split = posted_exchange(settings, url), settings.post_exchange_split
            names = [f"{name}{number:02d}" for number in range(split)] if split > 1 else [name]
            declared += await _declare_exchanges(factory, url, names)
        if settings.report_back:
            reports = settings.report_broker or settings.broker
            name = settings.report_exchange or f"xs_{user_of(reports)}"
            declared += await _declare_exchanges(factory, reports, [name])
        declared += await _declare_exchanges(factory, settings.broker, settings.exchanges)
        return list(dict.fromkeys(declared))


async def cleanup_component(settings: PumpSettings) -> str | None:
    """Deletes the queue, and forgets its name and bindings; returns its name."""
    if settings.component in _POSTERS:
        return None
    queue = await asyncio.to_thread(queue_name, settings)
    async with open_component_factory(settings) as factory:
        existed = await factory.brokers.delete_queue(settings.broker, queue)
    folder = state_folder(settings)
    for path in (
        queue_file(settings),
        folder / f"{settings.component}.{settings.name}.bindings",
    ):
        path.unlink(missing_ok=True)
    return queue if existed else None


async def _declare_queue(factory: ComponentFactory) -> str:
    settings = factory.settings
    queue = await asyncio.to_thread(queue_name, settings)
    if protocol_of(settings.broker) is not BrokerProtocol.AMQP091:
        await factory.subscription()
        return queue
    connection = await connect(
        parse_amqp_url(factory.credentials.complete(settings.broker)), "pump declare"
    )
    try:
        bound = bindings(settings)
        for exchange in dict.fromkeys(each.exchange for each in bound):
            await declare_exchange(connection, exchange)
        await declare_queue(connection, queue, settings.expire, settings.queue_arguments)
        channel = await connection.channel()
        for each in bound:
            await channel.bind(queue, each.exchange, each.key)
    finally:
        await connection.close()
    return queue


async def _declare_exchanges(factory: ComponentFactory, url: str, names: list[str]) -> list[str]:
    """Topics of MQTT need no declaration."""
    if not names or protocol_of(url) is not BrokerProtocol.AMQP091:
        return []
    connection = await connect(parse_amqp_url(factory.credentials.complete(url)), "pump declare")
    try:
        for name in names:
            await declare_exchange(connection, name)
    finally:
        await connection.close()
    return names
