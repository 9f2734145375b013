"""Plugins: a site's own functions, called at fixed points of a component.

Plugins are passed to a component, or named in its configuration (`plugins =
["mysite.pump:lowercase"]`), and called in order. Each may change its argument. One that returns
None stops the processing: the post is rejected, not announced, or not reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from penstock.core.errors import ConfigurationError
from penstock_pump.files.target import LocalTarget
from penstock_pump.posts.post import Post
from penstock_pump.posts.reports import PostOutcome, PostReport

T = TypeVar("T")

OnPost = Callable[[Post], Post | None]
OnArrival = Callable[[Post, Path], Post | None]
OnReport = Callable[[PostReport], PostReport | None]


@dataclass(frozen=True, slots=True)
class Plugin:
    on_message: OnPost | None = None  #: a post was accepted
    on_part: OnArrival | None = None  #: a block was written
    on_file: OnArrival | None = None  #: a file is complete, and not announced yet
    on_post: OnPost | None = None  #: a post is about to be published
    on_report: OnReport | None = None


def load_plugins(names: Iterable[str]) -> list[Plugin]:
    """Plugins by `module:name`."""
    return [_load_plugin(name) for name in names]


def _load_plugin(name: str) -> Plugin:
    module, _, attribute = name.partition(":")
    try:
        plugin = getattr(import_module(module), attribute)
    except (ImportError, ValueError, AttributeError) as error:
        raise ConfigurationError(f"plugin {name!r}, as module:name: {error}") from error
    if not isinstance(plugin, Plugin):
        raise ConfigurationError(f"plugin {name!r} is not a Plugin, but {type(plugin).__name__}")
    return plugin


@dataclass(frozen=True, slots=True)
class Plugins:
    plugins: Sequence[Plugin] = ()

    def message(self, post: Post) -> Post | None:
        return _chain(post, (each.on_message for each in self.plugins))

    def post(self, post: Post) -> Post | None:
        return _chain(post, (each.on_post for each in self.plugins))

    def report(self, report: PostReport) -> PostReport | None:
        return _chain(report, (each.on_report for each in self.plugins))

    async def changed(self, post: Post) -> Post | None:
        """An accepted post without a file of its own here."""
        return self.message(post)

    async def accept(self, post: Post, target: LocalTarget) -> tuple[Post, LocalTarget] | None:
        """The post and the path of its file, as the plugins change them."""
        accepted = self.message(post)
        return None if accepted is None else (accepted, target)

    async def send(self, post: Post, remote: str) -> PostOutcome | None:
        """The outcome, if a plugin sends the file itself."""
        return None

    async def file(self, post: Post, path: str, *, whole: bool) -> Post | None:
        result: Post | None = post
        for each in self.plugins:
            hook = each.on_file if whole else each.on_part
            if hook is not None and result is not None:
                result = hook(result, Path(path))
        return result


def _chain(value: T, hooks: Iterable[Callable[[T], T | None] | None]) -> T | None:
    result: T | None = value
    for hook in hooks:
        if hook is not None and result is not None:
            result = hook(result)
    return result
