"""Errors as the shell sees them: a line on standard error and an exit status, in one table.

Commands raise what the rooms below raise and catch nothing; a traceback means a mistake of ours.
"""

from __future__ import annotations

from typing import Final

from penstock.core.errors import (
    AccessRefused,
    ConfigurationError,
    NotFound,
    PenstockError,
    PreconditionFailed,
)

#: The first class an error is an instance of decides. 1 is what is left; 2 is also what a flag
#: that cannot be read gives; 130 is what a shell expects of a command ended by Ctrl-C.
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
