"""Where a site's own code has its say: a plugin is a value with the functions it has.

Plugins are given to a component when it is made, or registered by name in its configuration
(`plugins = ["mysite.pump:lowercase"]`), and asked in order. Each may change what it is given; one
that returns None ends the matter: the post is not wanted, the announcement not made, the report not
sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Protocol, TypeVar

from penstock.core.errors import ConfigurationError
from penstock_pump.posts.post import Post
from penstock_pump.posts.reports import PostReport

T = TypeVar("T")


class OnPost(Protocol):
    """Has its say on a post that has come, or is about to go."""

    def __call__(self, post: Post, /) -> Post | None: ...


class OnArrival(Protocol):
    """Has its say when something is in its place on the disk, before it is announced."""

    def __call__(self, post: Post, path: Path, /) -> Post | None: ...


class OnReport(Protocol):
    """Has its say on what is told back."""

    def __call__(self, report: PostReport, /) -> PostReport | None: ...


@dataclass(frozen=True, slots=True)
class Plugin:
    on_message: OnPost | None = None  #: it has been accepted
    on_part: OnArrival | None = None  #: a block is in its place
    on_file: OnArrival | None = None  #: a file is whole
    on_post: OnPost | None = None  #: it is about to be announced
    on_report: OnReport | None = None


def load_plugins(names: Iterable[str]) -> list[Plugin]:
    """Plugins by `module:name`; what is none is an error before anything is begun."""
    return [_load_plugin(name) for name in names]


def _load_plugin(name: str) -> Plugin:
    module, _, attribute = name.partition(":")
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, ValueError, AttributeError) as error:
        raise ConfigurationError(f"plugin {name!r}, as module:name: {error}") from error
    if not isinstance(found, Plugin):
        raise ConfigurationError(f"plugin {name!r} is no Plugin, but {type(found).__name__}")
    return found


@dataclass(frozen=True, slots=True)
class Plugins:
    plugins: Sequence[Plugin] = ()

    def message(self, post: Post) -> Post | None:
        return _through(post, (each.on_message for each in self.plugins))

    def post(self, post: Post) -> Post | None:
        return _through(post, (each.on_post for each in self.plugins))

    def report(self, report: PostReport) -> PostReport | None:
        return _through(report, (each.on_report for each in self.plugins))

    def file(self, post: Post, place: str, *, whole: bool) -> Post | None:
        kept: Post | None = post
        for each in self.plugins:
            asked = each.on_file if whole else each.on_part
            if asked is not None and kept is not None:
                kept = asked(kept, Path(place))
        return kept


def _through(value: T, asked: Iterable[Callable[[T], T | None] | None]) -> T | None:
    kept: T | None = value
    for ask in asked:
        if ask is not None and kept is not None:
            kept = ask(kept)
    return kept
