"""Structured logs: an event and its fields, one line each, without passwords (`redaction.py`).

Modules call `get_logger(__name__)` and `log.info("queue declared", queue=name)`. Loggers write
through the standard library, so an embedding program controls the output. Our own processes call
`configure_logs` once: readable lines in a terminal, JSON otherwise, on standard error. Control
characters are escaped: names and reasons come from peers and must not control a terminal.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TextIO

from penstock.core.redaction import redact, redact_value

if TYPE_CHECKING:
    from penstock.core.config import LogSettings

ROOT_LOGGER = "penstock"

_COLORS: Final = {"debug": 32, "info": 32, "warning": 33, "error": 31, "critical": 31}
#: Characters that put a text between quotes.
_QUOTED: Final = frozenset(" \t=\r\n\"'")


class LogEvent:
    """The message of a log record."""

    __slots__ = ("event", "fields")

    def __init__(self, event: str, fields: dict[str, Any]) -> None:
        self.event = redact(event)
        self.fields = {name: redact_value(name, value) for name, value in fields.items()}

    def __str__(self) -> str:
        return " ".join((self.event, *_pairs(self.fields)))


class Logger:
    __slots__ = ("_logger",)

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger

    def debug(self, event: str, **fields: Any) -> None:
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._log(logging.WARNING, event, fields)

    def error(
        self, event: str, *, exc_info: BaseException | bool | None = None, **fields: Any
    ) -> None:
        self._log(logging.ERROR, event, fields, exc_info)

    def exception(self, event: str, **fields: Any) -> None:
        """An error, with the exception that is being handled."""
        self._log(logging.ERROR, event, fields, exc_info=True)

    def _log(
        self,
        level: int,
        event: str,
        fields: dict[str, Any],
        exc_info: BaseException | bool | None = None,
    ) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, LogEvent(event, fields), exc_info=exc_info, stacklevel=3)


def get_logger(name: str) -> Logger:
    """The logger of a module: `get_logger(__name__)`. `penstock_hives` becomes `penstock.hives`, so
    all loggers have one root."""
    name = name.replace("penstock_", "penstock.", 1) if name.startswith("penstock_") else name
    return Logger(logging.getLogger(name))


def configure_logs(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Set up the logs of this process. Other libraries log from level warning."""
    out = stream or sys.stderr
    pretty = settings.format == "console" or (settings.format == "auto" and out.isatty())
    handler = logging.StreamHandler(out)
    handler.setFormatter(ConsoleFormatter(out.isatty()) if pretty else JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(ROOT_LOGGER).setLevel(settings.level.upper())


def log_settings() -> LogSettings:
    """Those of this process, for one that it starts."""
    from penstock.core.config import LogSettings

    level: Any = logging.getLevelName(logging.getLogger(ROOT_LOGGER).getEffectiveLevel()).lower()
    formatters = (handler.formatter for handler in logging.getLogger().handlers)
    is_json = any(isinstance(each, JsonFormatter) for each in formatters)
    return LogSettings(level=level, format="json" if is_json else "console")


def escape_text(text: str, *, lines: bool = False) -> str:
    """The text with non-printable characters escaped; `lines` keeps line ends and tabs."""
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(
        char if char.isprintable() or char in kept else ascii(char)[1:-1] for char in text
    )


class JsonFormatter(logging.Formatter):
    """A JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        event, fields = _event_of(record)
        line = {
            "event": event,
            **fields,
            "level": record.levelname.lower(),
            "logger": record.name,
            "timestamp": _timestamp(record),
        }
        if trace := _traceback(self, record):
            line["exception"] = trace
        return json.dumps(line, default=str)


class ConsoleFormatter(logging.Formatter):
    """A line for people: time, level, event, logger, fields; the traceback follows."""

    def __init__(self, colors: bool) -> None:
        super().__init__()
        self._colors = colors

    def format(self, record: logging.LogRecord) -> str:
        event, fields = _event_of(record)
        level = record.levelname.lower()
        parts = [
            self._styled(2, _timestamp(record)),
            f"[{self._styled(_COLORS.get(level, 0), f'{level:<9}')}]",
            self._styled(1, f"{escape_text(event):<30}"),
            f"[{self._styled(1, record.name)}]",
            *_pairs(fields),
        ]
        line = " ".join(parts)
        trace = _traceback(self, record)
        return f"{line}\n{escape_text(trace, lines=True)}" if trace else line

    def _styled(self, code: int, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._colors else text


def _event_of(record: logging.LogRecord) -> tuple[str, dict[str, Any]]:
    """Records of other libraries are events without fields."""
    message = record.msg
    if isinstance(message, LogEvent):
        return message.event, message.fields
    return redact(record.getMessage()), {}


def _pairs(fields: dict[str, Any]) -> list[str]:
    return [f"{name}={_shown(value)}" for name, value in fields.items()]


def _shown(value: Any) -> str:
    if isinstance(value, str) and not _QUOTED.intersection(value):
        return escape_text(value)
    return repr(value)


def _timestamp(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    return redact(formatter.formatException(record.exc_info)) if record.exc_info else ""
