"""Short garbage collection pauses in a process with many long-lived objects.

A full collection visits every object: with 2,000 queues it pauses the process for 100 ms, again and
again. Here the survivors of a full collection are frozen, so the next one visits only newer
objects. Once a minute at most, all objects are visited, which finds cycles among old ones.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

#: The least time between two complete collections.
COMPLETE_SECONDS: Final = 60.0
_FULL: Final = 2


@contextmanager
def short_gc_pauses(clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    complete_at = clock() + COMPLETE_SECONDS

    def freeze_survivors(phase: str, info: dict[str, Any]) -> None:
        nonlocal complete_at
        if info["generation"] != _FULL:
            return
        if phase == "stop":
            gc.freeze()
        elif clock() >= complete_at:
            complete_at = clock() + COMPLETE_SECONDS
            gc.unfreeze()

    gc.freeze()
    gc.collect()  # resets the threshold for the next full collection
    gc.callbacks.append(freeze_survivors)
    try:
        yield
    finally:
        gc.callbacks.remove(freeze_survivors)
        gc.unfreeze()
