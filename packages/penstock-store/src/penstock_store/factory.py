"""`penstock_store.open`: the embedded database, or the one of a URL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from penstock_store.database import Database
from penstock_store.embedded import EmbeddedServer
from penstock_store.schema import migrate

#: The embedded server's files, under the data directory.
EMBEDDED_FOLDER: Final = "pg"


@contextmanager
def open(url: str | None, data: Path, *, migrated: bool = True) -> Iterator[Database]:  # noqa: A001 - store.open, as gzip.open
    """A database for the length of the block, with its schema migrated."""
    if url is not None:
        with Database(url) as database:
            if migrated:
                migrate(database.url)
            yield database
        return
    with EmbeddedServer(data / EMBEDDED_FOLDER) as server, Database(server.url) as database:
        if migrated:
            migrate(database.url)
        yield database
