"""Settings of the server: listener, workers, time limits. Validated as a whole before use."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from penstock.core.config import LogSettings, NetworkList
from penstock.core.settings_model import Field, settings_model
from penstock_hives.server.access_log import AccessLogFormat

#: The exit status of a worker after a `ConfigurationError`.
CONFIGURATION_EXIT: Final = 2
#: What a worker writes to the master: when it serves, and then at intervals with its metrics.
READY: Final = "ready"
HEARTBEAT: Final = "beat"


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def encode_settings(settings: Any) -> str:
    """As JSON in one line, of which `build_settings` makes the same."""
    return json.dumps(asdict(settings), default=str)


@settings_model
class EngineSettings:
    application: str = Field(pattern=r"[\w.]+:\w+")
    """The application, as module:factory; the factory gets the options and the drain event."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of the application."""
    host: str = "127.0.0.1"
    """The address to listen on."""
    port: int = Field(default=8000, ge=0, le=65535)
    """The port; 0 lets the system choose."""
    certificate: Path | None = None
    """The certificate chain for HTTPS, a PEM file. Without it the server speaks HTTP."""
    key: Path | None = None
    """The private key of the certificate, if it is in another file."""
    trusted_proxies: NetworkList = Field(default_factory=list)
    """Reverse proxies, as addresses or networks. Of their requests, the client address is the last
    of X-Forwarded-For that is not one of them, and the scheme that of X-Forwarded-Proto."""
    workers: int = Field(default_factory=_cores, ge=1, le=256)
    """Worker processes; by default the number of cores."""
    backlog: int = Field(default=2048, ge=1, le=65535)
    """The accept queue of the listening socket."""
    connections: int = Field(default=20_000, ge=1)
    """Connections of one worker; beyond that requests get 503."""
    keep_alive: float = Field(default=30.0, gt=0)
    """Seconds until an idle connection is closed."""
    header_timeout: float = Field(default=10.0, gt=0)
    """Seconds for the headers of a request; then 408."""
    body_timeout: float = Field(default=20.0, gt=0)
    """Seconds for the body, plus one for each `body_rate` bytes."""
    body_rate: int = Field(default=4096, ge=1)
    """The minimum rate of a body, bytes a second."""
    linger: float = Field(default=2.0, ge=0)
    """Seconds for which a draining worker leaves idle connections open."""
    drain: float = Field(default=20.0, ge=0)
    """Seconds for running requests of a draining worker; then they are cancelled."""
    start: float = Field(default=120.0, gt=0)
    """Seconds until a worker must be ready."""
    access_log: Path | None = None
    """The file of the access log. It may be rotated; without it there is none."""
    access_log_format: AccessLogFormat = "combined"
    """The lines of the access log: combined, as of Apache and nginx, or json."""
    silence: float = Field(default=60.0, gt=0)
    """Seconds without heartbeat after which a worker is killed and replaced."""
    log: LogSettings = LogSettings()
    """Logging of the workers."""
