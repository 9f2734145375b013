"""Databases for tests: a server has one template with the schema, and each test a copy of it.

The servers are fixtures: `embedded` for all (`tests/fixtures.py`), others where they are tested.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from psycopg.sql import SQL, Identifier

from penstock_store import connect, migrate


@contextmanager
def grounds_of_its_own() -> Iterator[Path]:
    """A directory for servers that run as another user when the tests run as root.

    Not below pytest's own: every run of pytest closes that to others again.
    """
    with tempfile.TemporaryDirectory(prefix="penstock-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def with_name(url: str, name: str) -> str:
    """The URL of another database of the same server."""
    address, question, options = url.partition("?")
    return f"{address.rpartition('/')[0]}/{name}{question}{options}"


def new_template(server: str) -> str:
    """A database with the schema, which others are made from. Its URL."""
    with connect(server) as connection:
        connection.execute("CREATE DATABASE template")
    url = with_name(server, "template")
    migrate(url)
    return url


@contextmanager
def copy_of(url: str) -> Iterator[str]:
    """The URL of a database like this one, which is there for the length of the block."""
    name = f"t{uuid.uuid4().hex}"
    template = url.partition("?")[0].rpartition("/")[2]
    names = Identifier(name), Identifier(template)
    with connect(with_name(url, "postgres")) as connection:
        connection.execute(SQL("CREATE DATABASE {} TEMPLATE {}").format(*names))
    yield with_name(url, name)
    with connect(with_name(url, "postgres")) as connection:
        connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))
