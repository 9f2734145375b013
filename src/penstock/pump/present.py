"""What is here already, and need not be fetched. Blocking: it may have to read all of a file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from penstock.pump.errors import unusable_name
from penstock.pump.gathering import GATHERED
from penstock.pump.landing.target import Target
from penstock.pump.posts.parts import Parts
from penstock.pump.posts.post import Post
from penstock.pump.posts.sums import LATER, Sums


@dataclass(frozen=True, slots=True)
class Present:
    sums: Sums
    overwrite: bool  #: compare and replace what is here; else what is here is enough
    by_time: bool  #: files have the times they were announced with, so that these tell

    def whole(self, post: Post, target: Target) -> str | None:
        """Why a file need not be fetched, if that is so."""
        try:
            there = os.stat(target.place)  # noqa: PTH116 - it is asked for every file
        except OSError as error:
            if unusable_name(error):
                raise  # before it is fetched for nothing
            return None
        if not self.overwrite:
            return "is here"
        if post.sum is None or computed_here(post) or self.sums.verifiable(post.sum) is None:
            return None
        if self._newer(post, there):
            return "a newer one is here"
        if post.parts is not None and there.st_size != post.parts.file_size:
            return None
        same = self._has(post, target.place, 0, there.st_size)
        return "the same is here" if same else None

    def block(self, post: Post, parts: Parts, target: Target) -> bool:
        """Whether the finished file has this very block already, or is a later one."""
        try:
            there = os.stat(target.place)  # noqa: PTH116
            if self._newer(post, there):
                return True
            if there.st_size != parts.file_size:
                return False
            return self._has(post, target.place, parts.offset, parts.length)
        except OSError as error:
            if unusable_name(error):
                raise
            return False

    def _newer(self, post: Post, there: os.stat_result) -> bool:
        """Whether what is here was made after what is announced."""
        return post.mtime is not None and self.by_time and there.st_mtime_ns > post.mtime

    def _has(self, post: Post, place: str, offset: int, length: int) -> bool:
        digest = self.sums.verifiable(post.sum)
        if digest is None or post.sum is None:
            return False
        with Path(place).open("rb") as file:
            os.lseek(file.fileno(), offset, os.SEEK_SET)
            left = length
            while left and (chunk := os.read(file.fileno(), min(left, GATHERED))):
                digest.update(chunk)
                left -= len(chunk)
        return digest.hexdigest() == post.sum.value


def computed_here(post: Post) -> bool:
    """Whether the announcer leaves the sum to whoever has the file."""
    return post.sum is not None and post.sum.method == LATER
