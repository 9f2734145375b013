"""`post` announces files once; `watch` announces them as they change."""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from stat import S_ISDIR

from penstock.core.errors import ConfigurationError
from penstock_pump.components.factory import (
    ComponentFactory,
    base_dir,
    base_url,
    open_component_factory,
    post_filter,
    selection,
)
from penstock_pump.components.vip import while_vip
from penstock_pump.config.settings import PumpSettings
from penstock_pump.files.target import read_inflight
from penstock_pump.flow.consumer import ConsumerCounters
from penstock_pump.flow.publisher import BulkPostPublisher
from penstock_pump.names import user_of
from penstock_pump.plugins import Plugin
from penstock_pump.poster.description import FileDescriber
from penstock_pump.poster.poster import FilePoster, PostCounts
from penstock_pump.poster.tree import PostedTree, walk
from penstock_pump.poster.watcher import TreeWatcher, WatchOptions
from penstock_pump.posts.checksums import ChecksumMethods
from penstock_pump.selection import PostSelection, SelectionClause
from penstock_pump.status import ComponentControl


async def post(settings: PumpSettings, plugins: Sequence[Plugin] = ()) -> PostCounts:
    """Announce files and the contents of directories; returns when the broker has confirmed
    all posts."""
    async with open_component_factory(settings, plugins) as factory:
        poster = await make_poster(factory, await factory.bulk())

        def files() -> Iterator[Path]:
            for path in _paths(settings):
                yield from walk(
                    path, recursive=settings.recursive, follow_links=settings.follow_links
                )

        return await poster.announce_all(old_enough(files(), settings.min_age))


def old_enough(paths: Iterator[Path], min_age: float) -> Iterator[Path]:
    """The paths; files that have changed within `min_age` seconds come last, when they have not
    changed for so long. Blocking."""
    if min_age <= 0:
        yield from paths
        return
    young: deque[Path] = deque()
    for path in paths:
        if _seconds_until(path, min_age) > 0:
            young.append(path)
        else:
            yield path
    while young:
        path = young.popleft()
        if (seconds := _seconds_until(path, min_age)) > 0:
            time.sleep(seconds)
            young.append(path)
        else:
            yield path


def _seconds_until(path: Path, min_age: float) -> float:
    try:
        status = path.lstat()
    except OSError:
        return 0.0  # its description fails, with a reason
    age = time.time() - status.st_mtime
    return 0.0 if S_ISDIR(status.st_mode) or age < 0 else min_age - age


@while_vip
async def watch(
    settings: PumpSettings, control: ComponentControl | None = None, plugins: Sequence[Plugin] = ()
) -> None:
    """Announce what changes below directories."""
    control = control or ComponentControl()
    watch_options = WatchOptions(
        settings.recursive, settings.min_age, settings.rescan, settings.existing
    )
    async with open_component_factory(settings, plugins) as factory:
        poster = await make_poster(factory, counters=control.counters)
        factory.warn_plugins(control.stop)
        tasks: dict[asyncio.Task[None], asyncio.Event] = {}
        for number, path in enumerate(_paths(settings)):
            file = await asyncio.to_thread(factory.state, f"tree_{number:02d}.db")
            tree = await asyncio.to_thread(PostedTree, file)
            factory.stack.callback(tree.close)
            ready = asyncio.Event()
            watcher = TreeWatcher(path, poster, tree, watch_options, factory.plugins.on_watch)
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


async def make_poster(
    factory: ComponentFactory,
    bulk: BulkPostPublisher | None = None,
    counters: ConsumerCounters | None = None,
    settings: PumpSettings | None = None,
) -> FilePoster:
    """`settings` are the factory's, if not given."""
    settings = settings or factory.settings
    sums = ChecksumMethods.installed()
    sums.check(settings.sum.partition(",")[0])
    url = settings.post_broker or settings.broker
    describer = FileDescriber(
        base_url(settings),
        base_dir(settings).absolute(),
        sum=settings.sum,
        block_size=None if settings.blocksize == 1 else settings.blocksize,
        block_method=settings.partition,
        preserve_mode=settings.preserve_mode,
        preserve_times=settings.preserve_time,
        folders=settings.folders,
        follow_links=settings.follow_links,
        real_path=settings.real_path,
        randomize=settings.randomize,
        rename=settings.rename,
        inline=settings.inline,
        inline_encoding=settings.inline_encoding,
        source=settings.source or user_of(url),
        from_cluster=settings.cluster,
        to_clusters=settings.to_clusters,
        sums=sums,
    )
    return FilePoster(
        describer,
        await factory.post_publisher(),
        selection=_selection(settings),
        post_filter=replace(post_filter(settings), message_age_max=0.0, clusters=frozenset()),
        rate=settings.message_rate_max,
        dry_run=settings.dry_run,
        duplicate_filter=await factory.duplicate_filter() if settings.suppress_duplicates else None,
        plugins=factory.plugins,
        bulk=bulk,
        counters=counters,
    )


def _selection(settings: PumpSettings) -> PostSelection:
    """With `inflight` set, files whose names tell that they are not complete are left out."""
    chosen = selection(settings)
    if "inflight" not in settings.model_fields_set or settings.inflight.lower() in ("none", "off"):
        return chosen
    name = read_inflight(settings.inflight)
    folder = f"{re.escape(name.folder.strip('/'))}/" if name.folder else ""
    pattern = f".*/{folder}{re.escape(name.prefix)}[^/]*{re.escape(name.suffix)}$"
    in_flight = SelectionClause(False, re.compile(pattern), chosen.placement)
    return replace(chosen, clauses=[in_flight, *chosen.clauses], unmatched=_takes_rest(chosen))


def _takes_rest(chosen: PostSelection) -> bool:
    """Without clauses every file is taken."""
    return chosen.unmatched or not chosen.clauses


def _paths(settings: PumpSettings) -> list[Path]:
    if not settings.path:
        raise ConfigurationError(f"{settings.component} needs a path to announce")
    for path in settings.path:
        if not path.exists() and not path.is_symlink():
            raise ConfigurationError(f"{path} does not exist")
    return [path.absolute() for path in settings.path]
