"""A component's settings in TOML: the model's names, as they are."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.core.errors import ConfigurationError
from penstock.pump.config.settings import PumpSettings, settings_of


def read_toml(path: Path, flags: Mapping[str, Any] | None = None) -> PumpSettings:
    """Flags count before the file; the file's name is the component's unless it says another."""
    try:
        given = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: {error}") from None
    return settings_of({"name": path.stem, **given, **(flags or {})}, f"{path}: ")
