"""A broker on a machine with faults: `python faulty_broker.py FILE broker …`.

FILE has the faults of the moment as JSON; a test rewrites it. Writes and syncs fail with the error
number `write` and `sync`, a sync waits while `sync_waits`, or takes `sync_seconds`, and the system
time is off by `clock` seconds. `descriptors` and `memory` are limits of the process from its start.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Faults:
    def __init__(self, file: Path) -> None:
        self._file = file

    def get(self, name: str) -> Any:
        return json.loads(self._file.read_text()).get(name)

    def check(self, name: str) -> None:
        if code := self.get(name):
            number = getattr(errno, code)
            raise OSError(number, os.strerror(number))

    def wait(self) -> None:
        while self.get("sync_waits"):
            time.sleep(0.02)
        time.sleep(self.get("sync_seconds") or 0)


def inject(faults: Faults) -> None:
    def failing(call: Callable[..., Any], name: str) -> Callable[..., Any]:
        def wrapper(*arguments: Any, **options: Any) -> Any:
            if name == "sync":
                faults.wait()
            faults.check(name)
            return call(*arguments, **options)

        return wrapper

    open_file = os.open

    def open_checked(path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if flags & WRITING:
            faults.check("write")
        return open_file(path, flags, *rest, **options)

    os.open = open_checked
    for name in ("pwrite", "pwritev", "ftruncate", "replace", "rename", "unlink"):
        setattr(os, name, failing(getattr(os, name), "write"))
    for name in ("fsync", "fdatasync"):
        setattr(os, name, failing(getattr(os, name), "sync"))
    seconds, nanoseconds = time.time, time.time_ns
    time.time = lambda: seconds() + (faults.get("clock") or 0)
    time.time_ns = lambda: nanoseconds() + (faults.get("clock") or 0) * 1_000_000_000
    for limit, name in (
        (resource.RLIMIT_NOFILE, "descriptors"),
        (resource.RLIMIT_AS, "memory"),
    ):
        if most := faults.get(name):
            resource.setrlimit(limit, (most, most))


if __name__ == "__main__":
    inject(Faults(Path(sys.argv.pop(1))))
    from penstock.__main__ import main

    main()
