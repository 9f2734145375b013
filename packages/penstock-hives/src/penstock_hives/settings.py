"""What an installation of the application is told, checked as a whole before anything is opened."""

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
    """The PostgreSQL that is the source of truth."""
    cache: str | None = None
    """memcached://host:port, or nothing for a cache in the process."""
    broker: str | None = None
    """The broker sensors are configured through, mqtt:// or amqp://; without one they are not."""
    management: str | None = None
    """The broker's management API with an administrator, http://user:password@host:15672."""
    sensor_address: str = "mqtt://localhost:1883"
    """Where sensors are told to connect."""
    images: Path = Field(default_factory=lambda: data_home() / "images")
    """The folder pictures are kept in."""
    lake: Path | None = None
    """The pipeline's lake, for reports of single sensors."""
    production: bool = False
    """Whether what is for development only is refused."""
    pool_size: int = Field(default=8, ge=1, le=100)
    """The most connections to the database this process has."""
    pool_wait: float = Field(default=2.0, gt=0)
    """Seconds a request waits for a connection before it is told to come again."""
    statement_seconds: float = Field(default=10.0, gt=0)
    """The longest a statement of a request may take."""
    image_bytes: int = Field(default=8 * 1024 * 1024, ge=1024)
    """The largest upload of a picture."""
    body_bytes: int = Field(default=256 * 1024, ge=1024)
    """The largest body of any other request."""
    rate_known: float = Field(default=20.0, gt=0)
    """Requests a second of one who has signed in, in the long run."""
    rate_anonymous: float = Field(default=5.0, gt=0)
    """The same for an address nobody has signed in from."""
    rate_burst: float = Field(default=10.0, ge=1)
    """How many seconds' worth may come at once."""
    rate_counts: Path | None = None
    """The file workers count requests in together; without one, each counts for itself."""
