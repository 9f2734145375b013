"""The configuration of the site: one file, declared as a whole and checked as a whole.

    [engine]            # workers, drain, … (`engine/settings.py`)
    [site]              # refresh, api_requests, … (`SiteSettings`)
    [application]       # rates, pool_size, … (`settings.py`)
    [identity]          # issuer, project, … (`identity/settings.py`)

All of it is optional; flags of the command come before it, the environment and defaults after it.
It is read anew at each reload, and nothing of it is used unless all of it can be.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from penstock.core.config import data_home
from penstock.core.errors import ConfigurationError
from penstock_hives.identity.settings import IdentitySettings
from penstock_hives.server.settings import EngineSettings
from penstock_hives.settings import HivesSettings

APPLICATION: Final = "penstock_hives.server.application:application"


class SiteSettings(BaseModel):
    """What the site is told beside the application's own settings."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    application: dict[str, Any] = {}
    """The application's settings; those that are missing are the environment's."""
    identity: dict[str, Any] = {}
    """Who vouches for people; likewise."""
    hosts: list[str] = []
    """Names the site is reached by, beside addresses and localhost; * for any."""
    brokers: list[str] = []
    """Where live figures are heard of; the next when one is away."""
    pictures: Path = Field(default_factory=lambda: data_home() / "hives" / "pictures")
    """The folder scaled pictures are cached in."""
    refresh: float = Field(default=60.0, gt=0)
    """Seconds between editions of what the public sees."""
    retry: float = Field(default=5.0, gt=0)
    """The same after one could not be made."""
    catch_up: float = Field(default=10.0, gt=0)
    """Seconds between looks into the cache while no figures are heard."""
    api_requests: int = Field(default=256, ge=1)
    """Requests the API takes at a time in one worker; more get 503."""


_SECTIONS: Final[dict[str, type[BaseModel]]] = {
    "engine": EngineSettings,
    "site": SiteSettings,
    "application": HivesSettings,
    "identity": IdentitySettings,
}

Section = Mapping[str, Any]


def read_configuration(file: Path | None, flags: Mapping[str, Section]) -> EngineSettings:
    """Of the file, if there is one, with the flags' values in place of its own."""
    found: dict[str, dict[str, Any]] = {name: {} for name in _SECTIONS}
    for name, values in _parsed(file).items():
        if name not in found or not isinstance(values, dict):
            known = ", ".join(f"[{each}]" for each in found)
            raise ConfigurationError(f"{file}: there is no [{name}]; there are {known}")
        found[name] |= values
    for name, given in flags.items():
        found[name] |= {key: value for key, value in given.items() if value is not None}
    for name, values in found.items():
        _known(file, name, values)
    try:
        HivesSettings(**found["application"])
        IdentitySettings(**found["identity"])
        site = SiteSettings(
            **found["site"], application=found["application"], identity=found["identity"]
        )
        return EngineSettings(
            **{"application": APPLICATION, **found["engine"]},
            options=site.model_dump(mode="json"),
        )
    except ValidationError as error:
        lines = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()]
        raise ConfigurationError("\n".join(lines)) from error


def _parsed(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} is no TOML: {error}") from error


def _known(file: Path | None, section: str, values: Section) -> None:
    """A setting that nobody reads is a mistake somebody made."""
    for name in values:
        if name not in _SECTIONS[section].model_fields:
            raise ConfigurationError(f"{file}: [{section}] has no setting {name!r}")
