"""The exchanges and queues of jobs, by the names the Ichnaea clients use.

Each type has a direct exchange for requests and a fanout exchange for responses, with queues of the
same names. The queues are durable, bounded and have priorities; those of the Ichnaea clients are
not (`Durability.ICHNAEA`). An existing queue is used as it is. Beside them there are queues that
delay retries, a queue of dead letters per type, an exchange that routes responses by the reply-to
of their requests, and the queue of the history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final

from penstock.client.amqp091.channel import AmqpClientChannel
from penstock.client.amqp091.connection import AmqpClientConnection
from penstock.core.errors import NotFound, PreconditionFailed
from penstock_jobs.model import PRIORITIES

#: The types of the Ichnaea clients, which expect a response queue to exist.
ICHNAEA: Final = ("fake", "build_models", "predict_models")
TYPES: Final = (*ICHNAEA, "call", "command", "spark")

#: Direct; routing keys are the reply-to of requests.
RESPONSES: Final = "penstock.jobs.responses"
HISTORY: Final = "penstock_jobs.history"
#: A stream of cancel requests. A worker that starts later reads them, too.
CONTROL: Final = "penstock.jobs.control"

#: Brokers requeue a delivery after half an hour without an acknowledgement; a build may take a day.
#: RabbitMQ refuses the argument for classic queues from 4.3 on.
_CONSUMER_TIMEOUT: Final = "x-consumer-timeout"
_CONSUMER_MILLISECONDS: Final = 7 * 24 * 3600 * 1000
_RESPONSE_MILLISECONDS: Final = 24 * 3600 * 1000
_RESPONSE_LIMITS: Final = {"x-message-ttl": _RESPONSE_MILLISECONDS, "x-max-length": 100_000}
_DEAD_LIMITS: Final = {"x-message-ttl": 14 * 24 * 3600 * 1000, "x-max-length": 10_000}
#: An unused retry queue is deleted after so long.
_RETRY_EXPIRES_MILLISECONDS: Final = 3600 * 1000
#: A requester's response queue is deleted when it was not used for so long.
_REQUESTER_EXPIRES_MILLISECONDS: Final = 600_000
_HISTORY_BYTES: Final = 1 << 30


class Durability(Enum):
    DURABLE = "durable"  #: survives a restart of the broker
    ICHNAEA = "ichnaea"  #: transient queues, as the Ichnaea clients declare them


def stem(kind: str) -> str:
    return f"ichnaea.{kind.replace('_', '-')}"


def request_name(kind: str) -> str:
    return f"{stem(kind)}.request"


def response_name(kind: str) -> str:
    return f"{stem(kind)}.response"


def dead_name(kind: str) -> str:
    return f"{stem(kind)}.dead"


def retry_name(kind: str, seconds: int) -> str:
    return f"{stem(kind)}.retry.{seconds}"


async def declare(
    connection: AmqpClientConnection,
    kind: str,
    durability: Durability = Durability.DURABLE,
    queue: str | None = None,
) -> None:
    """The exchanges and queues of a type; `queue` replaces its request queue."""
    channel = await connection.channel()
    requests, responses = request_name(kind), response_name(kind)
    await _exchanges(channel, kind)
    durable = durability is Durability.DURABLE
    arguments = {
        "x-max-priority": PRIORITIES - 1,
        _CONSUMER_TIMEOUT: _CONSUMER_MILLISECONDS,
    }
    source = queue or requests
    channel = await _queue(connection, channel, source, arguments if durable else {}, durable)
    await channel.bind(source, requests)
    if kind in ICHNAEA:
        limits = _RESPONSE_LIMITS if durable else {}
        channel = await _queue(connection, channel, responses, limits, durable)
        await channel.bind(responses, responses)
    limits = _DEAD_LIMITS if durable else {}
    channel = await _queue(connection, channel, dead_name(kind), limits, durable)
    await channel.close()


async def _exchanges(channel: AmqpClientChannel, kind: str) -> None:
    await channel.declare_exchange(request_name(kind), "direct")
    await channel.declare_exchange(response_name(kind), "fanout")
    await channel.declare_exchange(RESPONSES, "direct")
    await channel.bind_exchange(RESPONSES, response_name(kind))


async def declare_responses(
    connection: AmqpClientConnection,
    kind: str,
    exchange: str | None,
    queues: Sequence[str],
    durability: Durability,
) -> None:
    """Another response exchange, or more queues bound to one. What is published to another exchange
    reaches that of the type, too: requesters and the history are bound there."""
    channel = await connection.channel()
    if exchange is not None and exchange != response_name(kind):
        await channel.declare_exchange(exchange, "fanout")
        await channel.bind_exchange(response_name(kind), exchange)
    exchange = exchange or response_name(kind)
    for name in queues:
        durable = durability is Durability.DURABLE
        limits = _RESPONSE_LIMITS if durable else {}
        channel = await _queue(connection, channel, name, limits, durable)
        await channel.bind(name, exchange)
    await channel.close()


async def declare_response_router(connection: AmqpClientConnection) -> None:
    channel = await connection.channel()
    await channel.declare_exchange(RESPONSES, "direct")
    await channel.close()


def response_queue(token: str) -> str:
    """The queue of a requester whose requests have the token as reply-to."""
    return f"penstock_jobs.client.{token}"


async def declare_response_queue(channel: AmqpClientChannel, token: str) -> None:
    name = response_queue(token)
    await channel.declare_exchange(RESPONSES, "direct")
    await channel.declare_queue(name, arguments={"x-expires": _REQUESTER_EXPIRES_MILLISECONDS})
    await channel.bind(name, RESPONSES, token)


async def declare_retry(channel: AmqpClientChannel, kind: str, seconds: int, queue: str) -> None:
    """A queue whose messages return to `queue` when they expire."""
    await channel.declare_queue(
        retry_name(kind, seconds),
        arguments={
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": queue,
            "x-expires": max(_RETRY_EXPIRES_MILLISECONDS, 10 * seconds * 1000),
        },
    )


async def declare_history(connection: AmqpClientConnection) -> None:
    """A queue that receives a copy of every request and every response. Request queues are left to
    workers and requesters, which know whether they are those of the Ichnaea clients."""
    channel = await connection.channel()
    await channel.declare_queue(HISTORY, arguments={"x-max-length-bytes": _HISTORY_BYTES})
    for kind in TYPES:
        await _exchanges(channel, kind)
        await channel.bind(HISTORY, request_name(kind))
        await channel.bind(HISTORY, response_name(kind))
    await channel.close()


async def declare_control(connection: AmqpClientConnection) -> None:
    channel = await connection.channel()
    await channel.declare_queue(CONTROL, arguments={"x-queue-type": "stream", "x-max-age": "7D"})
    await channel.close()


async def _queue(
    connection: AmqpClientConnection,
    channel: AmqpClientChannel,
    name: str,
    arguments: Mapping[str, Any],
    durable: bool,
) -> AmqpClientChannel:
    """Declare it, or use it as it is if it exists with other arguments. Returns an open channel."""
    try:
        await channel.declare_queue(name, durable=durable, arguments=arguments)
    except PreconditionFailed:
        channel = await connection.channel()
        try:
            await channel.declare_queue(name, passive=True)
        except NotFound:  # it does not exist: an argument was refused
            channel = await connection.channel()
            accepted = {key: each for key, each in arguments.items() if key != _CONSUMER_TIMEOUT}
            await channel.declare_queue(name, durable=durable, arguments=accepted)
    return channel
