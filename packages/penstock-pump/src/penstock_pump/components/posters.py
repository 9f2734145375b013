"""`post` announces files once; `watch` announces them as they change."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.core.errors import ConfigurationError
from penstock_pump.components.factory import (
    ComponentFactory,
    base_url,
    open_component_factory,
    selection,
)
from penstock_pump.config.settings import PumpSettings
from penstock_pump.flow.consumer import ConsumerCounters
from penstock_pump.flow.publisher import BulkPostPublisher
from penstock_pump.plugins import Plugin
from penstock_pump.poster.description import FileDescriber
from penstock_pump.poster.poster import FilePoster, PostCounts
from penstock_pump.poster.tree import PostedTree, walk
from penstock_pump.poster.watcher import TreeWatcher, WatchOptions
from penstock_pump.posts.checksums import ChecksumMethods
from penstock_pump.status import ComponentControl


async def post(settings: PumpSettings, plugins: Sequence[Plugin] = ()) -> PostCounts:
    """Announce files and the contents of directories; returns when the broker has confirmed
    all posts."""
    async with open_component_factory(settings, plugins) as factory:
        poster = await _poster(factory, await factory.bulk())

        def files() -> Iterator[Path]:
            for path in _paths(settings):
                yield from walk(path, recursive=settings.recursive)

        return await poster.announce_all(files())


async def watch(
    settings: PumpSettings, control: ComponentControl | None = None, plugins: Sequence[Plugin] = ()
) -> None:
    """Announce what changes below directories."""
    control = control or ComponentControl()
    watch_options = WatchOptions(
        settings.recursive, settings.min_age, settings.rescan, settings.existing
    )
    async with open_component_factory(settings, plugins) as factory:
        poster = await _poster(factory, counters=control.counters)
        tasks: dict[asyncio.Task[None], asyncio.Event] = {}
        for number, path in enumerate(_paths(settings)):
            file = await asyncio.to_thread(factory.state, f"tree_{number:02d}.db")
            tree = await asyncio.to_thread(PostedTree, file)
            factory.stack.callback(tree.close)
            ready = asyncio.Event()
            watcher = TreeWatcher(path, poster, tree, watch_options)
            tasks[asyncio.create_task(watcher.run(control.stop, ready))] = ready
        try:
            for task, ready in tasks.items():  # or the task has failed
                waiting = asyncio.create_task(ready.wait())
                await asyncio.wait([waiting, task], return_when=asyncio.FIRST_COMPLETED)
                waiting.cancel()
            control.ready.set()
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _poster(
    factory: ComponentFactory,
    bulk: BulkPostPublisher | None = None,
    counters: ConsumerCounters | None = None,
) -> FilePoster:
    settings = factory.settings
    sums = ChecksumMethods.installed()
    sums.check(settings.sum.partition(",")[0])
    describer = FileDescriber(
        base_url(settings),
        (settings.post_base_dir or settings.base_dir or Path("/")).absolute(),
        sum=settings.sum,
        block_size=None if settings.blocksize == 1 else settings.blocksize,
        block_method=settings.partition,
        preserve_mode=settings.preserve_mode,
        preserve_times=settings.preserve_time,
        folders=settings.folders,
        inline=settings.inline,
        source=settings.source,
        to_clusters=settings.to_clusters,
        sums=sums,
    )
    return FilePoster(
        describer,
        await factory.post_publisher(),
        selection=selection(settings),
        events=settings.events,
        duplicate_filter=await factory.duplicate_filter(),
        plugins=factory.plugins,
        bulk=bulk,
        counters=counters,
    )


def _paths(settings: PumpSettings) -> list[Path]:
    if not settings.path:
        raise ConfigurationError(f"{settings.component} needs a path to announce")
    for path in settings.path:
        if not path.exists() and not path.is_symlink():
            raise ConfigurationError(f"{path} does not exist")
    return [path.absolute() for path in settings.path]
