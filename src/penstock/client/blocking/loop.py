"""An event loop in a thread of its own, for those who wait in another."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines, until `stop`."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._run, name="penstock client", daemon=True)
        self._thread.start()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine over there and wait for it here."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # an interrupted wait leaves nothing running
            raise

    def begin(self, work: Coroutine[Any, Any, T]) -> T:
        """`wait` for the first thing; nothing is left of the loop if that fails."""
        try:
            return self.wait(work)
        except BaseException:
            self.stop()
            raise

    def end(self, work: Coroutine[Any, Any, None]) -> None:
        """`wait` for the last thing, and stop however it ends."""
        try:
            self.wait(work)
        finally:
            self.stop()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        with self._runner:  # its end cancels tasks that are left, and waits for them
            self._loop.run_forever()
