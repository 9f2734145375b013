"""Describes a file as a post with size, checksum, mode and times, or as one post per block.

A file whose size or time changes while it is read raises `FileChanging`, because the checksum would
describe a file that never existed. Blocking: called in a thread.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Final

from penstock.core.units import MiB
from penstock_pump.errors import BadPost, FileChanging, SourceMissing, SourceUnavailable
from penstock_pump.handlers import relative_path
from penstock_pump.posts import checksums
from penstock_pump.posts.checksums import Checksum, ChecksumMethods
from penstock_pump.posts.codec import checked_path
from penstock_pump.posts.parts import INPLACE, Parts, automatic_block_size, split_blocks
from penstock_pump.posts.post import InlineContent, Post

CHUNK: Final = MiB


@dataclass(frozen=True, slots=True)
class FileDescriber:
    base_url: str
    base_dir: Path
    sum: str = checksums.SHA512  #: a method; `z,METHOD` or `a,VALUE` as they are
    block_size: int | None = None  #: None is a whole file, 0 automatic
    block_method: str = INPLACE
    preserve_mode: bool = True
    preserve_times: bool = True
    folders: bool = False  #: directories are announced as well
    follow_links: bool = False  #: a link is announced as the file it leads to
    real_path: bool = False  #: links in paths are resolved
    randomize: bool = False  #: the blocks of a file are announced in random order
    rename: str | None = None
    inline: int = 0  #: files up to this size are put into their posts, where the format can
    inline_encoding: str = "auto"  #: text, binary, or auto: text where the content is UTF-8
    source: str | None = None
    from_cluster: str | None = None
    to_clusters: str | None = None
    sums: ChecksumMethods = field(default_factory=ChecksumMethods)
    random: Random = field(default_factory=Random)
    clock: Callable[[], int] = time.time_ns

    def describe(self, path: Path) -> list[Post]:
        """Empty for what is neither a file nor a link nor, with `folders`, a directory."""
        try:
            if self.real_path:
                path = path.resolve()
            status = path.stat() if self.follow_links else path.lstat()
        except OSError as error:
            raise _explain(path, error) from error
        if stat.S_ISREG(status.st_mode):
            return self._of_file(path, status)
        if stat.S_ISLNK(status.st_mode):
            target = str(path.readlink())
            post = self._post(path, status, checksums.link_sum(target))
            return [replace(post, link=target, mode=None)]
        if stat.S_ISDIR(status.st_mode) and self.folders and not self.is_base(path):
            return [self._post(path, status, checksums.directory_sum(path.name))]
        return []

    def is_base(self, path: Path) -> bool:
        """Whether it is the base directory, which is not announced itself."""
        return not relative_path(path, self.base_dir, self.base_url)

    def removed(self, path: Path, *, folder: bool = False) -> Post:
        return Post(
            moment=self.clock(),
            base_url=self.base_url,
            relpath=self._relpath(path),
            sum=checksums.removal_sum(path.name, directory=folder),
            source=self.source,
            from_cluster=self.from_cluster,
            to_clusters=self.to_clusters,
        )

    def moved(self, old: Path, new: Path) -> list[Post]:
        """The removal of the old name, and the posts of the new one."""
        posts = [replace(post, oldname=self._relpath(old)) for post in self.describe(new)]
        return [replace(self.removed(old), newname=self._relpath(new)), *posts]

    def _of_file(self, path: Path, status: os.stat_result) -> list[Post]:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return self._read(path, fd, status)
            finally:
                os.close(fd)
        except OSError as error:
            raise _explain(path, error) from error

    def _read(self, path: Path, fd: int, status: os.stat_result) -> list[Post]:
        before = os.fstat(fd)
        size = before.st_size
        block = self.block_size
        if block == 0:
            block = automatic_block_size(size)
        name, moment = path.name, self.clock()  # the same for all blocks of one version
        posts = [
            self._post(path, status, self._sum(name, fd, parts.length), parts, moment)
            for parts in split_blocks(size, block or 0, self.block_method)
        ]
        if 0 < size <= self.inline and len(posts) == 1:
            posts = [replace(posts[0], content=self._inlined(os.pread(fd, size, 0)))]
        after = os.fstat(fd)
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise FileChanging(f"{path} was written to while it was read")
        if self.randomize:
            self.random.shuffle(posts)
        return posts

    def _inlined(self, data: bytes) -> InlineContent:
        if self.inline_encoding != "binary":
            try:
                data.decode()
                return InlineContent(data, "utf-8")
            except UnicodeDecodeError:
                if self.inline_encoding == "text":
                    return InlineContent(data.decode(errors="replace").encode(), "utf-8")
        return InlineContent(data)

    def _sum(self, name: str, fd: int, length: int) -> Checksum:
        """The checksum of the next block of a file."""
        method, comma, value = self.sum.partition(",")
        if comma:
            return Checksum(method, value)
        if method == checksums.NONE:
            return checksums.no_sum(self.random)
        if method == checksums.NAME:
            return checksums.name_sum(name)
        digest = self.sums.over_data(method)
        if digest is None:
            raise BadPost(f"sum {self.sum!r} cannot be computed")
        left = length
        while left and (chunk := os.read(fd, min(left, CHUNK))):
            digest.update(chunk)
            left -= len(chunk)
        if left:
            raise FileChanging(f"{name} became shorter while it was read")
        return Checksum(method, digest.hexdigest())

    def _post(
        self,
        path: Path,
        status: os.stat_result,
        known: Checksum,
        parts: Parts | None = None,
        moment: int | None = None,
    ) -> Post:
        return Post(
            moment=self.clock() if moment is None else moment,
            base_url=self.base_url,
            relpath=self._relpath(path),
            sum=known,
            parts=parts,
            mode=stat.S_IMODE(status.st_mode) if self.preserve_mode else None,
            mtime=status.st_mtime_ns if self.preserve_times else None,
            atime=status.st_atime_ns if self.preserve_times else None,
            source=self.source,
            from_cluster=self.from_cluster,
            to_clusters=self.to_clusters,
            rename=self.rename,
        )

    def _relpath(self, path: Path) -> str:
        relpath = checked_path(relative_path(path, self.base_dir, self.base_url))
        try:
            relpath.encode()
        except UnicodeEncodeError:
            raise BadPost(f"{relpath!r} is not UTF-8: it cannot be announced") from None
        return relpath


def _explain(path: Path, error: OSError) -> Exception:
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return SourceMissing(f"{path} does not exist")
    return SourceUnavailable(f"{path}: {error.strerror}")
