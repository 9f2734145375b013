"""A command in a terminal of its own."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Final

from tests.pages.outputs import pattern

SECONDS: Final = 300.0
#: Of a slow block: models are built, and years are replayed.
SLOW_SECONDS: Final = 900.0
_COLOURS: Final = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
_PASSWORD: Final = b"a long password\n"


class Mismatch(AssertionError):
    """The page says something else than the command."""


class Terminal:
    """Runs a command and collects what it prints.

    What is expected may have a line `^C`: what is before it is awaited, then Ctrl-C is sent, and
    the rest is what the command prints then.
    """

    def __init__(
        self, command: str, folder: Path, environment: dict[str, str], *, any_number: bool = False
    ) -> None:
        self.command = command
        self.expected = ""
        self.title = ""
        self.before_end: str | None = None  # what it printed before Ctrl-C
        self._any_number = any_number
        self._screen, inside = pty.openpty()
        self._printed = bytearray()
        self.process = subprocess.Popen(
            ["bash", "-c", command],
            cwd=folder,
            env={"TERM": "dumb"} | environment,
            stdin=inside,
            stdout=inside,
            stderr=inside,
            start_new_session=True,
        )
        os.close(inside)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the last process of the terminal has ended
            while some := os.read(self._screen, 65536):
                self._printed += some

    @property
    def text(self) -> str:
        return _COLOURS.sub("", self._printed.decode(errors="replace")).replace("\r\n", "\n")

    def wait_until_ready(self) -> None:
        """Until it has printed its first line, or `… ready: …`; the whole, if that is `…`."""
        before = f"{self.expected}\n".partition("\n^C\n")[0]
        lines = before.split("\n")
        last = len(lines) if lines[0] == "…" else 1
        ready = (number for number, line in enumerate(lines, 1) if " ready: " in line)
        self._await("\n".join(lines[: next(ready, last)]))

    def answer_passwords(self) -> str:
        """Give a password whenever it asks for one; what it has printed at its end."""
        answered = 0
        deadline = time.monotonic() + SECONDS
        while self.process.poll() is None and time.monotonic() < deadline:
            if self.text.count(": ") > answered:  # the blank comes when echo is off
                os.write(self._screen, _PASSWORD)
                answered += 1
            time.sleep(0.02)
        self.reader.join(10)
        return self.text

    def stop(self) -> None:
        """Ctrl-C."""
        if self.process.poll() is not None:
            return
        before, stopped, after = f"{self.expected}\n".partition("\n^C\n")
        try:
            if stopped or self.expected.endswith("\n…"):
                self._await(before.removesuffix("\n"))
            if stopped:
                self.expected = f"{before}\n{after}"
        finally:
            self.before_end = self.text
            os.killpg(self.process.pid, signal.SIGINT)
            try:
                self.process.wait(120)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()

    def _await(self, expected: str) -> None:
        deadline = time.monotonic() + SECONDS
        wanted = pattern(expected, any_number=self._any_number)
        while not self.text.strip() or not re.search(wanted, self.text, re.S):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Mismatch(f"$ {self.command}\nprinted:\n{self.text}")
            time.sleep(0.05)
