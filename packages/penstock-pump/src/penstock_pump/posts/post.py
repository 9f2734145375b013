"""The post: announces that a file is new, changed or removed, and where to fetch it.

One value for all formats (`v02.py`, `v03.py`, `wis2.py`): names are unescaped, times are numbers,
checksum methods are v02's. Other fields of a format are passed on unchanged in `extra`, because the
next hop may need them.
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
    MODIFY = "modify"  #: the file or its content is new
    LINK = "link"  #: it is a symbolic link
    DELETE = "delete"
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
    """The content of a small file inside its post."""

    data: bytes
    encoding: str = "base64"  #: in the post


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    moment: int  #: when it was first announced; later hops do not change it
    base_url: str
    relpath: str
    sum: Checksum | None = None
    parts: Parts | None = None  #: None for removals and links, or where the size is unknown
    mtime: int | None = None
    atime: int | None = None
    mode: int | None = None
    link: str | None = None  #: the target of a symbolic link
    rename: str | None = None  #: path to use instead of `relpath`, by one hop
    oldname: str | None = None  #: the former name of a moved file
    newname: str | None = None  #: of a removal that is half of a move
    source: str | None = None
    from_cluster: str | None = None
    to_clusters: str | None = None
    retrieve: str | None = None  #: v03's retrievePath: the path on the server
    content: InlineContent | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def event(self) -> FileEvent:
        if self.link is not None and self.sum is None:
            return FileEvent.LINK
        return _EVENTS.get(self.sum.method, FileEvent.MODIFY) if self.sum else FileEvent.MODIFY

    @property
    def name(self) -> str:
        return self.relpath.rstrip("/").rpartition("/")[2]

    @property
    def url(self) -> str:
        """The URL that selection patterns are matched against."""
        return self.base_url.rstrip("/") + "/" + self.relpath.lstrip("/")
