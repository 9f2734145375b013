"""Structured logs: an event and its fields, one line each, without passwords (`redaction.py`).

Modules call `get_logger(__name__)` and `log.info("queue declared", queue=name)`. Loggers write
through the standard library, so an embedding program controls the output. Our own processes call
`configure_logs` once: readable lines in a terminal, JSON otherwise, on standard error. Control
characters are escaped: names and reasons come from peers and must not control a terminal.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any, TextIO, cast

import structlog
from structlog.stdlib import BoundLogger, ProcessorFormatter
from structlog.typing import EventDict, Processor

from penstock.core.redaction import redact_value

if TYPE_CHECKING:
    from penstock.core.config import LogSettings

ROOT_LOGGER = "penstock"


class Logger(BoundLogger):
    """Checks the level first: debug events are logged for every message."""

    def debug(self, event: str | None = None, *args: Any, **fields: Any) -> Any:
        if self._logger.isEnabledFor(logging.DEBUG):
            super().debug(event, *args, **fields)

    def info(self, event: str | None = None, *args: Any, **fields: Any) -> Any:
        if self._logger.isEnabledFor(logging.INFO):
            super().info(event, *args, **fields)


def _redacted(_: Any, __: str, fields: EventDict) -> EventDict:
    for name, value in fields.items():
        if isinstance(value, str | list | tuple):
            fields[name] = redact_value(name, value)
    return fields


def get_logger(name: str) -> Logger:
    """The logger of a module: `get_logger(__name__)`. `penstock_hives` becomes `penstock.hives`, so
    all loggers have one root."""
    name = name.replace("penstock_", "penstock.", 1) if name.startswith("penstock_") else name
    return cast(
        Logger,
        structlog.wrap_logger(
            logging.getLogger(name),
            processors=[
                structlog.stdlib.filter_by_level,
                structlog.stdlib.add_log_level,
                structlog.stdlib.add_logger_name,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.processors.format_exc_info,
                _redacted,
                ProcessorFormatter.wrap_for_formatter,
            ],
            wrapper_class=Logger,
            context_class=dict,
            cache_logger_on_first_use=True,
        ),
    )


def configure_logs(settings: LogSettings, stream: TextIO | None = None) -> None:
    """Set up the logs of this process. Other libraries log from level warning."""
    out = stream or sys.stderr
    pretty = settings.format == "console" or (settings.format == "auto" and out.isatty())
    handler = logging.StreamHandler(out)
    handler.setFormatter(_formatter(pretty, colors=out.isatty()))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(ROOT_LOGGER).setLevel(settings.level.upper())


def escape_text(text: str, *, lines: bool = False) -> str:
    """The text with non-printable characters escaped; `lines` keeps line ends and tabs."""
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(
        char if char.isprintable() or char in kept else ascii(char)[1:-1] for char in text
    )


def _escape(_: Any, __: str, fields: EventDict) -> EventDict:
    for key, value in fields.items():
        if isinstance(value, str):
            fields[key] = escape_text(value, lines=key in ("exception", "stack"))
    return fields


def _formatter(pretty: bool, colors: bool) -> logging.Formatter:
    renderer: Processor
    if pretty:
        renderer = structlog.dev.ConsoleRenderer(
            colors=colors, exception_formatter=structlog.dev.plain_traceback
        )
    else:
        renderer = structlog.processors.JSONRenderer(default=str)
    return ProcessorFormatter(
        processors=[
            ProcessorFormatter.remove_processors_meta,
            *([_escape] if pretty else []),
            renderer,
        ],
        # Records of other libraries get the same fields.
        foreign_pre_chain=[
            structlog.stdlib.add_log_level,
            structlog.stdlib.add_logger_name,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _redacted,
        ],
    )
