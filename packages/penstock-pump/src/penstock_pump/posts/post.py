"""The post: that a file is there, changed or gone, and where to get it.

One value for every spelling (`v02.py`, `v03.py`, `wis2.py`): names are plain, times are numbers,
the fingerprint is v02's. What a spelling says beside that travels in `extra` untouched, for headers
unknown to one hop may matter to the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from penstock_pump.posts import checksums
from penstock_pump.posts.checksums import Checksum
from penstock_pump.posts.parts import Parts


class FileEvent(Enum):
    """What happened to the file."""

    MODIFY = "modify"  #: it is new, or its content is
    LINK = "link"  #: it is a symbolic link now
    DELETE = "delete"  #: it is gone
    MKDIR = "mkdir"
    RMDIR = "rmdir"


_EVENTS = {
    checksums.REMOVED: FileEvent.DELETE,
    checksums.LINK: FileEvent.LINK,
    checksums.MADE_DIRECTORY: FileEvent.MKDIR,
    checksums.REMOVED_DIRECTORY: FileEvent.RMDIR,
}


@dataclass(frozen=True, slots=True)
class InlineContent:
    """A small file that came with its post."""

    data: bytes
    encoding: str = "base64"  #: how the post spells it


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    moment: int  #: when it was first announced; hops that announce again keep it
    base_url: str
    relpath: str
    sum: Checksum | None = None
    parts: Parts | None = None  #: absent for removals and links, or where the size is not known
    mtime: int | None = None
    atime: int | None = None
    mode: int | None = None
    link: str | None = None  #: what a symbolic link points to
    rename: str | None = None  #: where to put it instead of `relpath`; used once
    oldname: str | None = None  #: this file had that name before
    newname: str | None = None  #: this removal is half of a move
    source: str | None = None
    from_cluster: str | None = None
    to_clusters: str | None = None
    retrieve: str | None = None  #: v03's retrievePath: what to ask the server for
    content: InlineContent | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def event(self) -> FileEvent:
        if self.link is not None and self.sum is None:
            return FileEvent.LINK
        return _EVENTS.get(self.sum.method, FileEvent.MODIFY) if self.sum else FileEvent.MODIFY

    @property
    def name(self) -> str:
        """The last word of the path; of the URL, where the path names a directory."""
        return self.relpath.rstrip("/").rpartition("/")[2]

    @property
    def url(self) -> str:
        """Where it is, as selection by pattern sees it."""
        base = self.base_url
        if base == "file:":
            return base + "/" + self.relpath.lstrip("/")
        return base.rstrip("/") + "/" + self.relpath.lstrip("/")
