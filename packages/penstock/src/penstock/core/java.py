"""Checks for the Java that Spark needs. Spark itself only reports that its gateway exited."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Final

from penstock.core.errors import ConfigurationError

MIN_JAVA_VERSION: Final = 17


def check_java() -> None:
    if (lack := java_problem()) is not None:
        raise ConfigurationError(lack)


def java_problem(home: str | None = None, path: str | None = None) -> str | None:
    """The problem with Java and its fix; None if a suitable Java is installed."""
    home = os.environ.get("JAVA_HOME") if home is None else home
    found = str(Path(home) / "bin" / "java") if home else shutil.which("java", path=path)
    remedy = (
        f"Spark needs Java {MIN_JAVA_VERSION} or later: install it (Debian: default-jre-headless)"
    )
    if found is None or not Path(found).exists():
        where = f"there is none in JAVA_HOME={home}" if home else "there is none on the path"
        return f"{remedy}; {where}"
    version = _version(Path(found))
    if version is not None and version < MIN_JAVA_VERSION:
        return f"{remedy}; {found} is Java {version}"
    return None


def _version(program: Path) -> int | None:
    """The version in the `release` file of the installation; None if unknown."""
    try:
        release = (program.resolve().parents[1] / "release").read_text()
    except OSError:
        return None
    match = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release, re.MULTILINE)
    return int(match[1]) if match else None
