"""What can go wrong between a program and the database, by names a person can act on.

`translate_error` maps PostgreSQL's five-letter codes. Transient errors (a server that restarts, two
conflicting transactions) are marked as such. A mistake in a statement keeps psycopg's own type.
"""

from __future__ import annotations

from typing import Final

import psycopg

from penstock.core.errors import AccessRefused, ConfigurationError, NotFound, PenstockError


class StoreUnavailable(PenstockError, ConnectionError):
    """No database answers, or it went away in the middle: whether a commit took is unknown."""

    transient = True


class StoreConflict(PenstockError):
    """Another transaction was in the way (serialization, deadlock, a lock held): try again."""

    transient = True


class StoreTimeout(PenstockError, TimeoutError):
    """The statement took longer than it may."""

    transient = True


class StoreFull(PenstockError):
    """The database has no room: a full disk, or no memory or connections left."""

    transient = True


class StoreNotReady(PenstockError):
    """The database is there but not as this version needs it; says what to run."""


#: PostgreSQL's codes, or their classes (the first two letters), and the name each gets here.
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

#: What a person can do about it, where there is something.
_ADVICE: Final[dict[str, str]] = {
    "42P01": "is the schema there? try: penstock store migrate",
    "53100": "the disk that holds the database is full: make room, then try again",
    "53200": "the database server is out of memory",
    "53300": "the database takes no more connections (max_connections)",
    "57P03": "the server is starting, or in recovery",
}


def translate_error(error: psycopg.Error, where: str) -> Exception:
    """The error under its name here; the same error if it has none."""
    code = error.sqlstate
    if code is None:
        # Without a code it did not come from the server: the connection failed, or could not be
        # made. Mistakes in using the driver have types of their own.
        if not isinstance(error, psycopg.OperationalError):
            return error
        return _named(StoreUnavailable, error, f"no database at {where}: {_first_line(error)}")
    kind = _SQLSTATES.get(code) or _SQLSTATES.get(code[:2])
    if kind is None:
        return error
    words = _first_line(error)
    if advice := _ADVICE.get(code):
        words = f"{words}; {advice}"
    return _named(kind, error, f"database at {where}: {words}")


def invalid_url(url: str) -> ConfigurationError:
    scheme = url.partition("://")[0] if "://" in url else url
    return ConfigurationError(
        f"{scheme!r} is no database; should be postgresql://user@host:5432/name, "
        "or nothing for the embedded one"
    )


def _named(kind: type[PenstockError], error: psycopg.Error, words: str) -> PenstockError:
    named = kind(words)
    named.__cause__ = error
    return named


def _first_line(error: psycopg.Error) -> str:
    text = error.diag.message_primary or str(error)
    return " ".join(text.split())
