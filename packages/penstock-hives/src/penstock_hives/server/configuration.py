"""The configuration file of `penstock hives serve`, validated as a whole at each reload.

    [engine]            # workers, drain, … (`server/settings.py`)
    [site]              # refresh, api_requests, … (`SiteSettings`)
    [application]       # rates, pool_size, … (`settings.py`)
    [identity]          # issuer, project, … (`identity/settings.py`)

Everything is optional. Precedence: flags, file, environment, defaults.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from penstock.core.config import TextList, data_home
from penstock.core.errors import ConfigurationError
from penstock.core.settings_model import Field, SettingsError, build_settings, settings_model
from penstock_hives.identity.settings import IdentitySettings
from penstock_hives.server.access_log import check_access_log
from penstock_hives.server.settings import EngineSettings, encode_settings
from penstock_hives.settings import HivesSettings, read_settings
from penstock_store.http.server import open_tls

APPLICATION: Final = "penstock_hives.server.application:application"


@settings_model
class SiteSettings:
    application: dict[str, Any] = Field(default_factory=dict)
    """Settings of the application; missing ones are read from the environment."""
    identity: dict[str, Any] = Field(default_factory=dict)
    """Settings of identity; missing ones are read from the environment."""
    hosts: TextList = Field(default_factory=list)
    """Accepted host names beside addresses and localhost; * for any."""
    brokers: TextList = Field(default_factory=list)
    """URLs of brokers for live occupancy; the next one if one is unavailable."""
    pictures: Path = Field(default_factory=lambda: data_home() / "hives" / "pictures")
    """The folder of the cache of scaled images."""
    refresh: float = Field(default=60.0, gt=0)
    """Seconds between snapshots of the public data."""
    retry: float = Field(default=5.0, gt=0)
    """Seconds until the next attempt after a failed snapshot."""
    catch_up: float = Field(default=10.0, gt=0)
    """Seconds between reads of the cache while there is no subscription."""
    tiles: str | None = Field(default=None, pattern=r"https?://[^\s;,'\"]+")
    """The URL of map tiles, with {z}, {x} and {y}; without it the map has a plain background."""
    tiles_attribution: str = ""
    """Whose map it is, shown on the map."""
    api_requests: int = Field(default=256, ge=1)
    """Concurrent API requests of one worker; more get 503."""


_SECTIONS: Final[dict[str, Any]] = {
    "engine": EngineSettings,
    "site": SiteSettings,
    "application": HivesSettings,
    "identity": IdentitySettings,
}

Section = Mapping[str, Any]


def read_configuration(file: Path | None, flags: Mapping[str, Section]) -> EngineSettings:
    """From the file, if any; flags have precedence."""
    found: dict[str, dict[str, Any]] = {name: {} for name in _SECTIONS}
    for name, values in _parse(file).items():
        if name not in found or not isinstance(values, dict):
            known = ", ".join(f"[{each}]" for each in found)
            raise ConfigurationError(f"{file}: unknown section [{name}]; known are {known}")
        found[name] |= values
    for name, given in flags.items():
        found[name] |= {key: value for key, value in given.items() if value is not None}
    for name, values in found.items():
        _check_names(file, name, values)
    try:
        read_settings(HivesSettings, found["application"])
        read_settings(IdentitySettings, found["identity"])
        given = {name: found[name] for name in ("application", "identity")}
        site = build_settings(SiteSettings, {**found["site"], **given})
        options = json.loads(encode_settings(site))
        engine = build_settings(
            EngineSettings, {"application": APPLICATION, **found["engine"], "options": options}
        )
    except SettingsError as error:
        raise ConfigurationError(str(error)) from error
    open_tls(engine.certificate, engine.key)  # refused here, before workers are replaced
    if engine.access_log is not None:
        check_access_log(engine.access_log)
    return engine


def _parse(file: Path | None) -> dict[str, Any]:
    if file is None:
        return {}
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file} is not valid TOML: {error}") from error


def _check_names(file: Path | None, section: str, values: Section) -> None:
    for name in values:
        if name not in {field.name for field in fields(_SECTIONS[section])}:
            raise ConfigurationError(f"{file}: unknown setting {name!r} in [{section}]")
