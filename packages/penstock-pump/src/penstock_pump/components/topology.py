"""What a component needs at its brokers: exchanges, queue and bindings, declared or deleted."""

from __future__ import annotations

import asyncio

from penstock.client.amqp091.connection import connect
from penstock.client.url import BrokerProtocol, protocol_of
from penstock.wire.amqp091.address import parse_amqp_url
from penstock_pump.components.factory import (
    POSTERS,
    ComponentFactory,
    bindings,
    bindings_file,
    needs_post_broker,
    open_component_factory,
    post_copies,
    queue_rules,
    subscriptions,
)
from penstock_pump.config.settings import PumpSettings
from penstock_pump.flow.subscription import declare_exchange, declare_queue
from penstock_pump.names import posted_exchange, queue_file, queue_name, user_of


async def declare_component(settings: PumpSettings) -> list[str]:
    """Returns the names of what was declared. A queue of MQTT is a session."""
    async with open_component_factory(settings, starts=False) as factory:
        declared = []
        if settings.component not in POSTERS:
            for own in _with_own_exchange(settings):
                declared += [await _declare_queue(factory, each) for each in subscriptions(own)]
        if settings.component in POSTERS or needs_post_broker(settings):
            for each in (settings, *post_copies(settings)):
                url = each.post_broker or each.broker
                name, split = posted_exchange(each, url), each.post_exchange_split
                names = [f"{name}{number:02d}" for number in range(split)] if split > 1 else [name]
                declared += await _declare_exchanges(factory, url, names)
        if settings.report_back:
            reports = settings.report_broker or settings.broker
            name = settings.report_exchange or f"xs_{user_of(reports)}"
            declared += await _declare_exchanges(factory, reports, [name])
        declared += await _declare_exchanges(factory, settings.broker, settings.exchanges)
        await asyncio.to_thread(factory.plugins.notify, "on_declare")
        return list(dict.fromkeys(declared))


async def cleanup_component(settings: PumpSettings) -> list[str]:
    """Deletes the queues, and forgets their names and bindings; returns their names."""
    deleted = []
    async with open_component_factory(settings, starts=False) as factory:
        consumed = [] if settings.component in POSTERS else subscriptions(settings)
        for number, each in enumerate(consumed):
            for instance in range(1, each.instances + 1):
                own = each.model_copy(update={"instance": instance})
                rules = await asyncio.to_thread(queue_rules, own)
                if await factory.brokers.delete_queue(each.broker, rules):
                    deleted.append(rules.name)
            for own in _with_own_exchange(each):
                for path in (queue_file(own), bindings_file(own, number)):
                    path.unlink(missing_ok=True)
        await asyncio.to_thread(factory.plugins.notify, "on_cleanup")
    return list(dict.fromkeys(deleted))


def _with_own_exchange(settings: PumpSettings) -> list[PumpSettings]:
    """The instances, where each consumes from an exchange of its own; otherwise they share one."""
    if not settings.exchange_split:
        return [settings]
    numbers = range(1, settings.instances + 1)
    return [settings.model_copy(update={"instance": number}) for number in numbers]


async def notify_component(settings: PumpSettings, event: str) -> None:
    """Calls `on_sanity` or `on_features` of the plugins, which look after what is their own."""
    async with open_component_factory(settings, starts=False) as factory:
        await asyncio.to_thread(factory.plugins.notify, event)


async def _declare_queue(factory: ComponentFactory, settings: PumpSettings) -> str:
    queue = await asyncio.to_thread(queue_name, settings)
    if protocol_of(settings.broker) is not BrokerProtocol.AMQP091:
        for instance in range(1, settings.instances + 1):
            own = settings.model_copy(update={"instance": instance})
            rules = await asyncio.to_thread(queue_rules, own)
            await factory.brokers.subscribe(settings.broker, bindings(settings), rules)
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
