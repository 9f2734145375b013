"""What a visitor asks for is done, and they are told so; or why not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from nicegui import ui

from penstock.core.errors import PenstockError


async def told(act: Callable[[], Awaitable[object]], done: str) -> None:
    try:
        await act()
    except (PenstockError, ConnectionError) as error:
        ui.notify(str(error), type="negative")
    else:
        ui.notify(done, type="positive")
