"""post and watch: files announced once, or for good as they change."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

from penstock.core.errors import ConfigurationError
from penstock.pump.components.control import Control
from penstock.pump.components.readings import base_url, selection
from penstock.pump.components.workshop import Workshop, open_workshop
from penstock.pump.config.settings import PumpSettings
from penstock.pump.flow.bulk import Bulk
from penstock.pump.flow.consumer import Tally
from penstock.pump.plugins import Plugin
from penstock.pump.posting.describing import Description
from penstock.pump.posting.posting import Posted, Posting
from penstock.pump.posting.tree import Tree
from penstock.pump.posting.walking import walk
from penstock.pump.posting.watching import Manner, Watching
from penstock.pump.posts.sums import Sums


async def post(settings: PumpSettings, plugins: Sequence[Plugin] = ()) -> Posted:
    """Announce files, and what is in directories, once; returns when all of it is safe."""
    async with open_workshop(settings, plugins) as shop:
        posting = await _posting(shop, await shop.bulk())

        def files() -> Iterator[Path]:
            for path in _paths(settings):
                yield from walk(path, recursive=settings.recursive)

        return await posting.announce_all(files())


async def watch(
    settings: PumpSettings, control: Control | None = None, plugins: Sequence[Plugin] = ()
) -> None:
    """Announce what changes below directories, until told to stop."""
    control = control or Control()
    manner = Manner(settings.recursive, settings.min_age, settings.rescan, settings.existing)
    async with open_workshop(settings, plugins) as shop:
        posting = await _posting(shop, tally=control.tally)
        trees, watches, stands = [], [], []
        for number, path in enumerate(_paths(settings)):
            file = await asyncio.to_thread(shop.state, f"tree_{number:02d}.db")
            tree = await asyncio.to_thread(Tree, file)
            trees.append(tree)
            ready = asyncio.Event()
            stands.append(ready)
            watching = Watching(path, posting, tree, manner)
            watches.append(asyncio.create_task(watching.run(control.stop, ready)))
        try:
            await _all_ready(stands, watches)
            control.ready.set()
            await asyncio.gather(*watches)
        finally:
            for task in watches:
                task.cancel()
            await asyncio.gather(*watches, return_exceptions=True)
            for tree in trees:
                tree.close()


async def _all_ready(
    stands: Sequence[asyncio.Event], watches: Sequence[asyncio.Task[None]]
) -> None:
    """Returns when all watches stand; a watch that ends before that says why."""
    for ready, watch in zip(stands, watches, strict=True):
        waiting = asyncio.create_task(_wait(ready))
        await asyncio.wait([waiting, watch], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()


async def _wait(ready: asyncio.Event) -> None:
    await ready.wait()


async def _posting(shop: Workshop, bulk: Bulk | None = None, tally: Tally | None = None) -> Posting:
    settings = shop.settings
    sums = Sums.installed()
    sums.check(settings.sum.partition(",")[0])
    description = Description(
        base_url(settings),
        (settings.post_base_dir or settings.base_dir or Path("/")).absolute(),
        sum=settings.sum,
        block_size=None if settings.blocksize == 1 else settings.blocksize,
        block_method=settings.partition,
        keep_mode=settings.preserve_mode,
        keep_times=settings.preserve_time,
        folders=settings.folders,
        inline=settings.inline,
        source=settings.source,
        to_clusters=settings.to_clusters,
        sums=sums,
    )
    return Posting(
        description,
        await shop.announcing(),
        selection=selection(settings),
        events=settings.events,
        suppression=await shop.suppression(),
        plugins=shop.plugins,
        bulk=bulk,
        tally=tally,
    )


def _paths(settings: PumpSettings) -> list[Path]:
    if not settings.path:
        raise ConfigurationError(f"{settings.component} needs a path: what to announce")
    for path in settings.path:
        if not path.exists() and not path.is_symlink():
            raise ConfigurationError(f"{path} is not there")
    return [path.absolute() for path in settings.path]
