"""Settings of the hives application, and how settings are read from the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from penstock.core.config import data_home
from penstock.core.errors import ConfigurationError
from penstock.core.settings_model import Field, SettingsError, build_settings, settings_model


class EnvironmentSettings(Protocol):
    """A settings class whose values may be in the environment, as `PREFIX` and the name."""

    PREFIX: ClassVar[str]


_Settings = TypeVar("_Settings", bound=EnvironmentSettings)


def read_settings(
    model: type[_Settings],
    given: Mapping[str, Any] | None = None,
    *,
    defaults: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] = os.environ,
) -> _Settings:
    """What is given, else what the environment has, else the defaults. Raises
    `ConfigurationError`."""
    names = [field.name for field in fields(model)]  # type: ignore[arg-type]
    variables = {name: f"{model.PREFIX}{name.upper()}" for name in names}
    found = {name: environ[key] for name, key in variables.items() if key in environ}
    try:
        return build_settings(model, {**(defaults or {}), **found, **(given or {})})
    except SettingsError as error:
        lines = [
            f"environment {variables[name]}: {each.text}"
            if (name := ".".join(each.location)) in found and name not in (given or {})
            else f"{name or model.__name__}: {each.text}"
            for each in error.problems
        ]
        raise ConfigurationError("\n".join(lines)) from error


@settings_model
class HivesSettings:
    """From the environment as `PENSTOCK_HIVES_DATABASE`, or given by name."""

    PREFIX: ClassVar = "PENSTOCK_HIVES_"

    database: str = "postgresql:///penstock"
    """The URL of PostgreSQL."""
    cache: str | None = None
    """memcached://host:port; without it each process has its own cache."""
    broker: str | None = None
    """The broker for sensor configuration, mqtt:// or amqp://; none: sensors are not configured."""
    management: str | None = None
    """The management API of the broker, http://admin:password@host:15672."""
    sensor_address: str = "mqtt://localhost:1883"
    """The broker address for sensors."""
    dashboards: str = "http://127.0.0.1:8080"
    """The URL of the dashboards, for links in mail."""
    images: Path = Field(default_factory=lambda: data_home() / "images")
    """The folder of images."""
    lake: str | None = None
    """The pipeline's lake, for reports of single sensors."""
    production: bool = False
    """Refuses everything that is for development only."""
    pool_size: int = Field(default=8, ge=1, le=100)
    """Database connections of one process."""
    pool_wait: float = Field(default=2.0, gt=0)
    """Seconds a request waits for a connection; then 503."""
    statement_seconds: float = Field(default=10.0, gt=0)
    """Time limit of an SQL statement, in seconds."""
    image_bytes: int = Field(default=8 * 1024 * 1024, ge=1024)
    """The maximum size of an image upload."""
    body_bytes: int = Field(default=256 * 1024, ge=1024)
    """The maximum size of other request bodies."""
    rate_known: float = Field(default=20.0, gt=0)
    """Requests a second of a signed-in caller."""
    rate_anonymous: float = Field(default=5.0, gt=0)
    """Requests a second of an anonymous address."""
    rate_burst: float = Field(default=10.0, ge=1)
    """Seconds of requests that may arrive at once."""
    rate_accounts: float = Field(default=60.0, gt=0)
    """Sign-ups and mails about passwords an hour from one address."""
    rate_counts: Path | None = None
    """The file in which workers share request counts; without it each worker counts alone."""
