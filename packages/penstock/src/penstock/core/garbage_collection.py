"""Short pauses for Python's search for reference cycles, in a process that holds much for long.

A full collection looks at every object there is: with 2,000 queues it stops the process for a tenth
of a second, again and again while more is added. Here, what a full collection has left is not
looked at by the next one, so each takes only as long as what has come since. Objects that are no
longer referred to are freed at once all the same; cycles among old ones are found when all is
looked at again, once a minute at most.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

#: Between two collections that look at everything, at least.
COMPLETE_SECONDS: Final = 60.0
#: The generation of a full collection.
_FULL: Final = 2


@contextmanager
def short_gc_pauses(clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Keep the pauses of this process short until the block ends."""
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
    gc.collect()  # of nothing: Python begins with the next when a quarter has come on top of this
    gc.callbacks.append(freeze_survivors)
    try:
        yield
    finally:
        gc.callbacks.remove(freeze_survivors)
        gc.unfreeze()
