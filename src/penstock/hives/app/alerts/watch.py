"""The process of alerts: hears figures and changes, has them judged, and sends what came of it.

One task owns the evaluator. Others only leave word for it: a figure replaces an older one of the
same hive, a definition that changed is noted by its id, so what waits is bounded by what there is.
Once a minute, and whenever a connection was made anew, all hives are judged as they stand:
whatever was missed is in that, for a figure says how a place stands and never a difference.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from penstock.core.errors import WireSyntaxError
from penstock.core.logs import get_logger
from penstock.hives.app.alerts.evaluator import Evaluator
from penstock.hives.app.alerts.listening import Listener
from penstock.hives.app.alerts.publications import Figure
from penstock.hives.app.live.feed import Feed
from penstock.hives.app.push.sender import Sender
from penstock.store.errors import passing

log = get_logger(__name__)

#: All hives as they stand, and deals that are due, so often, in seconds.
LOOK_SECONDS: Final = 60.0
AGAIN_SECONDS: Final = 2.0
DEFINITIONS: Final = "notification_def"
DEALS: Final = "deal"
DELIVERIES: Final = "notification_delivery"


class Watch:
    """Owned by one task: cancel `run` to end it."""

    def __init__(
        self,
        evaluator: Evaluator,
        sender: Sender,
        database: str,
        brokers: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ready = asyncio.Event()  #: definitions are loaded, hives were judged once
        self._evaluator = evaluator
        self._sender = sender
        self._database = database
        self._brokers = brokers
        self._clock = clock
        self._woken = asyncio.Event()
        self._figures: dict[int, Figure] = {}
        self._changed: set[int] = set()
        self._reload = True
        self._look_at = 0.0

    async def run(self) -> None:
        channels = (DEFINITIONS, DEALS, DELIVERIES)
        listener = Listener(self._database, channels, self._word, self._connected)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(listener.run(), name="listener")
            tasks.create_task(self._sender.run(), name="sender")
            if self._brokers:
                tasks.create_task(Feed(self._brokers, self._heard).run(), name="figures")
            tasks.create_task(self._judge(), name="evaluator")

    def _heard(self, document: Any) -> None:
        try:
            figure = Figure.of(document)
        except WireSyntaxError as error:
            log.warning("no figure", reason=str(error))
            return
        known = self._figures.get(figure.hive_id)
        if known is None or known.version < figure.version:
            self._figures[figure.hive_id] = figure
            self._woken.set()

    def _word(self, channel: str, payload: str) -> None:
        if channel == DELIVERIES:
            self._sender.wake()
            return
        if channel == DEFINITIONS and payload.isdecimal():
            self._changed.add(int(payload))
        else:
            self._look_at = 0.0
        self._woken.set()

    def _connected(self) -> None:
        """What was said before is unknown: everything anew."""
        self._reload = True
        self._look_at = 0.0
        self._sender.wake()
        self._woken.set()

    async def _judge(self) -> None:
        while True:
            self._woken.clear()
            try:
                await self._round()
                pause = max(0.0, self._look_at - self._clock())
            except Exception as error:
                if not passing(error):
                    raise
                log.warning("alerts wait", reason=str(error))
                self._reload = True
                self._look_at = 0.0
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), pause)

    async def _round(self) -> None:
        """What has been left word of, and what is due."""
        if self._reload:
            self._reload = False
            self._changed.clear()
            await self._evaluator.load()
        if self._changed:
            changed, self._changed = self._changed, set()
            await self._evaluator.refresh(changed)
        if self._figures:
            figures, self._figures = self._figures, {}
            await self._evaluator.judge(figures.values())
        if self._clock() >= self._look_at:
            self._look_at = self._clock() + LOOK_SECONDS
            await self._evaluator.catch_up()
            await self._evaluator.judge_deals()
            self.ready.set()
