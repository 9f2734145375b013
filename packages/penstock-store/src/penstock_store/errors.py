"""Errors of the database, mapped from PostgreSQL's SQLSTATE codes.

Transient errors (a restart, conflicting transactions) are marked as such. Errors in a statement
keep psycopg's type.
"""

from __future__ import annotations

from typing import Final

import psycopg

from penstock.core.errors import AccessRefused, ConfigurationError, NotFound, PenstockError


class StoreUnavailable(PenstockError, ConnectionError):
    """No connection, or it was lost; whether a running commit succeeded is unknown."""

    transient = True


class StoreConflict(PenstockError):
    """A conflict with another transaction: serialization, deadlock, lock."""

    transient = True


class StoreTimeout(PenstockError, TimeoutError):
    """The statement exceeded its time limit."""

    transient = True


class StoreFull(PenstockError):
    """The database has no disk space, memory or connections left."""

    transient = True


class StoreNotReady(PenstockError):
    """The schema of the database does not fit this version."""


#: SQLSTATE codes, or their classes (the first two letters).
_SQLSTATES: Final[dict[str, type[PenstockError]]] = {
    "08": StoreUnavailable,
    "28": AccessRefused,
    "3D000": NotFound,
    "40": StoreConflict,
    "42P01": StoreNotReady,
    "53": StoreFull,
    "55P03": StoreConflict,
    "57014": StoreTimeout,
    "57": StoreUnavailable,
}

#: Advice to the user.
_ADVICE: Final[dict[str, str]] = {
    "42P01": "run: penstock store migrate",
    "53100": "the disk of the database is full: free some space",
    "53200": "the database server is out of memory",
    "53300": "the database has no free connections (max_connections)",
    "57P03": "the server is starting or in recovery",
}


def translate_error(error: psycopg.Error, where: str) -> Exception:
    """The error of this module; the same error if there is none."""
    code = error.sqlstate
    if code is None:
        # Without a code the error is one of the connection, or a wrong use of the driver.
        if not isinstance(error, psycopg.OperationalError):
            return error
        return _named(
            StoreUnavailable, error, f"cannot reach the database at {where}: {_first_line(error)}"
        )
    kind = _SQLSTATES.get(code) or _SQLSTATES.get(code[:2])
    if kind is None:
        return error
    text = _first_line(error)
    if advice := _ADVICE.get(code):
        text = f"{text}; {advice}"
    return _named(kind, error, f"database at {where}: {text}")


def invalid_url(url: str) -> ConfigurationError:
    scheme = url.partition("://")[0] if "://" in url else url
    return ConfigurationError(
        f"the database URL must be postgresql://user@host:5432/name, or none for the embedded "
        f"database; got {scheme!r}"
    )


def _named(kind: type[PenstockError], error: psycopg.Error, text: str) -> PenstockError:
    named = kind(text)
    named.__cause__ = error
    return named


def _first_line(error: psycopg.Error) -> str:
    text = error.diag.message_primary or str(error)
    return " ".join(text.split())
