"""The options of a configuration as plugins of Sarracenia read them: by sr3's or v2's names.

A plugin may assign to them. What it assigns when it is loaded, the component uses, too.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from penstock_pump.callbacks.credentials import CallbackCredentials
from penstock_pump.config.options import find_option
from penstock_pump.config.settings import (
    Component,
    PumpSettings,
    SelectionSettings,
    settings_of,
)
from penstock_pump.config.values import flag, sr3_count, sr3_number, sr3_seconds, words
from penstock_pump.credentials import PumpCredentials
from penstock_pump.names import state_folder
from penstock_pump.posts.checksums import LATER
from penstock_pump.posts.post import FileEvent
from penstock_pump.posts.v03 import identity_name
from penstock_pump.variables import expand_now

_KINDS: Final[dict[str, Callable[[str], Any]]] = {
    "flag": flag,
    "count": sr3_count,
    "float": sr3_number,
    "duration": sr3_seconds,
    "size": sr3_count,
    "octal": lambda text: int(text, 8),
    "str": str,
}
#: Of options that have no setting here.
_FIXED: Final[dict[str, Any]] = {
    "batch": 100,
    "bufSize": 1024**2,
    "accelThreshold": 0,
    "httpsSafeQuote": "/+",
    "ftpFilenameEncoding": "utf-8",
    "tlsRigour": "normal",
    "logEvents": set(),
    "logFormat": "%(message)s",
    "permLog": 0o600,
    "settings": {},
}


class CallbackOptions:
    def __init__(self, settings: PumpSettings, credentials: PumpCredentials | None = None) -> None:
        own, settings = settings, settings.with_unused()
        events = {each.value for each in settings.events}
        prefix = settings.post_topic_prefix or settings.topic_prefix[0]
        self.__dict__.update(
            _settings=settings,
            _own=own,
            _assigned={},
            component=settings.component.value,
            config=settings.name,
            program_name=settings.component.value,
            no=settings.instance,
            logLevel=settings.log_level or "info",
            fileEvents=events | {"create"} if FileEvent.MODIFY.value in events else events,
            hostname=settings.hostname or "localhost",
            sendTo=settings.destination,
            path=[str(each) for each in settings.path],
            inflight=settings.inflight,
            pid_filename=str(state_folder(settings) / f"{settings.component.value}.pid"),
            cfg_run_dir=str(state_folder(settings)),
            credentials=CallbackCredentials(credentials or PumpCredentials()),
            masks=[_mask(settings, each) for each in settings.select],
            topicPrefix=[each for each in settings.topic_prefix[0].split(".") if each],
            post_topicPrefix=[each for each in prefix.split(".") if each],
            identity_method=_identity_method(settings.sum),
            permDefault=settings.default_mode
            or (0o400 if settings.component is Component.POLL else 0),
        )

    def add_option(
        self, option: str, kind: str = "list", default_value: Any = None, all_values: Any = None
    ) -> None:
        """Declares an option of a plugin: from now on it is an attribute."""
        given = self._settings.plugin_options.get(option)
        known = find_option(option)
        if given is not None:
            self.__dict__[option] = _read(kind, given)
        elif option not in self.__dict__ and (known is None or known.setting is None):
            self.__dict__[option] = _default(kind, default_value)

    def declare_option(self, option: str) -> None:
        """v2's: values are lists of text."""
        if option not in self.__dict__ and option in self._settings.plugin_options:
            self.__dict__[option] = list(self._settings.plugin_options[option])

    def dictify(self) -> dict[str, Any]:
        return {**self._settings.model_dump(), **self._settings.plugin_options}

    def variableExpansion(self, text: str, message: Any = None) -> str:
        """With the variables of this moment; those of a file are replaced by the component."""
        return expand_now(self._settings, text) if "$" in text else text

    def changed_settings(self) -> PumpSettings:
        """The settings with what plugins have assigned."""
        found = ((find_option(name), value) for name, value in self._assigned.items())
        update = {
            option.setting: value
            for option, value in found
            if option is not None and option.setting is not None and value is not None
        }
        settings: PumpSettings = self._own
        if not update:
            return settings
        same = {"component": settings.component, "dialect": settings.dialect}
        checked = settings_of({**same, **update}, "plugin: ")
        return settings.model_copy(update={name: getattr(checked, name) for name in update})

    def __setattr__(self, name: str, value: Any) -> None:
        self._assigned[name] = self.__dict__[name] = value

    def __getattr__(self, name: str) -> Any:
        settings = self.__dict__["_settings"]
        option = find_option(name)
        if option is not None and option.setting is not None:
            return _plain(getattr(settings, option.setting))
        if name in settings.plugin_options:
            values = settings.plugin_options[name]
            if option is not None:
                return option.value(values[-1], settings.dialect)
            return values[-1] if len(values) == 1 else values
        if name in _FIXED:
            return _FIXED[name]
        if option is not None:
            # Options without effect: an installed sr3 has their defaults.
            defaults = getattr(sys.modules.get("sarracenia.config"), "default_options", {})
            return defaults.get(name)
        raise AttributeError(name)


def _mask(settings: PumpSettings, rule: SelectionSettings) -> tuple[Any, ...]:
    """An accept or reject as sr3 has it."""
    pattern = rule.accept or rule.reject
    assert pattern is not None
    own = {
        name: getattr(settings if getattr(rule, name) is None else rule, name)
        for name in ("directory", "filename", "mirror", "strip", "flatten")
    }
    strip = own["strip"]
    return (
        pattern.pattern,
        own["directory"],
        own["filename"],
        pattern,
        rule.accept is not None,
        own["mirror"],
        strip if isinstance(strip, int) else 0,
        None if isinstance(strip, int) else strip.pattern,
        own["flatten"],
        list(rule.arguments),
    )


def _identity_method(text: str) -> str:
    """sr3's name of a checksum method: `s` is `sha512`, `z,s` is `cod,sha512`."""
    method, _, value = text.partition(",")
    return f"cod,{identity_name(value)}" if method == LATER else identity_name(method)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value


def _read(kind: str, given: list[str]) -> Any:
    if kind == "list":
        return list(given)
    if kind == "set":
        return {word for text in given for word in words(text)}
    return _KINDS[kind](given[-1])


def _default(kind: str, value: Any) -> Any:
    if isinstance(value, str) and kind in ("duration", "size", "count", "float"):
        return _KINDS[kind](value)
    return value
