"""What the engine is told: where to listen, how many workers, how long things may take.

Declared as a whole and checked as a whole, before any of it is used: a reload with a mistake in it
changes nothing. `options` are the application's own; the engine hands them on unread.
"""

from __future__ import annotations

import os
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from penstock.core.config import LogSettings

_STRICT: Final = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


def _cores() -> int:
    return len(os.sched_getaffinity(0))


class EngineSettings(BaseModel):
    """One engine, declared."""

    model_config = _STRICT

    application: str = Field(pattern=r"^[\w.]+:\w+$")
    """What is served, as module:factory; the factory gets the options and the drain's event."""
    options: dict[str, Any] = {}
    """For the application."""
    host: str = "127.0.0.1"
    """The address to listen on."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    """The port; 0 lets the system choose."""
    workers: Annotated[int, Field(ge=1, le=256)] = Field(default_factory=_cores)
    """Processes that answer; as many as there are cores, unless told."""
    backlog: Annotated[int, Field(ge=1, le=65535)] = 2048
    """Connections that may wait to be accepted; the system refuses more."""
    connections: Annotated[int, Field(ge=1)] = 20_000
    """Connections one worker holds at a time; beyond them, a request gets 503."""
    keep_alive: Annotated[float, Field(gt=0)] = 30.0
    """Seconds an idle connection is kept."""
    header_timeout: Annotated[float, Field(gt=0)] = 10.0
    """Seconds a client has to send the headers of a request; then it gets 408."""
    body_timeout: Annotated[float, Field(gt=0)] = 20.0
    """The same for the body, and a second more for each `body_rate` bytes of it."""
    body_rate: Annotated[int, Field(ge=1)] = 4096
    """Bytes a second that a body has to come with in the long run."""
    linger: Annotated[float, Field(ge=0)] = 2.0
    """Seconds a draining worker leaves idle connections open: who asks again is told to go."""
    drain: Annotated[float, Field(ge=0)] = 20.0
    """Seconds a draining worker has for the requests at hand; then they are given up."""
    start: Annotated[float, Field(gt=0)] = 120.0
    """Seconds a worker may take to be ready."""
    silence: Annotated[float, Field(gt=0)] = 60.0
    """Seconds after which a worker whose loop stands still is killed and replaced."""
    log: LogSettings = LogSettings()
    """What the workers say about themselves."""
