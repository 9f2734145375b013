"""What the worker and its processes send each other: lists of plain values, in `marshal`'s form.

Both ends are the same interpreter and trust each other; nothing of it comes from outside. Bytes in,
values out.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterator
from struct import Struct
from typing import Any, Final

_SIZE: Final = Struct(">I")

# To a process, by the line that work comes by: (verb, number, …).
DO: Final = "do"  #: function, arguments, keywords, and of `pool.Piece` plain and own
# To a process, by the line of orders, which is heard while it works: (verb, number).
INTERRUPT: Final = "ask"  #: to end: its time is over
GIVE_BACK: Final = "back"  #: give back all that has not begun
# From a process: (verb, number, …).
READY: Final = "ready"  #: it can be given work
PROGRESS: Final = "told"  #: share, finish as seconds since 1970 or None
DONE: Final = "done"  #: what it returned, and the seconds that took
FAILED: Final = "failed"  #: the exception's type, its text, whether trying again makes sense


def pack_messages(items: list[tuple[Any, ...]]) -> bytes:
    content = marshal.dumps(items)
    return _SIZE.pack(len(content)) + content


class PoolMessageReader:
    """What has come, as far as it has not been handed out."""

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
            items = marshal.loads(memoryview(data)[at + _SIZE.size : stop])
            at = stop
            yield from items
        self._rest = data[at:]
