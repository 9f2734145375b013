"""Our own command as another process, and parts of it that run until they are told to stop."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

PENSTOCK: Final = (sys.executable, "-m", "penstock")
SECONDS: Final = 120


def environment(**changes: str) -> dict[str, str]:
    """Ours without what would configure Penstock; wide enough that no line is folded."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    return {**kept, "COLUMNS": "200", "PYTHONUNBUFFERED": "1", **changes}


def run(
    *arguments: str | Path,
    stdin: str | None = "",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PENSTOCK, *map(str, arguments)],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        cwd=cwd,
        env=env or environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


class Running:
    """A part that says when it is ready. What it writes besides goes to a file."""

    def __init__(
        self, folder: Path, *arguments: str | Path, env: Mapping[str, str] | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._errors = folder / "errors"
        self._environment = env or environment()
        self._arguments = [*PENSTOCK, *map(str, arguments)]

    def __enter__(self) -> Self:
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                self._arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=self._environment,
            )
        assert self.process.stdout is not None
        self.ready = self.process.stdout.readline()
        assert "ready: " in self.ready, self.errors
        self.addresses = self.ready.partition("ready: ")[2].split()
        return self

    def line(self) -> str:
        """The next line of standard output, whenever it comes."""
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    @property
    def errors(self) -> str:
        return self._errors.read_text()

    def stop(self, how: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        """The exit status, and what was written to standard output after the ready line."""
        self.process.send_signal(how)
        rest, _ = self.process.communicate(timeout=2 * SECONDS)
        return self.process.returncode, rest

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


def descendants(pid: int) -> set[int]:
    children = {
        int(child)
        for path in Path(f"/proc/{pid}/task").glob("*/children")
        for child in path.read_text().split()
    }
    return children.union(*(descendants(child) for child in children))


def ended(pid: int, seconds: float = SECONDS) -> bool:
    """Whether a process, not a child of ours, has ended or does so in time."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], seconds)[0])
    finally:
        os.close(handle)
