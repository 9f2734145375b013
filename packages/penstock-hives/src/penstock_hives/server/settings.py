"""Settings of the server: listener, workers, time limits. Validated as a whole before use."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, IPvAnyNetwork

from penstock.core.config import LogSettings
from penstock_hives.server.access_log import AccessLogFormat

#: The exit status of a worker after a `ConfigurationError`.
CONFIGURATION_EXIT: Final = 2
#: What a worker writes to the master: when it serves, and then at intervals with its metrics.
READY: Final = "ready"
HEARTBEAT: Final = "beat"


def _cores() -> int:
    return len(os.sched_getaffinity(0))


class EngineSettings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    application: str = Field(pattern=r"^[\w.]+:\w+$")
    """The application, as module:factory; the factory gets the options and the drain event."""
    options: dict[str, Any] = {}
    """Options of the application."""
    host: str = "127.0.0.1"
    """The address to listen on."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    """The port; 0 lets the system choose."""
    certificate: Path | None = None
    """The certificate chain for HTTPS, a PEM file. Without it the server speaks HTTP."""
    key: Path | None = None
    """The private key of the certificate, if it is in another file."""
    trusted_proxies: list[IPvAnyNetwork] = []
    """Reverse proxies, as addresses or networks. Of their requests, the client address is the last
    of X-Forwarded-For that is not one of them, and the scheme that of X-Forwarded-Proto."""
    workers: Annotated[int, Field(ge=1, le=256)] = Field(default_factory=_cores)
    """Worker processes; by default the number of cores."""
    backlog: Annotated[int, Field(ge=1, le=65535)] = 2048
    """The accept queue of the listening socket."""
    connections: Annotated[int, Field(ge=1)] = 20_000
    """Connections of one worker; beyond that requests get 503."""
    keep_alive: Annotated[float, Field(gt=0)] = 30.0
    """Seconds until an idle connection is closed."""
    header_timeout: Annotated[float, Field(gt=0)] = 10.0
    """Seconds for the headers of a request; then 408."""
    body_timeout: Annotated[float, Field(gt=0)] = 20.0
    """Seconds for the body, plus one for each `body_rate` bytes."""
    body_rate: Annotated[int, Field(ge=1)] = 4096
    """The minimum rate of a body, bytes a second."""
    linger: Annotated[float, Field(ge=0)] = 2.0
    """Seconds for which a draining worker leaves idle connections open."""
    drain: Annotated[float, Field(ge=0)] = 20.0
    """Seconds for running requests of a draining worker; then they are cancelled."""
    start: Annotated[float, Field(gt=0)] = 120.0
    """Seconds until a worker must be ready."""
    access_log: Path | None = None
    """The file of the access log. It may be rotated; without it there is none."""
    access_log_format: AccessLogFormat = "combined"
    """The lines of the access log: combined, as of Apache and nginx, or json."""
    silence: Annotated[float, Field(gt=0)] = 60.0
    """Seconds without heartbeat after which a worker is killed and replaced."""
    log: LogSettings = LogSettings()
    """Logging of the workers."""
