"""Reads configuration files of Sarracenia, v2 and sr3, unchanged.

A line is an option and its value, and the order matters: `directory`, `mirror`, `strip`, `flatten`
and `filename` apply to the `accept` lines below them, `exchange` and `topic_prefix` to the
`subtopic` lines below them. `default.conf`, `admin.conf` and `COMPONENT.conf` are read before the
file; the directory of the file names the component. Base URLs and paths are joined, as Sarracenia
does.

Option names are compared without case, dashes and underscores, so v2's `post_base_url` and sr3's
`post_baseUrl` are the same. Known options without a meaning here are ignored; only unknown ones are
logged.
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

#: Options that apply to the lines below them, with their defaults.
DEFAULT_PLACEMENT: Final[Mapping[str, Any]] = {
    name: PumpSettings.model_fields[name].default
    for name in ("directory", "mirror", "strip", "flatten", "filename")
}
_VARIABLE: Final = re.compile(r"\$\{(\w+)\}")
#: Variables that are replaced when a post is placed, not when the file is read.
_DEFERRED: Final = frozenset({"BD", "PBD", "SOURCE", "YYYYMMDD", "YYYY", "MM", "DD", "HH", "JJJ"})
_MAX_INCLUDES: Final = 10

OptionParser = Callable[[str], Any]

_TRUE: Final = frozenset({"", "true", "yes", "on", "1", "y"})
_FALSE: Final = frozenset({"false", "no", "off", "none", "0", "n"})
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdwSMHDW]?)")
_SECONDS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kKmMgGtT]?)[bB]?")
_FACTORS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclass(slots=True)
class _ConfReader:
    component: Component
    variables: dict[str, str]
    given: dict[str, Any] = field(default_factory=dict)
    placement: dict[str, Any] = field(default_factory=dict)  #: at the current line
    rules: list[dict[str, Any]] = field(default_factory=list)
    bindings: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read_conf(
    path: Path, component: Component | None = None, flags: Mapping[str, Any] | None = None
) -> PumpSettings:
    component = component or component_of(path)
    home = path.parent.parent
    defaults = {**DEFAULT_PLACEMENT, **DEFAULTS.get(component, {})}
    reader = _ConfReader(
        component,
        {
            **os.environ,
            "HOSTNAME": socket.gethostname(),
            "PROGRAM": component.value,
            "CONFIG": path.stem,
        },
        placement={name: defaults[name] for name in DEFAULT_PLACEMENT},
    )
    for common in ("default.conf", "admin.conf", f"{component}.conf"):
        if (home / common).is_file():
            _read(home / common, reader, 0)
    _read(path, reader, 0)
    if reader.problems:
        raise ConfigurationError("\n".join(reader.problems))
    given = {"component": component, "name": path.stem, "join": True, **reader.given}
    if reader.rules:
        given["select"] = reader.rules
    if reader.bindings and "subtopic" not in (flags or {}):
        given["bindings"] = [_overridden(each, flags or {}) for each in reader.bindings]
    credentials = home / "credentials.conf"
    if credentials.is_file():
        given["credentials"] = credentials
    return settings_of({**given, **(flags or {})}, f"{path}: ")


def component_of(path: Path) -> Component:
    """By the directory: `subscribe/weather.conf`."""
    aliases = {"cpost": "post", "cpump": "shovel", "poll": "", "flow": "subscribe"}
    folder = path.resolve().parent.name.removeprefix("sr_")
    try:
        return Component(aliases.get(folder, folder))
    except ValueError:
        known = ", ".join(Component)
        raise ConfigurationError(
            f"{path}: cannot tell the component from the folder {folder!r}: it should be one of "
            f"{known}; or use --component"
        ) from None


def _read(path: Path, reader: _ConfReader, depth: int) -> None:
    if depth > _MAX_INCLUDES:
        raise ConfigurationError(f"{path}: files include each other")
    for where, option, value in _lines(path):
        try:
            _apply_option(path, option, value, reader, depth, where)
        except (ConfigurationError, ValueError) as error:
            reader.problems.append(f"{where}: {option}: {error}")


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
    path: Path, option: str, value: str, reader: _ConfReader, depth: int, where: str
) -> None:
    name = normalised_name(option)
    value = _VARIABLE.sub(lambda found: _variable(found, reader), value)
    if name in ("include", "config"):
        _read(path.parent / value, reader, depth + 1)
    elif name == "declare":
        _declare(value, reader)
    elif name in ("accept", "reject", "get"):
        pattern = value.split()[0] if value else ".*"
        word = "reject" if name == "reject" else "accept"
        reader.rules.append({word: pattern, **reader.placement})
    elif name == "subtopic":
        reader.bindings.append(_binding(value, reader))
    elif name in ("path", "postpath"):
        reader.given.setdefault("path", []).extend(value.split())
    elif name in ("inflight", "lock"):
        _inflight(value, reader)
    elif name in OPTIONS:
        setting, parse = OPTIONS[name]
        reader.given[setting] = parse(value)
        if setting in DEFAULT_PLACEMENT:
            reader.placement[setting] = reader.given[setting]
    elif name not in IGNORED_OPTIONS:
        log.warning("unknown option", where=where, option=option)


def _binding(value: str, reader: _ConfReader) -> dict[str, Any]:
    exchange = reader.given.get("exchange")
    if exchange is None:
        user = urlsplit(reader.given.get("broker", "")).username or "anonymous"
        suffix = reader.given.get("exchange_suffix")
        exchange = f"xs_{user}_{suffix}" if suffix else "xpublic"
    binding = {"exchange": exchange, "subtopic": value or "#"}
    if "topic_prefix" in reader.given:
        binding["topic_prefix"] = reader.given["topic_prefix"][0]
    return binding


def _overridden(binding: dict[str, Any], flags: Mapping[str, Any]) -> dict[str, Any]:
    """Flags override what stands above a subtopic."""
    own = {key: value for key, value in binding.items() if key not in flags}
    return {**own, "exchange": flags.get("exchange", binding["exchange"])}


def _inflight(value: str, reader: _ConfReader) -> None:
    """A number is for posters: the minimum age of a file."""
    if value.replace(".", "", 1).isdigit() and value != ".":
        reader.given["min_age"] = float(value)
    else:
        reader.given["inflight"] = value


def _declare(value: str, reader: _ConfReader) -> None:
    """`declare env NAME=VALUE` sets a variable; users and exchanges are declared at the broker."""
    kind, _, rest = value.partition(" ")
    if kind == "env":
        name, _, text = rest.strip().partition("=")
        reader.variables[name.strip()] = text.strip()


def _variable(found: re.Match[str], reader: _ConfReader) -> str:
    name = found[1]
    if name in _DEFERRED or name.isdigit():
        return found[0]
    if name == "BROKER_USER":
        return urlsplit(reader.given.get("broker", "")).username or ""
    return reader.variables.get(name, found[0])


def flag(text: str) -> bool:
    word = text.strip().lower()
    if word not in _TRUE and word not in _FALSE:
        raise ConfigurationError(f"{text!r} should be on or off")
    return word in _TRUE


def duration(text: str) -> float | None:
    """Seconds; None for `off`."""
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
    """`on` means five minutes, as in Sarracenia."""
    return 300.0 if text.strip().lower() in ("on", "true", "yes") else duration(text)


def topics(text: str) -> list[str]:
    return [text]


def sum_method(text: str) -> str:
    """sr3's names for v02's letters."""
    words = {"sha512": "s", "md5": "d", "md5name": "n", "none": "0", "random": "0"}
    method, comma, value = text.strip().partition(",")
    if method == "arbitrary":
        return f"a,{value}"
    if method == "cod":
        return f"z,{words.get(value, value)}"
    return words.get(method, method) + comma + value


def inline_limit(text: str) -> int:
    """`on` means a kilobyte, as in Sarracenia."""
    return 1024 if flag(text) else 0


def kilobytes(text: str) -> int:
    return size(text) * 1024


#: Options with the name of their setting, by the function that reads the value.
_SAME_NAME: Final[dict[OptionParser, str]] = {
    str: "broker exchange exchange_suffix queue post_broker post_exchange post_exchange_suffix"
    " post_topic_prefix post_format strip flatten filename directory base_dir post_base_dir"
    " post_base_url events default_mode default_dir_mode suppress_basis source cluster to_clusters"
    " report_exchange destination",
    int: "prefetch post_exchange_split attempts instances",
    flag: "persistent mirror accept_unmatched overwrite inplace preserve_mode preserve_time"
    " private_hosts recursive source_from_exchange report_back",
    duration: "message_ttl expire retry_ttl timeout",
    str.split: "file_directories",
    topics: "topic_prefix",
    sum_method: "sum",
    size: "blocksize",
    inline_limit: "inline",
    suppression_time: "suppress_duplicates",
}


def normalised_name(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


#: The normalised option, its setting and the function that reads the value.
OPTIONS: Final[dict[str, tuple[str, OptionParser]]] = {
    normalised_name(setting): (setting, parser)
    for parser, settings in _SAME_NAME.items()
    for setting in settings.split()
}
OPTIONS.update(
    kbytesps=("bandwidth", kilobytes),
    byteratemax=("bandwidth", size),
    inlinebytemax=("inline", size),
    **{
        option: OPTIONS[normalised_name(setting)]
        for setting, options in {
            "queue": "queuename",
            "accept_unmatched": "acceptunmatch",
            "events": "fileevents",
            "preserve_mode": "permcopy",
            "preserve_time": "timecopy",
            "default_mode": "permdefault chmod",
            "default_dir_mode": "permdirdefault chmoddir",
            "sum": "identity integrity identitymethod",
            "blocksize": "parts",
            "suppress_duplicates": "cache nodupettl",
            "suppress_basis": "suppressduplicatesbasis cachebasis nodupebasis",
            "to_clusters": "tocluster to",
            "report_back": "report",
            "destination": "sendto",
        }.items()
        for option in options.split()
    },
)

#: Known options without a meaning here: always so, or a matter of logs, brokers or the start.
IGNORED_OPTIONS: Final = frozenset(
    "heartbeat housekeeping vip loglevel logstdout logrotatecount logrotateinterval logdays"  # noqa: SIM905
    " logreject logformat debug statehost durable reset declare bindqueue queuedeclare queuebind"
    " exchangedeclare batch sleep bufsize pump admin feeder manager role declarequeue"
    " declareexchange hostname pidfilename autodelete tlsrigour logevents logduration forcepolling"
    " metricsfilename amqpconsumer".split()
)
