"""A broker whose system time is off by the seconds in a file.

`python jumping_clock.py FILE broker …`. Only the system time jumps: monotonic clocks cannot.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path


def jump_with(file: Path) -> None:
    seconds, nanoseconds = time.time, time.time_ns

    def offset() -> int:
        return int(file.read_text() or 0)

    time.time = lambda: seconds() + offset()
    time.time_ns = lambda: nanoseconds() + offset() * 1_000_000_000


if __name__ == "__main__":
    jump_with(Path(sys.argv.pop(1)))
    from penstock.__main__ import main

    main()
