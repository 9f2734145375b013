"""What is here already, and need not be fetched. Blocking: it may have to read all of a file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

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
            there = target.final.stat()
        except OSError:
            return None
        if not self.overwrite:
            return "is here"
        if post.sum is None or computed_here(post) or self.sums.verifiable(post.sum) is None:
            return None
        if self._newer(post, target.final):
            return "a newer one is here"
        if post.parts is not None and there.st_size != post.parts.file_size:
            return None
        same = self._has(post, target.final, 0, there.st_size)
        return "the same is here" if same else None

    def block(self, post: Post, parts: Parts, final: Path) -> bool:
        """Whether the finished file has this very block already, or is a later one."""
        if self._newer(post, final):
            return True
        try:
            if final.stat().st_size != parts.file_size:
                return False
            return self._has(post, final, parts.offset, parts.length)
        except OSError:
            return False

    def _newer(self, post: Post, final: Path) -> bool:
        """Whether what is here was made after what is announced."""
        if post.mtime is None or not self.by_time:
            return False
        try:
            return final.stat().st_mtime_ns > post.mtime
        except OSError:
            return False

    def _has(self, post: Post, final: Path, offset: int, length: int) -> bool:
        digest = self.sums.verifiable(post.sum)
        if digest is None or post.sum is None:
            return False
        with final.open("rb") as file:
            os.lseek(file.fileno(), offset, os.SEEK_SET)
            left = length
            while left and (chunk := os.read(file.fileno(), min(left, GATHERED))):
                digest.update(chunk)
                left -= len(chunk)
        return digest.hexdigest() == post.sum.value


def computed_here(post: Post) -> bool:
    """Whether the announcer leaves the sum to whoever has the file."""
    return post.sum is not None and post.sum.method == LATER
