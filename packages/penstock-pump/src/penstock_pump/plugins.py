"""Plugins: a site's own functions, called at fixed points of a component.

Plugins are passed to a component, or named in its configuration (`plugins =
["mysite.pump:lowercase"]`), and called in order. Each may change its argument. One that returns
None stops the processing: the post is rejected, not announced, or not reported. Plugins written for
Sarracenia are loaded by `callbacks/`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from penstock.core.errors import ConfigurationError
from penstock_pump.callbacks.flow_callbacks import (
    FlowCallbacks,
    gathering_callbacks,
    load_callbacks,
)
from penstock_pump.callbacks.v2_plugins import V2Plugins
from penstock_pump.config.settings import PumpSettings
from penstock_pump.credentials import PumpCredentials
from penstock_pump.errors import SourceUnavailable
from penstock_pump.files.target import LocalTarget
from penstock_pump.posts.post import Post
from penstock_pump.posts.reports import DONE, PostOutcome, PostReport
from penstock_pump.transports.listing import IndexReader, ListedFile, read_index

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


def load_plugins(
    settings: PumpSettings,
    given: Sequence[Plugin] = (),
    credentials: PumpCredentials | None = None,
) -> Plugins:
    """Plugins by `module:name`; sr3's by `callback NAME`; v2's by `on_message FILE` and so on."""
    own: list[Plugin] = []
    callbacks: list[str] = []
    v2: V2Plugins | None = None
    for name in settings.plugins:
        word, blank, rest = name.partition(" ")
        if not blank:
            own.append(_load_plugin(name))
        elif word == "callback":
            callbacks.append(rest.strip())
        else:
            v2 = v2 or V2Plugins(settings)
            instead = v2.load(word, rest, settings.plugin_path)
            callbacks += [] if instead is None else [instead]
    loaded = load_callbacks(callbacks, settings, settings.plugin_path, credentials)
    return Plugins([*own, *given], loaded, v2)


def gathers_posts(settings: PumpSettings) -> bool:
    """Whether a plugin of sr3 finds posts by itself."""
    callbacks = (name.partition(" ")[::2] for name in settings.plugins)
    names = [name.strip() for word, name in callbacks if word == "callback"]
    return gathering_callbacks(names, settings.plugin_path)


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
    callbacks: FlowCallbacks | None = None  #: written for sr3
    v2: V2Plugins | None = None  #: written for v2

    def read(self, post: Post) -> list[Post]:
        """What plugins make of a post before patterns are compared with it. Blocking."""
        if self.callbacks is None or not self.callbacks.has("after_gather"):
            return [post]
        return self.callbacks.receive(post)

    async def received(self, post: Post) -> list[Post]:
        """As `read`, on the event loop."""
        if self.callbacks is None or not self.callbacks.has("after_gather"):
            return [post]
        return await asyncio.to_thread(self.callbacks.receive, post)

    def message(self, post: Post) -> list[Post]:
        """What plugins make of an accepted post without a file of its own here: one, none, or
        several. Blocking, if there are plugins of Sarracenia."""
        accepted = _chain(post, (each.on_message for each in self.plugins))
        if accepted is None:
            return []
        if not self._has_foreign:
            return [accepted]
        return [each for each, _ in self._foreign_accept(accepted, None)]

    def post(self, post: Post) -> Post | None:
        announced = _chain(post, (each.on_post for each in self.plugins))
        if announced is None or self.v2 is None:
            return announced
        found = self.v2.message("on_post", announced, None)
        return None if found is None else found[0]

    async def report(self, report: PostReport) -> PostReport | None:
        changed = _chain(report, (each.on_report for each in self.plugins))
        if changed is None or self.v2 is None or not self.v2.handles("on_report"):
            return changed
        return await asyncio.to_thread(self.v2.report, changed)

    async def changed(self, post: Post) -> list[Post]:
        """As `message`, on the event loop."""
        if self._has_foreign:
            return await asyncio.to_thread(self.message, post)
        return self.message(post)

    async def renamed(self, script: str, post: Post, target: LocalTarget) -> LocalTarget:
        """The file's path as `destfn` of a plugin names it."""
        if self.callbacks is None:
            raise ConfigurationError(f"DESTFNSCRIPT={script}: there is no such plugin")
        return await asyncio.to_thread(self.callbacks.file_name, script, post, target)

    @property
    def on_posted(self) -> Callable[[Post], Awaitable[None]] | None:
        """To call with each post that was published, if there is a plugin for it."""
        callbacks = self.callbacks
        if callbacks is None or not (callbacks.has("post") or callbacks.has("after_post")):
            return None

        async def posted(post: Post) -> None:
            await asyncio.to_thread(callbacks.posted, post)

        return posted

    @property
    def on_outcome(self) -> Callable[[Post, PostOutcome], Awaitable[None]] | None:
        """To call with what became of each post, if there is a plugin for it."""
        if (callbacks := self.callbacks) is None or not callbacks.has("report"):
            return None

        async def tell(post: Post, outcome: PostOutcome) -> None:
            await asyncio.to_thread(callbacks.report, post, outcome.code, outcome.message)

        return tell

    async def warn_of_stop(self, stop: asyncio.Event) -> None:
        """Tells plugins that wait when the component is about to stop."""
        await stop.wait()
        if self.callbacks is not None:
            await asyncio.to_thread(self.callbacks.warn_of_stop)

    @property
    def on_watch(self) -> Callable[[], Awaitable[bool]] | None:
        """To call before changes of a tree are announced, if there is a plugin for it; False: they
        are to wait."""
        if (v2 := self.v2) is None or not v2.handles("on_watch"):
            return None

        async def takes_changes() -> bool:
            return await asyncio.to_thread(v2.takes_changes)

        return takes_changes

    @property
    def gathers(self) -> bool:
        """Whether a plugin of a poll finds posts by itself."""
        return (self.callbacks is not None and self.callbacks.gathers) or (
            self.v2 is not None and self.v2.handles("do_poll")
        )

    @property
    def gathers_often(self) -> bool:
        """Whether one has a schedule of its own, or a queue."""
        return self.callbacks is not None and self.callbacks.has("gather")

    def gathered(self, url: str, *, is_due: bool) -> list[Post]:
        """The posts that plugins find by themselves; `url` is that of the poll. Blocking."""
        posts: list[Post] = []
        if self.callbacks is not None:
            posts += self.callbacks.gathered(poll=is_due)
        if is_due and self.v2 is not None and self.v2.handles("do_poll"):
            posts += self.v2.polled(url)
        return posts

    def announced(self, posts: Sequence[Post]) -> None:
        """Tells plugins that what they found is published. Blocking."""
        if self.callbacks is not None:
            self.callbacks.acknowledge(posts)

    @property
    def on_done(self) -> Callable[[Post], Awaitable[None]] | None:
        """To call with each post before it is acknowledged, if there is a plugin for it."""
        if (callbacks := self.callbacks) is None or not callbacks.has("ack"):
            return None

        async def done(post: Post) -> None:
            await asyncio.to_thread(callbacks.acknowledge, [post])

        return done

    def metrics(self) -> dict[str, dict[str, float]]:
        """Numbers of plugins, by plugin."""
        return {} if self.callbacks is None else self.callbacks.metrics()

    def listed(self, listed: ListedFile) -> ListedFile | None:
        """An entry of a listing as plugins change it; None if it is left out. Blocking."""
        found: ListedFile | None = listed
        if self.v2 is not None:
            found = self.v2.line(listed)
        if found is None or self.callbacks is None:
            return found
        return self.callbacks.read_line(found)

    @property
    def reads_listings(self) -> bool:
        return (self.callbacks is not None and self.callbacks.has("on_line")) or (
            self.v2 is not None and self.v2.handles("on_line")
        )

    @property
    def index_reader(self) -> IndexReader:
        """Reads index pages of HTTP servers, by a plugin if there is one for it."""
        if self.v2 is not None and self.v2.handles("on_html_page"):
            return self.v2.page
        return read_index if self.callbacks is None else self.callbacks.read_page

    async def accept(self, post: Post, target: LocalTarget) -> list[tuple[Post, LocalTarget]]:
        """The posts and the paths of their files, as the plugins change them."""
        accepted = _chain(post, (each.on_message for each in self.plugins))
        if accepted is None:
            return []
        if not self._has_foreign:
            return [(accepted, target)]
        found = await asyncio.to_thread(self._foreign_accept, accepted, target)
        return [(each, path or target) for each, path in found]

    @property
    def _has_foreign(self) -> bool:
        return self.callbacks is not None or self.v2 is not None

    def _foreign_accept(
        self, post: Post, target: LocalTarget | None
    ) -> list[tuple[Post, LocalTarget | None]]:
        found: tuple[Post, LocalTarget | None] | None = (post, target)
        if self.v2 is not None:
            found = self.v2.message("on_message", post, target)
        if found is None:
            return []
        return [found] if self.callbacks is None else self.callbacks.accept(*found)

    async def download(self, post: Post, target: LocalTarget) -> PostOutcome | None:
        """The outcome, if a plugin downloads the file itself."""
        return await self._transfer("download", post, target)

    async def send(self, post: Post, target: LocalTarget) -> PostOutcome | None:
        """The outcome, if a plugin sends the file itself."""
        return await self._transfer("send", post, target)

    async def _transfer(self, method: str, post: Post, target: LocalTarget) -> PostOutcome | None:
        if not self._has_foreign:
            return None
        done = await asyncio.to_thread(self._foreign_transfer, method, post, target)
        return None if done is None else PostOutcome(DONE, "by a plugin", done, target.full_path)

    def _foreign_transfer(self, method: str, post: Post, target: LocalTarget) -> Post | None:
        if self.v2 is not None and self.v2.handles(f"do_{method}"):
            if self.v2.message(f"do_{method}", post, target) is None:
                raise SourceUnavailable(f"a plugin could not {method} the file")
            return post
        return None if self.callbacks is None else self.callbacks.transfer(method, post, target)

    async def file(self, post: Post, path: str, *, whole: bool) -> Post | None:
        result: Post | None = post
        for each in self.plugins:
            hook = each.on_file if whole else each.on_part
            if hook is not None and result is not None:
                result = hook(result, Path(path))
        if result is None or not self._has_foreign:
            return result
        return await asyncio.to_thread(self._foreign_file, result, path, whole)

    def _foreign_file(self, post: Post, path: str, whole: bool) -> Post | None:
        folder, _, name = path.rpartition("/")
        found: Post | None = post
        if self.v2 is not None:
            event = "on_file" if whole else "on_part"
            changed = self.v2.message(event, post, LocalTarget(folder or ".", name))
            found = None if changed is None else changed[0]
        if found is None or self.callbacks is None:
            return found
        return self.callbacks.work(found, path)

    def notify(self, event: str) -> None:
        """`on_start`, `on_housekeeping`, `on_stop`, and those of actions. Blocking."""
        if self.v2 is not None:
            self.v2.notify("on_heartbeat" if event == "on_housekeeping" else event)
        if self.callbacks is not None:
            self.callbacks.notify(event)


def _chain(value: T, hooks: Iterable[Callable[[T], T | None] | None]) -> T | None:
    result: T | None = value
    for hook in hooks:
        if hook is not None and result is not None:
            result = hook(result)
    return result
