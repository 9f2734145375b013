"""PostgreSQL, embedded or by URL; caches, HTTP serving and dashboards for applications.

    import penstock_store

    with penstock_store.open(None, data) as database:
        database.rows("SELECT id, name FROM hive")

See `docs/store.md`.
"""

from typing import TYPE_CHECKING

from penstock.core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from penstock_store.bulk_load import (
        AppliedBatches,
        StagingTable,
        copy_batches,
        copy_rows,
        create_staging_table,
        drop_staging_table,
        drop_stale_staging_tables,
        merge_rows,
    )
    from penstock_store.database import Connection, Database, connect
    from penstock_store.embedded import EmbeddedServer
    from penstock_store.errors import (
        StoreConflict,
        StoreFull,
        StoreNotReady,
        StoreTimeout,
        StoreUnavailable,
    )
    from penstock_store.factory import open  # noqa: A004 - store.open, as gzip.open
    from penstock_store.schema import migrate

__all__ = [
    "AppliedBatches",
    "Connection",
    "Database",
    "EmbeddedServer",
    "StagingTable",
    "StoreConflict",
    "StoreFull",
    "StoreNotReady",
    "StoreTimeout",
    "StoreUnavailable",
    "connect",
    "copy_batches",
    "copy_rows",
    "create_staging_table",
    "drop_staging_table",
    "drop_stale_staging_tables",
    "merge_rows",
    "migrate",
    "open",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "bulk_load": [
            *("AppliedBatches", "StagingTable", "copy_batches", "copy_rows", "merge_rows"),
            *("create_staging_table", "drop_staging_table", "drop_stale_staging_tables"),
        ],
        "database": ["Connection", "Database", "connect"],
        "embedded": ["EmbeddedServer"],
        "errors": [
            *("StoreConflict", "StoreFull", "StoreNotReady", "StoreTimeout", "StoreUnavailable"),
        ],
        "factory": ["open"],
        "schema": ["migrate"],
    },
)
