"""Where a site's own code has its say: a plugin is a value with the functions it has.

Plugins are given to a component when it is made, and asked in order. Each may change what it is
given; one that returns None ends the matter: the post is not wanted, the announcement not made, the
report not sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from penstock.pump.posts.post import Post
from penstock.pump.posts.reports import Report

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Plugin:
    on_message: Callable[[Post], Post | None] | None = None  #: it has been accepted
    on_part: Callable[[Post, Path], Post | None] | None = None  #: a block is in its place
    on_file: Callable[[Post, Path], Post | None] | None = None  #: a file is whole
    on_post: Callable[[Post], Post | None] | None = None  #: it is about to be announced
    on_report: Callable[[Report], Report | None] | None = None


@dataclass(frozen=True, slots=True)
class Plugins:
    plugins: Sequence[Plugin] = ()

    def message(self, post: Post) -> Post | None:
        return _through(post, (each.on_message for each in self.plugins))

    def post(self, post: Post) -> Post | None:
        return _through(post, (each.on_post for each in self.plugins))

    def report(self, report: Report) -> Report | None:
        return _through(report, (each.on_report for each in self.plugins))

    def file(self, post: Post, path: Path, *, whole: bool) -> Post | None:
        kept: Post | None = post
        for each in self.plugins:
            asked = each.on_file if whole else each.on_part
            if asked is not None and kept is not None:
                kept = asked(kept, path)
        return kept


def _through(value: T, asked: Iterable[Callable[[T], T | None] | None]) -> T | None:
    kept: T | None = value
    for ask in asked:
        if ask is not None and kept is not None:
            kept = ask(kept)
    return kept
