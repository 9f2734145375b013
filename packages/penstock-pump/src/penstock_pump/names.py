"""Names Sarracenia's conventions give: exchanges by user, queues that last, where state is kept."""

from __future__ import annotations

import os
from pathlib import Path
from random import SystemRandom
from typing import Final
from urllib.parse import unquote, urlsplit

from penstock.core.errors import ConfigurationError
from penstock_pump.config.settings import Component, PumpSettings

PUBLIC: Final = "xpublic"
REPORTS: Final = "xreport"
#: Their queues have names nobody can guess; the others' are told by their configuration.
_SECRET: Final = (Component.SUBSCRIBE, Component.REPORT)


def user_of(url: str) -> str:
    return unquote(urlsplit(url).username or "") or "guest"


def host_of(url: str) -> str:
    return urlsplit(url).hostname or "localhost"


def subscribed_exchange(settings: PumpSettings) -> str:
    if settings.exchange is not None:
        return settings.exchange
    if settings.exchange_suffix is not None:
        return f"xs_{user_of(settings.broker)}_{settings.exchange_suffix}"
    return REPORTS if settings.component is Component.REPORT else PUBLIC


def posted_exchange(settings: PumpSettings, url: str) -> str:
    if settings.post_exchange is not None:
        return settings.post_exchange
    own = f"xs_{user_of(url)}"
    if settings.post_exchange_suffix is not None:
        return f"{own}_{settings.post_exchange_suffix}"
    if settings.component in (Component.POST, Component.WATCH):
        return own
    return PUBLIC


def state_folder(settings: PumpSettings) -> Path:
    if settings.state is not None:
        return settings.state
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "penstock" / "pump" / settings.component.value / settings.name


def queue_name(settings: PumpSettings) -> str:
    """The queue all instances share, chosen once and kept. One that a user chooses begins with
    theirs, as brokers set up for Sarracenia demand."""
    user = user_of(settings.broker)
    if settings.queue is not None:
        return settings.queue
    plain = f"q_{user}.{settings.component}.{settings.name}"
    if settings.component not in _SECRET:
        return plain
    kept = state_folder(settings) / f"{settings.component}.{settings.name}.{user}.qname"
    kept.parent.mkdir(parents=True, exist_ok=True)
    random = SystemRandom()
    chosen = f"{plain}.{random.randrange(10**8):08d}.{random.randrange(10**8):08d}"
    draft = kept.with_name(f".{kept.name}.{os.getpid()}")
    draft.write_text(chosen + "\n")
    try:
        os.link(draft, kept)  # whoever comes first decides, all at once
    except FileExistsError:
        chosen = kept.read_text().strip()
    finally:
        draft.unlink()
    if not chosen:
        raise ConfigurationError(f"{kept} is empty: remove it to have a new queue")
    return chosen
