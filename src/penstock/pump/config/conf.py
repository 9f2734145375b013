"""Sarracenia's own configuration files, v2's and sr3's, read as they are.

A line is an option and its value, and its place matters: `directory`, `mirror`, `strip`, `flatten`
and `filename` count for what is accepted below them, `exchange` and `topic_prefix` for subtopics.
Above the file stand `default.conf`, `admin.conf` and the component's own; the component is named by
the folder the file is in. Sites that wrote these files join base URLs and paths, and so do we then.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from penstock.core.errors import ConfigurationError
from penstock.core.logs import get_logger
from penstock.pump.config.options import OPTIONS, UNNEEDED, plain
from penstock.pump.config.settings import DEFAULTS, Component, PumpSettings, settings_of

log = get_logger(__name__)

#: What counts for the lines below it, and what it is before it is said.
PLAIN_PLACING: Final[Mapping[str, Any]] = {
    name: PumpSettings.model_fields[name].default
    for name in ("directory", "mirror", "strip", "flatten", "filename")
}
_VARIABLE: Final = re.compile(r"\$\{(\w+)\}")
#: Replaced when a post is placed, not when the file is read.
_LATER: Final = frozenset({"BD", "PBD", "SOURCE", "YYYYMMDD", "YYYY", "MM", "DD", "HH", "JJJ"})
_DEEPEST: Final = 10


@dataclass(slots=True)
class _Reading:
    """What has been read so far, and what is in force at this line."""

    component: Component
    variables: dict[str, str]
    given: dict[str, Any] = field(default_factory=dict)
    placing: dict[str, Any] = field(default_factory=dict)
    rules: list[dict[str, Any]] = field(default_factory=list)
    bindings: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read_conf(
    path: Path, component: Component | None = None, flags: Mapping[str, Any] | None = None
) -> PumpSettings:
    component = component or component_of(path)
    home = path.parent.parent
    assumed = {**PLAIN_PLACING, **DEFAULTS.get(component, {})}
    reading = _Reading(
        component,
        {
            **os.environ,
            "HOSTNAME": socket.gethostname(),
            "PROGRAM": component.value,
            "CONFIG": path.stem,
        },
        placing={name: assumed[name] for name in PLAIN_PLACING},
    )
    for above in ("default.conf", "admin.conf", f"{component}.conf"):
        if (home / above).is_file():
            _read(home / above, reading, 0)
    _read(path, reading, 0)
    if reading.problems:
        raise ConfigurationError("\n".join(reading.problems))
    given = {"component": component, "name": path.stem, "join": True, **reading.given}
    if reading.rules:
        given["select"] = reading.rules
    if reading.bindings and "subtopic" not in (flags or {}):
        given["bindings"] = [_overruled(each, flags or {}) for each in reading.bindings]
    credentials = home / "credentials.conf"
    if credentials.is_file():
        given["credentials"] = credentials
    return settings_of({**given, **(flags or {})}, f"{path}: ")


def component_of(path: Path) -> Component:
    """By the folder, as Sarracenia has it: `subscribe/weather.conf`."""
    words = {"cpost": "post", "cpump": "shovel", "poll": "", "flow": "subscribe"}
    folder = path.resolve().parent.name.removeprefix("sr_")
    try:
        return Component(words.get(folder, folder))
    except ValueError:
        known = ", ".join(Component)
        raise ConfigurationError(
            f"{path}: which component it is of is told by its folder, one of {known}; "
            "or say it with --component"
        ) from None


def _read(path: Path, reading: _Reading, depth: int) -> None:
    if depth > _DEEPEST:
        raise ConfigurationError(f"{path}: files include each other")
    for where, option, value in _lines(path):
        try:
            _take(path, option, value, reading, depth, where)
        except (ConfigurationError, ValueError) as error:
            reading.problems.append(f"{where}: {option}: {error}")


def _lines(path: Path) -> Iterator[tuple[str, str, str]]:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: {error}") from None
    for number, line in enumerate(text.splitlines(), 1):
        words = line.strip().split(None, 1)
        if words and not words[0].startswith("#"):
            value = words[1].strip() if len(words) > 1 else ""
            yield f"{path}:{number}", words[0], value


def _take(path: Path, option: str, value: str, reading: _Reading, depth: int, where: str) -> None:
    name = plain(option)
    value = _VARIABLE.sub(lambda found: _variable(found, reading), value)
    if name in ("include", "config"):
        _read(path.parent / value, reading, depth + 1)
    elif name == "declare":
        _declare(value, reading)
    elif name in ("accept", "reject", "get"):
        pattern = value.split()[0] if value else ".*"
        word = "reject" if name == "reject" else "accept"
        reading.rules.append({word: pattern, **reading.placing})
    elif name == "subtopic":
        reading.bindings.append(_binding(value, reading))
    elif name in ("path", "postpath"):
        reading.given.setdefault("path", []).extend(value.split())
    elif name in ("inflight", "lock"):
        _inflight(value, reading)
    elif name in OPTIONS:
        setting, read = OPTIONS[name]
        reading.given[setting] = read(value)
        if setting in PLAIN_PLACING:
            reading.placing[setting] = reading.given[setting]
    elif name not in UNNEEDED:
        log.warning("an option that is not known here", where=where, option=option)


def _binding(value: str, reading: _Reading) -> dict[str, Any]:
    exchange = reading.given.get("exchange")
    if exchange is None:
        user = urlsplit(reading.given.get("broker", "")).username or "anonymous"
        suffix = reading.given.get("exchange_suffix")
        exchange = f"xs_{user}_{suffix}" if suffix else "xpublic"
    binding = {"exchange": exchange, "subtopic": value or "#"}
    if "topic_prefix" in reading.given:
        binding["topic_prefix"] = reading.given["topic_prefix"][0]
    return binding


def _overruled(binding: dict[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """A flag counts before what stands above a subtopic."""
    own = {key: value for key, value in binding.items() if key not in flags}
    return {**own, "exchange": flags.get("exchange", binding["exchange"])}


def _inflight(value: str, reading: _Reading) -> None:
    """A number is for posters: the age a file must have."""
    if value.replace(".", "", 1).isdigit() and value != ".":
        reading.given["min_age"] = float(value)
    else:
        reading.given["inflight"] = value


def _declare(value: str, reading: _Reading) -> None:
    """`declare env NAME=VALUE` sets a variable; who may do what is the broker's business."""
    kind, _, rest = value.partition(" ")
    if kind == "env":
        name, _, text = rest.strip().partition("=")
        reading.variables[name.strip()] = text.strip()


def _variable(found: re.Match[str], reading: _Reading) -> str:
    name = found[1]
    if name in _LATER or name.isdigit():
        return found[0]
    if name == "BROKER_USER":
        return urlsplit(reading.given.get("broker", "")).username or ""
    return reading.variables.get(name, found[0])
