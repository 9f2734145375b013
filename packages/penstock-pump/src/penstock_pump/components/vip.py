"""Components that work only while this machine has one of the addresses of `vip`.

A cluster moves a virtual address between machines with the same configurations; the one that has it
works, the others stand by. When the address goes, posts in progress are finished.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import wraps
from typing import Any, Final

from penstock.core.logs import get_logger
from penstock_pump.config.settings import PumpSettings
from penstock_pump.plugins import Plugin
from penstock_pump.status import ComponentControl

log = get_logger(__name__)

CHECK_SECONDS: Final = 1.0
PumpComponent = Callable[..., Coroutine[Any, Any, None]]


def has_address(addresses: Iterable[str]) -> bool:
    """Whether one of them is this machine's: only those can be bound."""
    for address in addresses:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_DGRAM) as found, contextlib.suppress(OSError):
            found.bind((address, 0))
            return True
    return False


def while_vip(component: PumpComponent) -> PumpComponent:
    @wraps(component)
    async def run(
        settings: PumpSettings,
        control: ComponentControl | None = None,
        plugins: Sequence[Plugin] = (),
    ) -> None:
        if not settings.vip:
            await component(settings, control, plugins)
            return
        control = control or ComponentControl()
        while not control.stop.is_set():
            if has_address(settings.vip):
                await _run_while(component, settings, control, plugins)
            else:
                control.ready.set()  # standing by
                await _wait(control.stop)

    return run


async def _run_while(
    component: PumpComponent,
    settings: PumpSettings,
    control: ComponentControl,
    plugins: Sequence[Plugin],
) -> None:
    log.info("active", vip=settings.vip)
    inner = ComponentControl(transfers=control.transfers)
    task = asyncio.ensure_future(component(settings, inner, plugins))
    while not task.done() and not control.stop.is_set() and has_address(settings.vip):
        control.counters = inner.counters
        if inner.ready.is_set():
            control.ready.set()
        await _wait(control.stop, task)
    inner.stop.set()
    await task
    log.info("standing by", vip=settings.vip)


async def _wait(stop: asyncio.Event, *tasks: asyncio.Future[None]) -> None:
    stopped = asyncio.ensure_future(stop.wait())
    seconds = CHECK_SECONDS
    waited: list[asyncio.Future[Any]] = [stopped, *tasks]
    await asyncio.wait(waited, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
