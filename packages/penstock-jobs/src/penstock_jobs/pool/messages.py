"""The messages between a worker and its processes: lists of plain values, encoded by `marshal`.

Both ends run the same interpreter and trust each other; no value comes from outside.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterator
from struct import Struct
from typing import Any, Final

_SIZE: Final = Struct(">I")

# To a process, on the task socket: (verb, number, …).
RUN: Final = "run"  #: function, arguments, keywords, `as_json` and `own_only` of `PoolTask`
# To a process, on the control socket, which a thread reads during a task: (verb, number).
INTERRUPT: Final = "interrupt"  #: raise an exception in the task: its time is over
RETURN: Final = "return"  #: return all tasks that have not started
# From a process: (verb, number, …).
READY: Final = "ready"  #: it accepts tasks
OUTPUT: Final = "output"  #: printed text
PROGRESS: Final = "progress"  #: share, finish as seconds since 1970 or None, detail
DONE: Final = "done"  #: the returned value, the duration in seconds
FAILED: Final = "failed"  #: the exception's type, its text, whether to retry


def pack_messages(items: list[tuple[Any, ...]]) -> bytes:
    content = marshal.dumps(items)
    return _SIZE.pack(len(content)) + content


class PoolMessageReader:
    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[tuple[Any, ...]]:
        data = self._rest + data if self._rest else data
        at = 0
        while len(data) - at >= _SIZE.size:
            stop = at + _SIZE.size + _SIZE.unpack_from(data, at)[0]
            if stop > len(data):
                break
            # From a child process that this one started, over its pipe.
            items = marshal.loads(memoryview(data)[at + _SIZE.size : stop])  # noqa: S302
            at = stop
            yield from items
        self._rest = data[at:]
