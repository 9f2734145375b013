"""What is declared at a broker of AMQP 0-9-1: exchanges of posts and queues of those who hear them.

What is there already, and otherwise than we would have made it, is taken as it is; so is what we
may not declare. A refusal ends a channel, so each is asked for on one of its own.
"""

from __future__ import annotations

from penstock.client.amqp091.connection import Connection
from penstock.core.errors import AccessRefused, PreconditionFailed


async def declare_exchange(connection: Connection, name: str) -> None:
    """A topic exchange that lasts. Those named `amq.` are always there."""
    if name.startswith("amq."):
        return
    channel = await connection.channel()
    try:
        await channel.declare_exchange(name, "topic")
    except (AccessRefused, PreconditionFailed):
        return
    await channel.close()


async def declare_queue(connection: Connection, name: str, expire: float | None = None) -> None:
    """A queue that lasts, or that goes when nobody has heard it for so many seconds."""
    arguments = {} if expire is None else {"x-expires": max(1, round(expire * 1000))}
    channel = await connection.channel()
    try:
        await channel.declare_queue(name, arguments=arguments)
    except (AccessRefused, PreconditionFailed):
        return
    await channel.close()
