"""The access log: a line for each request, in a file that other programs may rotate.

Lines are collected and written once a second, whole lines in one write, so that workers can share
the file. A file that was renamed or deleted is opened again at the next write. Query strings are
not logged, neither of the request nor of the referring page: they may contain codes of sign-ins,
positions and what people search for. Codes in paths are replaced by `***`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal

from penstock.core.errors import ConfigurationError
from penstock.core.logs import get_logger
from penstock.core.redaction import HIDDEN

log = get_logger(__name__)

AccessLogFormat = Literal["combined", "json"]
RawHeaders = Sequence[tuple[bytes, bytes]]

FLUSH_SECONDS: Final = 1.0
#: Longer values are cut: a client chooses them.
_MAX_LENGTH: Final = 1000
_MAX_BUFFERED: Final = 64 * 1024
_MONTHS: Final = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)
#: What would end a field or a line, or control a terminal.
_UNSAFE: Final = re.compile(r"[^ !#-\[\]-~]")
_CODE: Final = re.compile(r"^(/v1/redemptions/)[^/]+")


@dataclass(frozen=True, slots=True)
class AccessEntry:
    client: str
    method: str
    path: str  #: without the query
    protocol: str
    status: int
    sent: int  #: bytes of the body
    seconds: float
    headers: RawHeaders


def check_access_log(file: Path) -> None:
    """Raises `ConfigurationError` if the file cannot be written."""
    try:
        os.close(_open(file))
    except OSError as error:
        raise ConfigurationError(f"cannot write the access log {file}: {error.strerror}") from error


class AccessLog:
    """For one event loop."""

    def __init__(
        self,
        file: Path,
        layout: AccessLogFormat = "combined",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._file = file
        self._format = _combined if layout == "combined" else _json
        self._clock = clock
        self._lines: list[str] = []
        self._length = 0
        self._timer: asyncio.TimerHandle | None = None
        self._fd = _open(file)
        self._failed = False

    def add(self, entry: AccessEntry) -> None:
        line = self._format(entry, self._clock())
        self._lines.append(line)
        self._length += len(line)
        if self._length >= _MAX_BUFFERED:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        content = "".join(self._lines).encode("ascii")
        self._lines.clear()
        self._length = 0
        try:
            self._reopen()
            while content:
                content = content[os.write(self._fd, content) :]
        except OSError as error:
            if not self._failed:  # once, until it works again
                log.error("access log not written", file=str(self._file), reason=str(error))
            self._failed = True
        else:
            self._failed = False

    def close(self) -> None:
        self.flush()
        os.close(self._fd)

    def _reopen(self) -> None:
        """If the file was rotated."""
        try:
            found = self._file.stat()
            held = os.fstat(self._fd)
            if (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino):
                return
        except FileNotFoundError:
            pass
        fresh = _open(self._file)
        os.close(self._fd)
        self._fd = fresh


def _open(file: Path) -> int:
    return os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)


def _combined(entry: AccessEntry, now: float) -> str:
    """The combined log format of Apache and nginx."""
    referer, agent = _sent_by(entry.headers)
    request = f"{entry.method} {_hide_codes(entry.path)} {entry.protocol}"
    stamp = _stamp(int(now))
    client = _escape(entry.client).replace(" ", "_")
    return (
        f'{client} - - [{stamp}] "{_escape(request)}" {entry.status} '
        f'{entry.sent} "{_escape(referer) or "-"}" "{_escape(agent) or "-"}"\n'
    )


@lru_cache(maxsize=2)
def _stamp(now: int) -> str:
    """Month names do not depend on the locale."""
    moment = time.gmtime(now)
    return time.strftime(f"%d/{_MONTHS[moment.tm_mon - 1]}/%Y:%H:%M:%S +0000", moment)


def _json(entry: AccessEntry, now: float) -> str:
    referer, agent = _sent_by(entry.headers)
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now))
    document = {
        "time": f"{stamp}.{int(now % 1 * 1000):03}Z",
        "client": entry.client,
        "method": entry.method,
        "path": _hide_codes(entry.path)[:_MAX_LENGTH],
        "protocol": entry.protocol,
        "status": entry.status,
        "bytes": entry.sent,
        "seconds": round(entry.seconds, 6),
        "referer": referer[:_MAX_LENGTH],
        "user_agent": agent[:_MAX_LENGTH],
    }
    return json.dumps(document) + "\n"


def _sent_by(headers: RawHeaders) -> tuple[str, str]:
    """The referring page without its query, and the user agent."""
    referer = agent = b""
    for name, value in headers:
        if name == b"referer":
            referer = value.partition(b"?")[0].partition(b"#")[0]
        elif name == b"user-agent":
            agent = value
    return referer.decode("latin-1"), agent.decode("latin-1")


def _hide_codes(path: str) -> str:
    return _CODE.sub(rf"\g<1>{HIDDEN}", path) if path.startswith("/v1/red") else path


def _escape(text: str) -> str:
    return _UNSAFE.sub(_hexadecimal, text[:_MAX_LENGTH])


def _hexadecimal(found: re.Match[str]) -> str:
    return "".join(f"\\x{byte:02X}" for byte in found[0].encode("utf-8", "surrogateescape"))
