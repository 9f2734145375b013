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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from penstock.core.errors import ConfigurationError
from penstock.core.logs import get_logger
from penstock_pump.config.settings import DEFAULTS, Component, PumpSettings, settings_of

log = get_logger(__name__)

#: What counts for the lines below it, and what it is before it is said.
DEFAULT_PLACEMENT: Final[Mapping[str, Any]] = {
    name: PumpSettings.model_fields[name].default
    for name in ("directory", "mirror", "strip", "flatten", "filename")
}
_VARIABLE: Final = re.compile(r"\$\{(\w+)\}")
#: Replaced when a post is placed, not when the file is read.
_LATER: Final = frozenset({"BD", "PBD", "SOURCE", "YYYYMMDD", "YYYY", "MM", "DD", "HH", "JJJ"})
_DEEPEST: Final = 10


@dataclass(slots=True)
class _ConfReader:
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
    assumed = {**DEFAULT_PLACEMENT, **DEFAULTS.get(component, {})}
    reading = _ConfReader(
        component,
        {
            **os.environ,
            "HOSTNAME": socket.gethostname(),
            "PROGRAM": component.value,
            "CONFIG": path.stem,
        },
        placing={name: assumed[name] for name in DEFAULT_PLACEMENT},
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
        given["bindings"] = [_is_overridden(each, flags or {}) for each in reading.bindings]
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


def _read(path: Path, reading: _ConfReader, depth: int) -> None:
    if depth > _DEEPEST:
        raise ConfigurationError(f"{path}: files include each other")
    for where, option, value in _lines(path):
        try:
            _apply_option(path, option, value, reading, depth, where)
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


def _apply_option(
    path: Path, option: str, value: str, reading: _ConfReader, depth: int, where: str
) -> None:
    name = normalised_name(option)
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
        if setting in DEFAULT_PLACEMENT:
            reading.placing[setting] = reading.given[setting]
    elif name not in IGNORED_OPTIONS:
        log.warning("an option that is not known here", where=where, option=option)


def _binding(value: str, reading: _ConfReader) -> dict[str, Any]:
    exchange = reading.given.get("exchange")
    if exchange is None:
        user = urlsplit(reading.given.get("broker", "")).username or "anonymous"
        suffix = reading.given.get("exchange_suffix")
        exchange = f"xs_{user}_{suffix}" if suffix else "xpublic"
    binding = {"exchange": exchange, "subtopic": value or "#"}
    if "topic_prefix" in reading.given:
        binding["topic_prefix"] = reading.given["topic_prefix"][0]
    return binding


def _is_overridden(binding: dict[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """A flag counts before what stands above a subtopic."""
    own = {key: value for key, value in binding.items() if key not in flags}
    return {**own, "exchange": flags.get("exchange", binding["exchange"])}


def _inflight(value: str, reading: _ConfReader) -> None:
    """A number is for posters: the age a file must have."""
    if value.replace(".", "", 1).isdigit() and value != ".":
        reading.given["min_age"] = float(value)
    else:
        reading.given["inflight"] = value


def _declare(value: str, reading: _ConfReader) -> None:
    """`declare env NAME=VALUE` sets a variable; who may do what is the broker's business."""
    kind, _, rest = value.partition(" ")
    if kind == "env":
        name, _, text = rest.strip().partition("=")
        reading.variables[name.strip()] = text.strip()


def _variable(found: re.Match[str], reading: _ConfReader) -> str:
    name = found[1]
    if name in _LATER or name.isdigit():
        return found[0]
    if name == "BROKER_USER":
        return urlsplit(reading.given.get("broker", "")).username or ""
    return reading.variables.get(name, found[0])


# Sarracenia's options and what they are called here: one table.
#
# Names are compared without case, dashes and underscores, so that v2's `post_base_url` and sr3's
# `post_baseUrl` are the same. An option maps to a setting and a way to read its value. What is
# known and has no meaning here is listed as such, so that only what is truly unknown is called so.

OptionParser = Callable[[str], Any]

_TRUE: Final = frozenset({"", "true", "yes", "on", "1", "y"})
_FALSE: Final = frozenset({"false", "no", "off", "none", "0", "n"})
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdwSMHDW]?)")
_SECONDS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kKmMgGtT]?)[bB]?")
_FACTORS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def flag(text: str) -> bool:
    word = text.strip().lower()
    if word not in _TRUE and word not in _FALSE:
        raise ConfigurationError(f"{text!r} should be on or off")
    return word in _TRUE


def duration(text: str) -> float | None:
    """Seconds; `off` is none at all."""
    if text.strip().lower() in ("off", "none", "false", "no"):
        return None
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ConfigurationError(f"{text!r} should be a duration, as 30, 5m, 2h or 1d")
    return float(match[1]) * _SECONDS[match[2].lower()]


def size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ConfigurationError(f"{text!r} should be a size, as 1048576, 50M or 1G")
    return round(float(match[1]) * _FACTORS[match[2].lower()])


def suppression_time(text: str) -> float | None:
    """`on` is Sarracenia's five minutes."""
    return 300.0 if text.strip().lower() in ("on", "true", "yes") else duration(text)


def topics(text: str) -> list[str]:
    return [text]


def sum_method(text: str) -> str:
    """sr3's words for v02's letters; what was said before a comma is which to compute."""
    words = {"sha512": "s", "md5": "d", "md5name": "n", "none": "0", "random": "0"}
    method, comma, value = text.strip().partition(",")
    if method == "arbitrary":
        return f"a,{value}"
    if method == "cod":
        return f"z,{words.get(value, value)}"
    return words.get(method, method) + comma + value


def queue_expiry(text: str) -> float | None:
    """A queue's time; none is for good."""
    return None if text.strip().lower() in ("none", "off", "false", "no") else duration(text)


def inline_limit(text: str) -> int:
    """`on` is Sarracenia's kilobyte."""
    return 1024 if flag(text) else 0


def kilobytes(text: str) -> int:
    return size(text) * 1024


#: The option, as it is compared → the setting and how to read it.
OPTIONS: Final[dict[str, tuple[str, OptionParser]]] = {
    "broker": ("broker", str),
    "exchange": ("exchange", str),
    "exchangesuffix": ("exchange_suffix", str),
    "topicprefix": ("topic_prefix", topics),
    "queue": ("queue", str),
    "queuename": ("queue", str),
    "prefetch": ("prefetch", int),
    "postbroker": ("post_broker", str),
    "postexchange": ("post_exchange", str),
    "postexchangesuffix": ("post_exchange_suffix", str),
    "postexchangesplit": ("post_exchange_split", int),
    "posttopicprefix": ("post_topic_prefix", str),
    "postformat": ("post_format", str),
    "messagettl": ("message_ttl", duration),
    "persistent": ("persistent", flag),
    "expire": ("expire", queue_expiry),
    "mirror": ("mirror", flag),
    "strip": ("strip", str),
    "flatten": ("flatten", str),
    "filename": ("filename", str),
    "directory": ("directory", str),
    "basedir": ("base_dir", str),
    "postbasedir": ("post_base_dir", str),
    "postbaseurl": ("post_base_url", str),
    "acceptunmatch": ("accept_unmatched", flag),
    "acceptunmatched": ("accept_unmatched", flag),
    "events": ("events", str),
    "fileevents": ("events", str),
    "attempts": ("attempts", int),
    "retryttl": ("retry_ttl", duration),
    "timeout": ("timeout", duration),
    "kbytesps": ("bandwidth", kilobytes),
    "byteratemax": ("bandwidth", size),
    "overwrite": ("overwrite", flag),
    "inplace": ("inplace", flag),
    "preservemode": ("preserve_mode", flag),
    "permcopy": ("preserve_mode", flag),
    "preservetime": ("preserve_time", flag),
    "timecopy": ("preserve_time", flag),
    "defaultmode": ("default_mode", str),
    "permdefault": ("default_mode", str),
    "chmod": ("default_mode", str),
    "defaultdirmode": ("default_dir_mode", str),
    "permdirdefault": ("default_dir_mode", str),
    "chmoddir": ("default_dir_mode", str),
    "privatehosts": ("private_hosts", flag),
    "filedirectories": ("file_directories", str.split),
    "sum": ("sum", sum_method),
    "identity": ("sum", sum_method),
    "integrity": ("sum", sum_method),
    "identitymethod": ("sum", sum_method),
    "blocksize": ("blocksize", size),
    "parts": ("blocksize", size),
    "inline": ("inline", inline_limit),
    "inlinebytemax": ("inline", size),
    "recursive": ("recursive", flag),
    "suppressduplicates": ("suppress_duplicates", suppression_time),
    "cache": ("suppress_duplicates", suppression_time),
    "nodupettl": ("suppress_duplicates", suppression_time),
    "suppressduplicatesbasis": ("suppress_basis", str),
    "cachebasis": ("suppress_basis", str),
    "nodupebasis": ("suppress_basis", str),
    "source": ("source", str),
    "sourcefromexchange": ("source_from_exchange", flag),
    "cluster": ("cluster", str),
    "tocluster": ("to_clusters", str),
    "to": ("to_clusters", str),
    "toclusters": ("to_clusters", str),
    "reportback": ("report_back", flag),
    "report": ("report_back", flag),
    "reportexchange": ("report_exchange", str),
    "instances": ("instances", int),
    "destination": ("destination", str),
    "sendto": ("destination", str),
}

#: Known, and not needed: it is so anyway, or it is a matter of the log, the broker or the start.
IGNORED_OPTIONS: Final = frozenset(
    [
        "heartbeat",
        "housekeeping",
        "vip",
        "loglevel",
        "logstdout",
        "logrotatecount",
        "logrotateinterval",
        "logdays",
        "logreject",
        "logformat",
        "debug",
        "statehost",
        "durable",
        "reset",
        "declare",
        "bindqueue",
        "queuedeclare",
        "queuebind",
        "exchangedeclare",
        "batch",
        "sleep",
        "bufsize",
        "pump",
        "admin",
        "feeder",
        "manager",
        "role",
        "declarequeue",
        "declareexchange",
        "hostname",
        "pidfilename",
        "autodelete",
        "tlsrigour",
        "logevents",
        "logduration",
        "forcepolling",
        "metricsfilename",
        "amqpconsumer",
    ]
)


def normalised_name(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
