"""The exchanges and queues of jobs, by the names the Ichnaea clients know.

A type of work has an exchange for requests (direct) and one for responses (fanout), with queues of
the same names. Ours are durable, with priorities, and bounded; those of the Ichnaea clients are not
(`Durability.ICHNAEA`). A queue that is there already is taken as it is. Beside them: queues in
which failed work waits for its next attempt, and one for what will not be tried again. Responses
also go to one exchange that tells requesters apart by their reply-to, and all that happens to the
queue of the history.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final

from penstock.client.amqp091.channel import AmqpClientChannel
from penstock.client.amqp091.connection import AmqpClientConnection
from penstock.core.errors import PreconditionFailed
from penstock_jobs.model import PRIORITIES

#: The types whose clients there were before us; they expect a queue of responses to be there.
ICHNAEA: Final = ("fake", "build_models", "predict_models")
TYPES: Final = (*ICHNAEA, "call", "command", "spark")

#: Direct; routing keys are the reply-to of requests.
RESPONSES: Final = "penstock.jobs.responses"
HISTORY: Final = "penstock_jobs.history"
#: A stream of wishes: what is to be cancelled. A worker that comes later reads it as well.
CONTROL: Final = "penstock.jobs.control"

#: Brokers take back what was not acknowledged for half an hour; a build may take a day.
_CONSUMER_MILLISECONDS: Final = 7 * 24 * 3600 * 1000
#: Responses nobody came for.
_RESPONSE_MILLISECONDS: Final = 24 * 3600 * 1000
_RESPONSES_KEPT: Final = 100_000
_KEPT: Final = {"x-message-ttl": _RESPONSE_MILLISECONDS, "x-max-length": _RESPONSES_KEPT}
#: Dead letters are for a person to look at, who may be on holiday.
_DEAD_MILLISECONDS: Final = 14 * 24 * 3600 * 1000
_DEAD_KEPT: Final = 10_000
#: A queue for a delay goes when nothing was in it for so long.
_RETRY_EXPIRES_MILLISECONDS: Final = 3600 * 1000
_HISTORY_BYTES: Final = 1 << 30


class Durability(Enum):
    DURABLE = "durable"  #: survives the broker's restart
    ICHNAEA = "ichnaea"  #: as the Ichnaea clients declare theirs: queues that do not


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


def kind_of(name: str) -> str | None:
    """The type of work that an exchange or queue is for."""
    words = name.split(".")
    found = words[1].replace("-", "_") if len(words) > 1 and words[0] == "ichnaea" else None
    return found if found in TYPES else None


async def declare(
    connection: AmqpClientConnection,
    kind: str,
    durability: Durability = Durability.DURABLE,
    queue: str | None = None,
) -> None:
    """What requests and responses of a type need; `queue` is where requests are taken from, if it
    is not the usual one."""
    channel = await connection.channel()
    requests, responses = request_name(kind), response_name(kind)
    await channel.declare_exchange(requests, "direct")
    await channel.declare_exchange(responses, "fanout")
    await channel.declare_exchange(RESPONSES, "direct")
    await channel.bind_exchange(RESPONSES, responses)
    durable = durability is Durability.DURABLE
    arguments = {
        "x-max-priority": PRIORITIES - 1,
        "x-consumer-timeout": _CONSUMER_MILLISECONDS,
    }
    taken = queue or requests
    channel = await _queue(connection, channel, taken, arguments if durable else {}, durable)
    await channel.bind(taken, requests)
    if kind in ICHNAEA:
        channel = await _queue(connection, channel, responses, _KEPT if durable else {}, durable)
        await channel.bind(responses, responses)
    dead = {"x-message-ttl": _DEAD_MILLISECONDS, "x-max-length": _DEAD_KEPT} if durable else {}
    channel = await _queue(connection, channel, dead_name(kind), dead, durable)
    await channel.close()


async def declare_responses(
    connection: AmqpClientConnection, exchange: str, queues: Sequence[str], durability: Durability
) -> None:
    """Another exchange of responses, or further queues bound to one."""
    channel = await connection.channel()
    await channel.declare_exchange(exchange, "fanout")
    for name in queues:
        durable = durability is Durability.DURABLE
        channel = await _queue(connection, channel, name, _KEPT if durable else {}, durable)
        await channel.bind(name, exchange)
    await channel.close()


async def declare_retry(channel: AmqpClientChannel, kind: str, seconds: int, queue: str) -> None:
    """A queue whose messages come back to `queue` when their time is over."""
    await channel.declare_queue(
        retry_name(kind, seconds),
        arguments={
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": queue,
            "x-expires": max(_RETRY_EXPIRES_MILLISECONDS, 10 * seconds * 1000),
        },
    )


async def declare_history(connection: AmqpClientConnection) -> None:
    """A queue that has a copy of every request and every response."""
    for kind in TYPES:
        await declare(connection, kind)
    channel = await connection.channel()
    await channel.declare_queue(HISTORY, arguments={"x-max-length-bytes": _HISTORY_BYTES})
    for kind in TYPES:
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
    """Declared so, or taken as it is found when it was declared otherwise; a channel to go on."""
    try:
        await channel.declare_queue(name, durable=durable, arguments=arguments)
    except PreconditionFailed:
        channel = await connection.channel()
        await channel.declare_queue(name, passive=True)
    return channel
