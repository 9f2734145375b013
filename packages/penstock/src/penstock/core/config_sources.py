"""Reads settings from flags, environment, `penstock.toml` and defaults; the first that has a value
wins.

`load_settings` also tells where each value came from. All mistakes are reported in one
`ConfigurationError`, one line each: key, source, value, what is allowed, and a suggestion for an
unknown key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from penstock.core.config import (
    ENVIRONMENT_PREFIX,
    SettingInfo,
    Settings,
    list_settings,
    setting_value,
)
from penstock.core.errors import ConfigurationError
from penstock.core.redaction import redact
from penstock.core.settings_model import SettingProblem, SettingsError, build_settings

CONFIG_FILE: Final = "penstock.toml"
CONFIG_FILE_VARIABLE: Final = "PENSTOCK_CONFIG"
#: Variables with our prefix that are not settings: those of command options (`--url`, …), …
_NO_SETTINGS: Final = (
    *(CONFIG_FILE_VARIABLE, "PENSTOCK_URL", "PENSTOCK_PASSWORD", "PENSTOCK_DATABASE"),
    *("PENSTOCK_CACHE", "PENSTOCK_JOBS_KEEP", "PENSTOCK_JOBS_PASSWORD", "PENSTOCK_JOBS_TOKEN"),
    "PENSTOCK_SPARK_MASTER",
)
#: … and prefixes of applications.
_APPLICATIONS: Final = ("PENSTOCK_HIVES_",)
DEFAULT_ORIGIN: Final = "default"


@dataclass(frozen=True, slots=True)
class EffectiveSettings:
    """The effective settings, and the source of each."""

    settings: Settings
    origins: Mapping[str, str]

    def rows(self) -> Iterator[tuple[SettingInfo, Any, str]]:
        for key, setting in list_settings().items():
            yield setting, setting_value(self.settings, key), self._origin(key)

    def _origin(self, key: str) -> str:
        """Of a setting, or of one of the names in a section such as `scope_aliases`."""
        found = self.origins.get(key)
        inside = (at for name, at in self.origins.items() if name.startswith(f"{key}."))
        return found or next(inside, DEFAULT_ORIGIN)


def load_settings(
    environ: Mapping[str, str],
    flags: Mapping[str, tuple[str, Any]] | None = None,
    file: Path | None = None,
    directory: Path | None = None,
) -> EffectiveSettings:
    """`flags` maps a key to the flag's name and value. `file` must exist if given; `penstock.toml`
    in the working directory need not."""
    settings = list_settings()
    path = _file(environ, file, directory)
    layers = [
        _flags(flags or {}),
        _environment(environ, settings),
        _toml(path) if path else {},
    ]
    merged: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for layer in reversed(layers):
        for key, (origin, value) in layer.items():
            origins[key] = origin
            _place(merged, key, value)
    try:
        return EffectiveSettings(build_settings(Settings, merged), origins)
    except SettingsError as error:
        lines = [_explain(problem, origins, settings) for problem in error.problems]
    raise ConfigurationError("\n".join(dict.fromkeys(lines)))


def parse_overrides(pairs: Sequence[str]) -> dict[str, tuple[str, Any]]:
    found: dict[str, tuple[str, Any]] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise ConfigurationError(f"--set {pair}: should be key=value")
        found[key.strip()] = ("flag --set", value)
    return found


# A layer maps each key to its source and value.
_Layer = Mapping[str, tuple[str, Any]]


def _flags(flags: _Layer) -> _Layer:
    return {key: (origin, value) for key, (origin, value) in flags.items() if value is not None}


def _environment(environ: Mapping[str, str], settings: Mapping[str, SettingInfo]) -> _Layer:
    """A variable is one setting, or a section as JSON. Unknown ones become keys, so that they are
    reported with all other mistakes."""
    layer: dict[str, tuple[str, Any]] = {}
    sections: dict[str, tuple[str, Any]] = {}
    for name, text in environ.items():
        if (
            not name.startswith(ENVIRONMENT_PREFIX)
            or name in _NO_SETTINGS
            or name.startswith(_APPLICATIONS)
        ):
            continue
        key = name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".")
        origin = f"environment {name}"
        if any(known.startswith(f"{key}.") for known in settings):
            for leaf, value in _leaves(_json_object(name, text), f"{key}."):
                sections[leaf] = (origin, value)
        else:
            layer[key] = (origin, text)
    return sections | layer


def _json_object(name: str, text: str) -> dict[str, Any]:
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        tree = None
    if not isinstance(tree, dict):
        raise ConfigurationError(f"environment {name}: a section should be a JSON object")
    return tree


def _toml(path: Path) -> _Layer:
    import tomllib  # most brokers have no file

    if not path.is_file():
        raise ConfigurationError(f"{path}: configuration file not found")
    try:
        tree = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # too many digits, too deep
        raise ConfigurationError(f"{path}: is not TOML: {error}") from error
    return {key: (f"file {path}", value) for key, value in _leaves(tree)}


def _file(environ: Mapping[str, str], file: Path | None, directory: Path | None) -> Path | None:
    if file is not None:
        return file
    if named := environ.get(CONFIG_FILE_VARIABLE):
        return Path(named)
    usual = (directory or Path.cwd()) / CONFIG_FILE
    return usual if usual.exists() else None


def _leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _place(tree: dict[str, Any], key: str, value: Any) -> None:
    *sections, name = key.split(".")
    for section in sections:
        inner = tree.setdefault(section, {})
        if not isinstance(inner, dict):  # the model refuses a value in place of a section
            return
        tree = inner
    tree[name] = value


def _explain(
    problem: SettingProblem, origins: Mapping[str, str], settings: Mapping[str, SettingInfo]
) -> str:
    key = ".".join(problem.location)
    # If a whole section is invalid, the first key written in it tells the source.
    written = next((name for name in origins if name == key or name.startswith(key + ".")), key)
    origin = origins.get(written, DEFAULT_ORIGIN)
    if problem.unknown:
        return f"{origin}: unknown setting {written}{_meant(written, settings)}"
    setting = settings.get(key)
    if setting is None:  # a section whose settings contradict each other
        return redact(f"{origin}: {key}: {problem.text}")
    about = setting.description[:1].lower() + setting.description[1:].rstrip(".")
    return redact(f"{origin}: {key} = {setting.shown(problem.value)!r}: {problem.text} ({about})")


def _meant(key: str, settings: Mapping[str, SettingInfo]) -> str:
    near = get_close_matches(key, settings, n=1, cutoff=0.75)
    if not near:  # the right name in the wrong section
        last = key.rpartition(".")[2]
        near = [known for known in settings if known.rpartition(".")[2] == last]
        near.sort(key=lambda known: known.count("."))  # the widest section first
    if near:
        return f"; did you mean {near[0]}?"
    section = key.rpartition(".")[0]
    here = [known for known in settings if known.rpartition(".")[0] == section]
    return f"; known settings: {', '.join(here or settings)}"
