"""Sarracenia's options and what they are called here: one table.

Names are compared without case, dashes and underscores, so that v2's `post_base_url` and sr3's
`post_baseUrl` are the same. An option maps to a setting and a way to read its value. What is known
and has no meaning here is listed as such, so that only what is truly unknown is called so.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from penstock.core.errors import ConfigurationError

Read = Callable[[str], Any]

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


def suppressed(text: str) -> float | None:
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


def lasting(text: str) -> float | None:
    """A queue's time; none is for good."""
    return None if text.strip().lower() in ("none", "off", "false", "no") else duration(text)


def inlined(text: str) -> int:
    """`on` is Sarracenia's kilobyte."""
    return 1024 if flag(text) else 0


def kilobytes(text: str) -> int:
    return size(text) * 1024


#: The option, as it is compared → the setting and how to read it.
OPTIONS: Final[dict[str, tuple[str, Read]]] = {
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
    "expire": ("expire", lasting),
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
    "inline": ("inline", inlined),
    "inlinebytemax": ("inline", size),
    "recursive": ("recursive", flag),
    "suppressduplicates": ("suppress_duplicates", suppressed),
    "cache": ("suppress_duplicates", suppressed),
    "nodupettl": ("suppress_duplicates", suppressed),
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
UNNEEDED: Final = frozenset(
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


def plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")
