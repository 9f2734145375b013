"""Where a file is fetched from: the URL a post means.

The seed's rule: a base URL that ends with a slash is a prefix for the path; one that does not is
the file itself, and the path says where to put it. Sarracenia's programs join the two whatever they
end with, which is the other form in use (`join`). A base without a path (`http://host`, `file:`)
cannot be a file, and is a prefix in either.

In a post names are plain; in a URL they are quoted. The two never meet outside this file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from penstock.pump.posts.post import Post

#: What a server's path may contain without being quoted.
_SAFE: Final = "/!$&'()*+,;=:@~"


@dataclass(frozen=True, slots=True)
class Source:
    """A file on a server, or on this machine."""

    url: str

    @property
    def scheme(self) -> str:
        return self.url.partition(":")[0].lower()

    @property
    def host(self) -> str:
        return urlsplit(self.url).hostname or ""

    @property
    def path(self) -> str:
        """The path on the server, plain: what SFTP, FTP and the file system are asked for."""
        if self.scheme == "file":
            return "/" + unquote(self.url[5:], errors="surrogateescape").lstrip("/")
        return unquote(urlsplit(self.url).path)

    @property
    def name(self) -> str:
        return self.path.rstrip("/").rpartition("/")[2]


def source_of(post: Post, *, join: bool = False) -> Source:
    base = post.base_url
    if post.retrieve is not None:
        return Source(base.rstrip("/") + "/" + quote(post.retrieve.lstrip("/"), _SAFE + "%?"))
    if _is_file_itself(base) and not join:
        return Source(base)
    path = quote(post.relpath.lstrip("/"), _SAFE, errors="surrogateescape")
    return Source(base.rstrip("/") + "/" + path)


def destined(post: Post, *, join: bool = False) -> str:
    """The path a post gives its file: the name is the source's where it names a directory."""
    path = post.rename if post.rename is not None else post.relpath
    return path + source_of(post, join=join).name if path.endswith("/") else path


def _is_file_itself(base: str) -> bool:
    scheme, _, rest = base.partition(":")
    if base.endswith("/"):
        return False
    if scheme.lower() == "file":
        return bool(rest.strip("/"))
    return bool(urlsplit(base).path)
