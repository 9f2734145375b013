"""When a command's time is over: it is asked to end, and after a while it is ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from penstock.jobs.shells.shell import Limits


async def within(
    limits: Limits,
    ended: Callable[[], Awaitable[object]],
    end: Callable[[float], Awaitable[None]],
) -> str:
    """Wait until it has `ended`, or `end` it with so much grace. Why, if it had to be ended."""
    first = min((each for each in (limits.soft, limits.hard) if each is not None), default=None)
    try:
        await asyncio.wait_for(_waited(ended), first)
    except TimeoutError:
        await end(_grace(limits))
        return f"ended after {first:g} seconds"
    except asyncio.CancelledError:
        await end(limits.grace)
        raise
    return ""


async def _waited(ended: Callable[[], Awaitable[object]]) -> None:
    await ended()


def _grace(limits: Limits) -> float:
    if limits.soft is None:
        return 0.0
    return limits.grace if limits.hard is None else max(limits.hard - limits.soft, 0.0)
