"""The files of an embedded server: made once, whole or not at all.

`initdb` works in a directory beside the final one, which is renamed into place when it is done: a
process killed halfway leaves nothing that looks like a database.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Final

from penstock.store.embedded.account import Account
from penstock.store.embedded.programs import VERSION, run
from penstock.store.errors import StoreUnready

#: The superuser of an embedded server, and the database everything of ours is in.
USER: Final = "penstock"
DATABASE: Final = "penstock"
_VERSION_FILE: Final = "PG_VERSION"

#: What `postgresql.conf` begins with; a person may change it there.
_SETTINGS: Final = {
    # Batches come twice a second and rewrite the same few thousand rows.
    "max_wal_size": "2GB",
    "checkpoint_timeout": "15min",
    "wal_compression": "on",
    # One machine, everybody local: what an analytical query sorts should fit in memory.
    "work_mem": "16MB",
    "maintenance_work_mem": "128MB",
    "log_checkpoints": "off",
    # Who waits for a lock for long is told about in the log.
    "log_lock_waits": "on",
    "TimeZone": "UTC",
    "log_timezone": "UTC",
}


def prepare(data: Path, account: Account) -> None:
    """Have a database directory of our version at `data`."""
    version = data / _VERSION_FILE
    if version.exists():
        _check(data, version.read_text().strip())
        return
    if data.exists() and any(data.iterdir()):
        raise StoreUnready(f"{data} holds something that is no database: move it away")
    fresh = data.with_name(f".{data.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    os.chown(fresh, account.uid, account.gid)
    _fill(fresh, account)
    if data.exists():
        data.rmdir()
    fresh.rename(data)


def _fill(fresh: Path, account: Account) -> None:
    settings = [f"--set={name}={value}" for name, value in _SETTINGS.items()]
    run(
        "initdb",
        f"--pgdata={fresh}",
        f"--username={USER}",
        # The socket lies in this directory, which only its owner and root may enter.
        "--auth=trust",
        "--encoding=UTF8",
        # The server's own rules for text: the same on every machine.
        *("--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"),
        *settings,
        account=account,
    )


def _check(data: Path, found: str) -> None:
    if found != str(VERSION):
        raise StoreUnready(
            f"{data} was made by PostgreSQL {found}, the embedded one is {VERSION}: dump it with "
            "the Penstock that made it and load it here, or give the URL of a PostgreSQL"
        )
