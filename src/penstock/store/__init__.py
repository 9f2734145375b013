"""What lasts beside the log: PostgreSQL, embedded or by URL, and a cache in front of it.

    from penstock import store

    with store.open(None, data) as database:
        database.rows("SELECT id, name FROM hive")

`docs/store.md` shows all of it.
"""

from penstock.store.batches import Batches
from penstock.store.bulk import copy_batches, fill, merge
from penstock.store.database import Connection, Database, connect
from penstock.store.embedded import EmbeddedServer
from penstock.store.errors import (
    StoreConflict,
    StoreFull,
    StoreTimeout,
    StoreUnavailable,
    StoreUnready,
)
from penstock.store.migrating import migrate
from penstock.store.opening import open  # noqa: A004 - store.open, as gzip.open
from penstock.store.patience import Patience, attempt
from penstock.store.staging import Staging, discard, stage, sweep

__all__ = [
    "Batches",
    "Connection",
    "Database",
    "EmbeddedServer",
    "Patience",
    "Staging",
    "StoreConflict",
    "StoreFull",
    "StoreTimeout",
    "StoreUnavailable",
    "StoreUnready",
    "attempt",
    "connect",
    "copy_batches",
    "discard",
    "fill",
    "merge",
    "migrate",
    "open",
    "stage",
    "sweep",
]
