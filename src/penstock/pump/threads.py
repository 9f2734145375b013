"""Work in a thread that is waited for even when whoever wanted it is cancelled.

A thread cannot be stopped. One that still writes to a file which its owner has closed would write
to whatever has that number next, so its owner must not go on before the thread is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def to_the_end(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    working = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait((working,))
        raise
