"""Who uses an embedded server: the last one out stops it.

Two files beside the data directory, locked by the system, so that a process that is killed lets
go by dying. `turnstile` is held by whoever starts or stops the server, one at a time; a share of
`users` is held by everyone who uses it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Claims:
    """One user's claim to the server of one directory."""

    __slots__ = ("_turnstile", "_users", "_users_file")

    def __init__(self, directory: Path) -> None:
        self._turnstile = directory.with_name(f".{directory.name}.turnstile")
        self._users = directory.with_name(f".{directory.name}.users")
        self._users_file: int | None = None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the turnstile: nobody else starts or stops the server meanwhile."""
        file = _opened(self._turnstile)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
        finally:
            os.close(file)

    def enter(self) -> None:
        """Claim the server. To be called at the turnstile, as is `leave`."""
        file = _opened(self._users)
        fcntl.flock(file, fcntl.LOCK_SH)
        self._users_file = file

    def leave(self) -> bool:
        """Give up the claim. Whether it was the last one."""
        if self._users_file is None:
            return False
        file, self._users_file = self._users_file, None
        try:
            # Ours becomes exclusive if nobody else holds a share; at the turnstile nobody comes.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(file)
        return True


def _opened(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
