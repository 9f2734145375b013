"""Bringing a database's schema to what this version of Penstock needs.

`migrate` may be called by any number of processes at once and costs one query when there is
nothing to do; only when there is something does it load Alembic. A database that a newer Penstock
has changed is left alone.
"""

from __future__ import annotations

import threading
from typing import Final

import psycopg
from psycopg import errors

from penstock.core.logs import get_logger
from penstock.store.address import place
from penstock.store.database import connect
from penstock.store.errors import StoreUnready, explain
from penstock.store.migrations import HEAD

log = get_logger(__name__)

_SCRIPTS: Final = "penstock.store:migrations"
EMPTY: Final = "base"
#: Alembic keeps what it works on where all threads of a process see it.
_ONE_AT_A_TIME: Final = threading.Lock()


def migrate(url: str, to: str = HEAD) -> None:
    """Have the schema at `to`: the newest step, an older one, or `EMPTY`."""
    now = version(url)
    if now == (None if to == EMPTY else to):
        return
    _alembic(url, now, to)
    log.info("schema changed", database=place(url), before=now or EMPTY, after=to)


def version(url: str) -> str | None:
    """The step a database is at; None is one we have never touched, or left."""
    with connect(url) as connection:
        try:
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        except errors.UndefinedTable:
            return None
        except psycopg.Error as error:
            raise explain(error, place(url)) from error
    return row["version_num"] if row else None


def _alembic(url: str, now: str | None, to: str) -> None:
    # Half a second and 30 MB that a process with nothing to migrate need not spend.
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory
    from sqlalchemy.exc import DBAPIError

    config = Config()
    config.set_main_option("script_location", _SCRIPTS)
    config.attributes["url"] = url
    steps = [step.revision for step in ScriptDirectory.from_config(config).walk_revisions()]
    if now is not None and now not in steps:
        raise StoreUnready(
            f"the schema at {place(url)} is at step {now}, which this Penstock does not know: "
            "it was migrated by a newer one"
        )
    ahead = now is not None and (to == EMPTY or steps.index(to) > steps.index(now))
    try:
        with _ONE_AT_A_TIME:
            (command.downgrade if ahead else command.upgrade)(config, to)
    except DBAPIError as error:
        if isinstance(error.orig, psycopg.Error):
            raise explain(error.orig, place(url)) from error
        raise
