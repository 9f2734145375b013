"""Names by Sarracenia's conventions: exchanges by user, lasting queues, state directories."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from random import SystemRandom
from typing import Final
from urllib.parse import unquote, urlsplit

from penstock.core.errors import ConfigurationError
from penstock_pump.config.dialect import Dialect
from penstock_pump.config.settings import Component, PumpSettings
from penstock_pump.credentials import ANONYMOUS

PUBLIC: Final = "xpublic"
REPORTS: Final = "xreport"
#: The stream of archived posts and reports, which the lake reads.
ANNOUNCEMENT_STREAM: Final = "announcements"
#: Components whose queue name is random; the others' follow from the configuration.
_SECRET: Final = (Component.SUBSCRIBE, Component.REPORT, Component.FLOW)


def user_of(url: str) -> str:
    return unquote(urlsplit(url).username or "") or "guest"


def host_of(url: str) -> str:
    return urlsplit(url).hostname or "localhost"


def subscribed_exchange(settings: PumpSettings) -> str:
    exchange = settings.exchange
    if exchange is None:
        user = user_of(settings.broker)
        own = f"xs_{user}"
        # In sr3 users read what they write. So does a report, which reads what a subscriber of the
        # same user writes.
        reads_own = settings.dialect is Dialect.SR3 and user != ANONYMOUS
        if settings.exchange_suffix is not None:
            exchange = f"{own}_{settings.exchange_suffix}"
        else:
            exchange = own if reads_own or settings.component is Component.REPORT else PUBLIC
    return exchange + split_suffix(settings)


def split_suffix(settings: PumpSettings) -> str:
    """Each instance consumes from one of several exchanges that share the work."""
    split = settings.exchange_split
    return f"{(settings.instance - 1) % split:02d}" if split else ""


def posted_exchange(settings: PumpSettings, url: str) -> str:
    if settings.post_exchange is not None:
        return settings.post_exchange
    own = f"xs_{user_of(url)}"
    if settings.post_exchange_suffix is not None:
        return f"{own}_{settings.post_exchange_suffix}"
    posters = (Component.POST, Component.WATCH, Component.POLL)
    return own if settings.dialect is Dialect.SR3 or settings.component in posters else PUBLIC


def state_folder(settings: PumpSettings) -> Path:
    if settings.state is not None:
        return settings.state
    home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    home = home / "penstock" / "pump"
    if settings.state_host:
        home /= settings.hostname or os.uname().nodename
    return home / settings.component.value / settings.name


def queue_file(settings: PumpSettings) -> Path:
    """The file with the random name of a queue."""
    name = f"{settings.component}.{settings.name}.{user_of(settings.broker)}"
    name += split_suffix(settings)
    if settings.queue is not None:  # a template: a configuration may have several
        name += f".{zlib.crc32(settings.queue.encode()):08x}"
    return state_folder(settings) / f"{name}.qname"


def queue_name(settings: PumpSettings) -> str:
    """The queue that all instances share, chosen at the first start and stored. Its name begins
    with `q_` and the user, as brokers set up for Sarracenia require. Instances with exchanges of
    their own have queues of their own."""
    user = user_of(settings.broker)
    if settings.queue is not None and "${RAND8}" not in settings.queue:
        return settings.queue + split_suffix(settings)
    plain = f"q_{user}.{settings.component}.{settings.name}"
    if settings.queue is None and settings.exchange_split:
        return f"{plain}{split_suffix(settings)}"
    if settings.queue is None and settings.component not in _SECRET:
        return plain
    file = queue_file(settings)
    file.parent.mkdir(parents=True, exist_ok=True)
    random = SystemRandom()
    parts = [f"{random.randrange(10**8):08d}" for _ in range(2)]
    if settings.queue is None:
        name = ".".join((plain, *parts))
    else:
        name = settings.queue.replace("${RAND8}", parts[0])
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    temporary.write_text(name + "\n")
    try:
        os.link(temporary, file)  # atomic: the first instance decides
    except FileExistsError:
        name = file.read_text().strip()
    finally:
        temporary.unlink()
    if not name:
        raise ConfigurationError(f"{file} is empty: remove it to create a new queue")
    return name
