"""A server of the tests in a process of its own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def server_process(serve: Callable[..., None], *arguments: Any) -> Iterator[int]:
    """The port that `serve(*arguments, pipe)` sends.

    A process, because delta-rs' file system holds Python's lock while it waits.
    """
    spawning = multiprocessing.get_context("spawn")
    parent, child = spawning.Pipe()
    process = spawning.Process(target=serve, args=(*arguments, child), daemon=True)
    process.start()
    try:
        yield parent.recv()
    finally:
        process.terminate()
        process.join()
