"""The options of a configuration as plugins of Sarracenia read them: by sr3's or v2's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock_pump.config.options import find_option
from penstock_pump.config.settings import PumpSettings
from penstock_pump.config.values import flag, seconds, size, words
from penstock_pump.names import state_folder

_KINDS: Final[dict[str, Callable[[str], Any]]] = {
    "flag": flag,
    "count": int,
    "float": float,
    "duration": seconds,
    "size": size,
    "str": str,
}
_FIXED: Final = {"batch": 100, "logEvents": set(), "permLog": 0o600, "logFormat": "%(message)s"}


class CallbackOptions:
    def __init__(self, settings: PumpSettings) -> None:
        self._settings = settings
        self.component = settings.component.value
        self.config = settings.name
        self.program_name = settings.component.value
        self.no = settings.instance
        self.logLevel = settings.log_level or "info"
        self.fileEvents = {each.value for each in settings.events}
        self.hostname = settings.hostname or "localhost"
        self.sendTo = settings.destination
        self.pid_filename = str(state_folder(settings) / f"{settings.component.value}.pid")

    def add_option(
        self, option: str, kind: str = "list", default_value: Any = None, all_values: Any = None
    ) -> None:
        """Declares an option of a plugin: from now on it is an attribute."""
        given = self._settings.plugin_options.get(option)
        if given is None:
            if not hasattr(self, option) or default_value is not None:
                setattr(self, option, _default(kind, default_value))
        elif kind == "list":
            setattr(self, option, list(given))
        elif kind == "set":
            setattr(self, option, {word for text in given for word in words(text)})
        else:
            setattr(self, option, _KINDS[kind](given[-1]))

    def declare_option(self, option: str) -> None:
        """v2's: values are lists of text."""
        if option not in self.__dict__ and option in self._settings.plugin_options:
            setattr(self, option, list(self._settings.plugin_options[option]))

    def dictify(self) -> dict[str, Any]:
        return {**self._settings.model_dump(), **self._settings.plugin_options}

    def __getattr__(self, name: str) -> Any:
        settings = self.__dict__["_settings"]
        option = find_option(name)
        if option is not None and option.setting is not None:
            value = getattr(settings, option.setting)
            return str(value) if option.setting.endswith("_dir") and value is not None else value
        if name in settings.plugin_options:
            values = settings.plugin_options[name]
            return values[-1] if len(values) == 1 else values
        if name in _FIXED:
            return _FIXED[name]
        raise AttributeError(name)


def _default(kind: str, value: Any) -> Any:
    if isinstance(value, str) and kind in ("duration", "size", "count", "float"):
        return _KINDS[kind](value)
    return value
