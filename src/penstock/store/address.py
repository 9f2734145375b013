"""A database's URL as PostgreSQL's own library reads it, and as a person may see it.

The embedded server's URL has its socket's directory in it (`postgresql:///penstock?host=/…`), any
other is what the operator wrote. Passwords stay out of every message.
"""

from __future__ import annotations

from typing import Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from penstock.store.errors import not_a_url

_SCHEMES: Final = ("postgresql://", "postgres://")


def checked(url: str) -> str:
    """The URL, if it is one of a PostgreSQL database."""
    if not url.startswith(_SCHEMES):
        raise not_a_url(url)
    try:
        conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        raise not_a_url(url) from error
    return url


def place(url: str) -> str:
    """Where it is, without who asks and how they prove it: `host:port/name`."""
    parts = conninfo_to_dict(url)
    host = parts.get("host") or parts.get("hostaddr") or "localhost"
    return f"{host}:{parts.get('port') or 5432}/{parts.get('dbname') or parts.get('user') or ''}"


def for_sqlalchemy(url: str) -> str:
    """The same address for Alembic, which speaks through SQLAlchemy and the same driver."""
    return "postgresql+psycopg://" + url.partition("://")[2]
