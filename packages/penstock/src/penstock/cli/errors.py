"""The exit status of errors, in one table. Commands catch nothing; a traceback means a bug."""

from __future__ import annotations

from typing import Final

from penstock.core.errors import (
    AccessRefused,
    ConfigurationError,
    NotFound,
    PenstockError,
    PreconditionFailed,
)

#: The first matching class decides. 1 is any other error; 2 is also the status of invalid options;
#: 130 is the convention for Ctrl-C.
EXIT_STATUS: Final[tuple[tuple[type[Exception], int], ...]] = (
    (ConfigurationError, 2),
    (NotFound, 3),
    (AccessRefused, 4),
    (PreconditionFailed, 5),
    (ConnectionError, 6),
    (PenstockError, 1),
)
INTERRUPTED: Final = 130


def exit_status(error: Exception) -> int:
    return next((status for kind, status in EXIT_STATUS if isinstance(error, kind)), 1)
