"""The value types of Sarracenia's options: flags, durations, sizes, lists and sets."""

from __future__ import annotations

import re
from typing import Final

from penstock.core.errors import ConfigurationError

#: The most exchanges of a split: their numbers have two digits.
MAX_SPLIT: Final = 99
_TRUE: Final = frozenset({"", "true", "yes", "on", "1", "y"})
_FALSE: Final = frozenset({"false", "no", "off", "none", "0", "n"})
_DURATION: Final = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*([smhdwSMHDW]?)")
_SECONDS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kKmMgGtT]?)[bB]?")
_FACTORS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
#: sr3 writes months and years, and two units, as 1h30m; a month has an upper-case letter.
_SR3_DURATION: Final = re.compile(r"(?:(\d+)([yMwdhm]))?([+-]?\d+(?:\.\d+)?)([smhdwMy]?)")
_SR3_SECONDS: Final = {
    **{unit: value for unit, value in _SECONDS.items() if unit.islower() or not unit},
    "M": 30.7 * 86400.0,
    "y": 365.25 * 86400.0,
}
_SR3_NUMBER: Final = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*([kmgtp]?)(i?b?)", re.IGNORECASE)
_OFF: Final = frozenset({"off", "none", "false", "no"})
#: sr3's names of v02's letters.
_SUM_METHODS: Final = {"sha512": "s", "md5": "d", "md5name": "n", "none": "0", "random": "0"}


def flag(text: str) -> bool:
    word = text.strip().lower()
    if word not in _TRUE and word not in _FALSE:
        raise ConfigurationError(f"{text!r} should be on or off")
    return word in _TRUE


def split_count(text: str) -> int:
    """sr3's number of exchanges, or v2's flag: then there are as many as instances."""
    word = text.strip().lower()
    if word in _FALSE:
        return 0
    return MAX_SPLIT if word in _TRUE else int(word)


def inverse_flag(text: str) -> bool:
    return not flag(text)


def duration(text: str) -> float | None:
    """Seconds; None for `off`."""
    if text.strip().lower() in _OFF:
        return None
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ConfigurationError(f"{text!r} should be a duration, as 30, 5m, 2h or 1d")
    return float(match[1]) * _SECONDS[match[2].lower()]


def seconds(text: str) -> float:
    return duration(text) or 0.0


def sr3_duration(text: str) -> float | None:
    if text.strip().lower() in _OFF:
        return None
    match = _SR3_DURATION.fullmatch(text.strip())
    if match is None:
        raise ConfigurationError(f"{text!r} should be a duration, as 30, 5m, 1h30m or 1d")
    large = int(match[1]) * _SR3_SECONDS[match[2]] if match[1] else 0.0
    return large + float(match[3]) * _SR3_SECONDS[match[4]]


def sr3_seconds(text: str) -> float:
    return sr3_duration(text) or 0.0


def sr3_number(text: str) -> float:
    """A thousand is `1k`, 1024 is `1ki` or `1kb`."""
    match = _SR3_NUMBER.fullmatch(text.strip())
    if match is None:
        raise ConfigurationError(f"{text!r} should be a number, as 5, 10k or 1.5MB")
    factor = 1024 if match[3] else 1000
    power = " kmgtp".index(match[2].lower() or " ")
    return float(match[1]) * float(factor**power)


def sr3_count(text: str) -> int:
    return round(sr3_number(text))


def sr3_kilobytes(text: str) -> int:
    """Kibibytes, unless it has a unit."""
    return sr3_count(text) * (1 if text.strip()[-1:].isalpha() else 1024)


def sr3_suppression_time(text: str) -> float | None:
    if text.strip().lower() in ("", "on", "true", "yes", "1"):
        return 300.0
    return sr3_duration(text) or None


def size(text: str) -> int:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ConfigurationError(f"{text!r} should be a size, as 1048576, 50M or 1G")
    return round(float(match[1]) * _FACTORS[match[2].lower()])


def kilobytes(text: str) -> int:
    return size(text) * 1024


def suppression_time(text: str) -> float | None:
    """`on` means five minutes, as in Sarracenia."""
    if text.strip().lower() in ("", "on", "true", "yes"):
        return 300.0
    return duration(text) or None


def words(text: str) -> list[str]:
    """Separated by commas or blanks, with or without brackets."""
    return [word for word in re.split(r"[,\s]+", text.strip("[] ")) if word]


def paths(text: str) -> list[str]:
    return text.split()


def sum_method(text: str) -> str:
    method, comma, value = text.strip().partition(",")
    if method == "arbitrary":
        return f"a,{value}"
    if method == "cod":
        return f"z,{_SUM_METHODS.get(value, value)}"
    return _SUM_METHODS.get(method, method) + comma + value


def events(text: str) -> str:
    """Separated by commas, bars or blanks; `+` and `-` change the default set, also by the names
    that follow them."""
    sign, found = "", []
    for word in re.split(r"[,|\s]+", text.strip()):
        plain = word.lstrip("+-")
        sign = word[: len(word) - len(plain)] or sign
        found.append("+all" if plain.lower() == "all" else f"{sign[-1:]}{plain}")
    return "" if text.strip().lower() == "none" else " ".join(found)


def verified_tls(text: str) -> str:
    if text.strip().lower() == "lax":
        raise ConfigurationError(
            "certificates are always verified: add the authority to the system's store"
        )
    return text


def disk_driver(text: str) -> str:
    if text.strip().lower() != "disk":
        raise ConfigurationError(f"{text!r}: the state is kept on disk; there is no other driver")
    return text
