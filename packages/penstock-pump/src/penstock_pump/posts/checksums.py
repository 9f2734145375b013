"""Checksums of posts and how they are computed.

`d` is the MD5 of the data, `s` its SHA-512, `n` the MD5 of the name, `0` no checksum (a random
number, so that sharding spreads), `a` a value of the application, `z,m` "compute m when you have
the file". `R`, `L`, `m` and `r` mark a removal, a link, a new and a removed directory. Checksums of
an unknown method are compared but not verified. Other packages add methods with the entry point
group `penstock.pump.sums`: a name and a function that returns a new digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from random import Random
from typing import Final, Protocol

from penstock_pump.errors import BadPost, SumMismatch

GROUP: Final = "penstock.pump.sums"

NONE: Final = "0"
MD5: Final = "d"
SHA512: Final = "s"
NAME: Final = "n"
GIVEN: Final = "a"
LATER: Final = "z"
REMOVED: Final = "R"
LINK: Final = "L"
MADE_DIRECTORY: Final = "m"
REMOVED_DIRECTORY: Final = "r"


@dataclass(frozen=True, slots=True)
class Checksum:
    method: str
    value: str

    def __str__(self) -> str:
        return f"{self.method},{self.value}"


def read_sum(text: str) -> Checksum:
    method, comma, value = text.partition(",")
    if not method or not comma:
        raise BadPost(f"sum {text[:80]!r} should be METHOD,VALUE")
    return Checksum(method, value)


class Digest(Protocol):
    def update(self, data: bytes | memoryview, /) -> None: ...

    def hexdigest(self) -> str: ...


NewDigest = Callable[[], Digest]


def _md5() -> Digest:
    return hashlib.md5(usedforsecurity=False)


#: Methods computed over the data.
BUILT_IN: Final[Mapping[str, NewDigest]] = {
    MD5: _md5,
    SHA512: hashlib.sha512,
    "sha256": hashlib.sha256,
    "sha384": hashlib.sha384,
    "sha3-256": hashlib.sha3_256,
    "sha3-384": hashlib.sha3_384,
    "sha3-512": hashlib.sha3_512,
}


class ChecksumMethods:
    def __init__(self, methods: Mapping[str, NewDigest] = BUILT_IN) -> None:
        self._methods = dict(methods)

    @classmethod
    def installed(cls) -> ChecksumMethods:
        """The built-in methods and those of installed packages."""
        added = {entry.name: entry.load() for entry in entry_points(group=GROUP)}
        return cls({**added, **BUILT_IN})

    @property
    def names(self) -> list[str]:
        return sorted(self._methods)

    def over_data(self, method: str) -> Digest | None:
        """A new digest; None for methods that are not computed from the data."""
        new = self._methods.get(method)
        return None if new is None else new()

    def verifiable(self, announced: Checksum | None) -> Digest | None:
        """The digest to compute while a file is received."""
        if announced is None:
            return None
        return self.over_data(announced.value if announced.method == LATER else announced.method)

    def check(self, method: str) -> None:
        if method not in self._methods and method not in (NONE, NAME, GIVEN, LATER):
            known = " ".join(self._methods)
            raise BadPost(f"unknown sum method {method!r}: should be one of 0 n a z {known}")


def name_sum(name: str) -> Checksum:
    return Checksum(NAME, hashlib.md5(name.encode(), usedforsecurity=False).hexdigest())


def no_sum(random: Random) -> Checksum:
    return Checksum(NONE, str(random.randrange(1000, 10000)))


def removal_sum(name: str, *, directory: bool = False) -> Checksum:
    method = REMOVED_DIRECTORY if directory else REMOVED
    return Checksum(method, hashlib.sha512(name.encode()).hexdigest())


def directory_sum(name: str) -> Checksum:
    return Checksum(MADE_DIRECTORY, hashlib.sha512(name.encode()).hexdigest())


def link_sum(target: str) -> Checksum:
    return Checksum(LINK, hashlib.sha512(target.encode(errors="surrogateescape")).hexdigest())


def checked_checksum(
    announced: Checksum | None, digest: Digest | None, *, strict: bool
) -> Checksum | None:
    """The checksum of a received file. With `strict` it must be the announced one."""
    if announced is None or digest is None:
        return announced
    value = digest.hexdigest()
    if announced.method == LATER:
        return Checksum(announced.value, value)
    if value != announced.value and strict:
        raise SumMismatch(f"checksum {announced.method},{value} is not the announced {announced}")
    return Checksum(announced.method, value)
