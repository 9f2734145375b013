"""`poll`: lists the directories of a server, and announces its files. HTTP, FTP, SFTP, S3, file."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from penstock.core.errors import ConfigurationError
from penstock_pump.components.factory import open_component_factory
from penstock_pump.components.posters import make_poster
from penstock_pump.components.vip import while_vip
from penstock_pump.config.settings import PumpSettings
from penstock_pump.credentials import without_secret
from penstock_pump.duplicates import FingerprintStore
from penstock_pump.names import user_of
from penstock_pump.plugins import Plugin
from penstock_pump.poster.poller import Poller, PollRules, PollSchedule
from penstock_pump.status import ComponentControl
from penstock_pump.transports.access import HostRule
from penstock_pump.variables import expand_now

#: How long a file is remembered where `suppress_duplicates` is off.
DEFAULT_MEMORY_SECONDS = 7 * 3600.0
#: Between two calls of a plugin's `gather`.
GATHER_SECONDS = 1.0


@while_vip
async def poll(
    settings: PumpSettings, control: ComponentControl | None = None, plugins: Sequence[Plugin] = ()
) -> None:
    """Announce new and changed files of a server."""
    control = control or ComponentControl()
    schedule = poll_schedule(settings)
    async with open_component_factory(settings, plugins) as factory:
        settings = factory.settings  # plugins may have changed them
        loaded = factory.plugins
        if settings.poll_url is None and not loaded.gathers:
            raise ConfigurationError("poll needs poll_url: the directory of a server")
        path = await asyncio.to_thread(factory.state, f"seen_{settings.instance:02d}.db")
        memory = settings.suppress_duplicates or DEFAULT_MEMORY_SECONDS
        seen = await asyncio.to_thread(FingerprintStore, path, memory, time.time)
        factory.stack.push_async_callback(seen.close)
        url = settings.post_broker or settings.broker
        base = settings.post_base_url or without_secret(settings.poll_url or "file:")
        with_base = settings.model_copy(
            update={"post_base_url": base, "suppress_duplicates": None, "folders": False}
        )
        poster = await make_poster(factory, settings=with_base, counters=control.counters)
        rules = PollRules(
            settings.poll_url or "",
            base.rstrip("/") + "/",
            poll_paths(settings),
            settings.recursive,
            settings.min_age,
            settings.sum,
            settings.source or user_of(url),
            settings.cluster,
            settings.to_clusters,
        )
        transports = factory.transports(HostRule(private=True))  # the site itself chose the server
        poller = Poller(
            rules,
            transports,
            poster,
            seen,
            lambda text: expand_now(settings, text),
            loaded.listed if loaded.reads_listings else None,
        )
        control.plugin_metrics = loaded.metrics
        factory.warn_plugins(control.stop)
        control.ready.set()
        due = 0.0
        while not control.stop.is_set():
            is_due = time.time() >= due
            if loaded.gathers:  # the plugin lists, not we
                url = settings.poll_url or ""
                found = await asyncio.to_thread(loaded.gathered, url, is_due=is_due)
                for each in found:
                    if settings.suppress_duplicates:
                        await poller.announce_new(each)
                    else:
                        await poster.announce(each)
                await poster.flush()
                if found:
                    await asyncio.to_thread(loaded.announced, found)
            else:
                await poller.poll()
            await seen.expire_old()
            if is_due:
                due = time.time() + schedule.seconds_until_next(time.time())
            pause = GATHER_SECONDS if loaded.gathers_often else due - time.time()
            await _wait(control.stop, pause)


def poll_paths(settings: PumpSettings) -> list[str]:
    """sr3 lists each `path`; v2 lists each `directory` above a pattern."""
    if settings.path:
        return [str(path) for path in settings.path]
    folders = [rule.directory for rule in settings.select if rule.directory not in (None, ".")]
    if not folders and settings.directory != ".":
        folders = [settings.directory]
    return list(dict.fromkeys(folder or "" for folder in folders)) or [""]


def poll_schedule(settings: PumpSettings) -> PollSchedule:
    try:
        times = [each.partition(":")[::2] for each in settings.scheduled_time]
        return PollSchedule(
            settings.scheduled_interval or settings.sleep,
            [int(each) for each in settings.scheduled_hour],
            [int(each) for each in settings.scheduled_minute],
            [(int(hour), int(minute)) for hour, minute in times],
        )
    except ValueError as error:
        raise ConfigurationError(
            f"scheduled_hour and _minute should be numbers, scheduled_time as 06:30: {error}"
        ) from None


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return
