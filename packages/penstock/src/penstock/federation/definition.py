"""The values of runtime parameters: reading their fields, and the errors of invalid ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import urlsplit, urlunsplit

from penstock.core.errors import ConfigurationError, PreconditionFailed
from penstock.federation.transfer import AckMode

DEFAULT_PREFETCH: Final = 1000
DEFAULT_RECONNECT_SECONDS: Final = 5


class DefinitionReader:
    """Reads the fields of a parameter and collects what is wrong with them."""

    def __init__(self, component: str, name: str, value: Any) -> None:
        self.component = component
        self.name = name
        self.problems: list[str] = []
        if not isinstance(value, dict):
            self.problems.append(f"{component}: an object is expected, not {value!r}")
            value = {}
        self._fields: dict[str, Any] = dict(value)
        self._read: set[str] = set()

    def has(self, *keys: str) -> bool:
        return any(self._fields.get(key) is not None for key in keys)

    def take(self, *keys: str) -> Any:
        """The value of the first of these names that is present; later ones are former names."""
        self._read.update(keys)
        return next((self._fields[key] for key in keys if self._fields.get(key) is not None), None)

    def text(self, *keys: str) -> str | None:
        value = self.take(*keys)
        if value is not None and not isinstance(value, str):
            self.problems.append(f"{keys[0]} should be a string, not {value!r}")
            return None
        return value

    def number(self, *keys: str, default: int | None = None, least: int = 0) -> int | None:
        value = self.take(*keys)
        if value is None:
            return default
        if isinstance(value, str) and value.isdecimal():
            value = int(value)
        if type(value) is not int or value < least:
            self.problems.append(f"{keys[0]} should be a number from {least}, not {value!r}")
            return default
        return value

    def flag(self, *keys: str) -> bool:
        value = self.take(*keys)
        if value not in (None, True, False):
            self.problems.append(f"{keys[0]} should be true or false, not {value!r}")
        return value is True

    def table(self, *keys: str) -> dict[str, Any]:
        value = self.take(*keys)
        if value in (None, []):
            return {}
        if not isinstance(value, dict):
            self.problems.append(f"{keys[0]} should be an object, not {value!r}")
            return {}
        return value

    def choice(self, key: str, choices: Sequence[str], default: str) -> str:
        value = self.take(key)
        if value is None:
            return default
        if value not in choices:
            self.problems.append(f"{key} should be one of {', '.join(choices)}, not {value!r}")
            return default
        return str(value)

    def uris(self, key: str, check: Callable[[str], object]) -> tuple[str, ...]:
        """One URI or a list of them."""
        value = self.take(key)
        uris = [value] if isinstance(value, str) else value
        if (
            not isinstance(uris, list)
            or not uris
            or not all(isinstance(each, str) for each in uris)
        ):
            self.problems.append(f"{key} should be a URI or a list of URIs")
            return ()
        for uri in uris:
            try:
                check(uri)
            except (ConfigurationError, PreconditionFailed, ValueError) as error:
                self.problems.append(f"{key}: {error}")
        return tuple(uris)

    def mode(self) -> AckMode:
        return AckMode(self.choice("ack-mode", [mode.value for mode in AckMode], "on-confirm"))

    def finish(self) -> None:
        """Raises `PreconditionFailed` with all problems."""
        for key in sorted(self._fields.keys() - self._read):
            self.problems.append(f"unrecognised term {key!r} in the {self.component} definition")
        if self.problems:
            raise PreconditionFailed("Validation failed\n\n" + "\n".join(self.problems) + "\n")


def is_local(uri: str) -> bool:
    """`amqp://` and `amqp:///VHOST` are this broker."""
    parts = urlsplit(uri)
    return parts.scheme == "amqp" and not parts.netloc


def shown_uri(uri: str) -> str:
    """The URI without user and password."""
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query=""))
