"""Entries of listings as plugins of Sarracenia see them: lines of `ls -l`, or attributes."""

from __future__ import annotations

import stat
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from penstock_pump.transports.listing import ListedFile


def listing_line(listed: ListedFile) -> str:
    at = datetime.fromtimestamp((listed.mtime or 0) // 10**9, UTC)
    kind = "drwxr-xr-x" if listed.is_directory else "-rw-r--r--"
    return f"{kind} 1 root root {listed.size or 0} {at:%b %d %Y %H:%M} {listed.name}"


def listed_entry(name: str, entry: Any, known: ListedFile | None = None) -> ListedFile | None:
    """From attributes as paramiko has them, or a line; None, False or an empty line: left out."""
    if not entry:
        return None
    listed = known or ListedFile(name.rstrip("/"), name.endswith("/"))
    if isinstance(entry, str):
        return replace(listed, is_directory=entry.startswith("d") or listed.is_directory)
    if entry is True:
        return listed
    size, mtime, mode = (getattr(entry, f"st_{each}", None) for each in ("size", "mtime", "mode"))
    return ListedFile(
        str(getattr(entry, "filename", "") or listed.name).rstrip("/"),
        stat.S_ISDIR(mode) if mode else listed.is_directory,
        listed.size if size is None else int(size),
        listed.mtime if mtime is None else int(float(mtime) * 1e9),
    )
