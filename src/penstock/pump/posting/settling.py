"""Whether a file is ready to be announced: nobody writes to it, and it has rested long enough.

On Linux a read lease is refused while anybody has the file open for writing, which is exactly the
question. Where leases are not to be had (another user's file, some file systems), a file that has
not changed for a moment is taken to be ready. Blocking, but briefly.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import time
from pathlib import Path
from typing import Final

#: Linux's F_SETSIG, which Python has no name for.
_F_SETSIG: Final = 10
#: How long a file must have rested where there is no better way to know.
REST_SECONDS: Final = 1.0


def ready_in(path: Path, min_age: float, now: float | None = None) -> float:
    """Seconds until it is worth asking again; 0 when it is ready.

    Raises `OSError` when it cannot be looked at.
    """
    age = (time.time() if now is None else now) - path.lstat().st_mtime
    if 0 <= age < min_age:
        return min_age - age
    written = being_written(path)
    if written is None:
        return 0.0 if age >= REST_SECONDS or age < 0 else REST_SECONDS - age
    return 0.02 if written else 0.0


def being_written(path: Path) -> bool | None:
    """Whether somebody has it open for writing; None where that cannot be told."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # Whoever opens it for writing while we hold the lease makes the kernel send a signal: by
        # default one that would end us, so ask for one that is ignored.
        fcntl.fcntl(fd, _F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError as error:
        return True if error.errno == errno.EAGAIN else None
    finally:
        os.close(fd)
    return False
