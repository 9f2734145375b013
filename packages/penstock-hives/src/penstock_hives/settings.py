"""Settings of the hives application."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from penstock.core.config import data_home


class HivesSettings(BaseSettings):
    """From the environment as `PENSTOCK_HIVES_DATABASE`, or given by name."""

    model_config = SettingsConfigDict(
        env_prefix="PENSTOCK_HIVES_",
        extra="ignore",
        frozen=True,
        use_attribute_docstrings=True,
    )

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
    rate_counts: Path | None = None
    """The file in which workers share request counts; without it each worker counts alone."""
