"""Sarracenia's programs by their names: `sr3`, `sr3_post`, `dd_subscribe`, `sr_subscribe`, ….

Their command lines are read as theirs are: an action and configurations in any order, and every
option of a configuration file with one or two dashes (`-pb URL`, `--nodupe_ttl 5m`). `-s URL` of
`sr_post` and `sr_watch` has the base URL and the path to announce.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer

from penstock.core.errors import ConfigurationError
from penstock_pump.commands import actions, fleet
from penstock_pump.commands.configurations import config_home, find_configurations
from penstock_pump.commands.run import run
from penstock_pump.config.options import find_option
from penstock_pump.config.sarracenia import component_of, read_conf, read_options
from penstock_pump.config.settings import Component, PumpSettings
from penstock_pump.config.values import flag, inverse_flag

ACTIONS: Final[dict[str, Callable[[list[str]], None]]] = {
    "start": fleet.start,
    "stop": fleet.stop,
    "restart": fleet.restart,
    "status": fleet.status,
    "sanity": fleet.sanity,
    "list": actions.list_configurations,
    "declare": actions.declare,
    "setup": actions.declare,
    "cleanup": actions.cleanup,
    "remove": actions.remove,
    "enable": actions.enable,
    "disable": actions.disable,
    "dump": actions.dump,
    "features": actions.features,
    "show": actions.show,
    "log": actions.log,
    "edit": actions.edit,
}
FOREGROUND: Final = "foreground"
_FLAGS: Final = (flag, inverse_flag)
#: sr3 wants the number of configurations repeated before it changes several; here it is not needed.
_CONFIRMATION: Final = "dangerwillrobinson"
#: Words after a flag that are its value.
_FLAG_WORDS: Final = frozenset({"on", "off", "true", "false", "yes", "no"})


def main() -> None:
    """The entry point of all aliases."""
    from penstock.cli import app

    program = Path(sys.argv[0]).name
    app(["pump", "sarracenia", program, *sys.argv[1:]], prog_name="penstock")


def sarracenia(
    program: str, arguments: Annotated[list[str] | None, typer.Argument()] = None
) -> None:
    """Run one of Sarracenia's programs by its name."""
    component = program_component(program)
    words, options = split_arguments(arguments or [])
    found = [word for word in words if word in ACTIONS or word == FOREGROUND]
    action = found[0] if found else None
    named = [word for word in words if word != action]
    named += [value for option, value in options if option in ("c", "config")]
    options = [each for each in options if each[0] not in ("c", "config")]
    if action in ACTIONS:
        if options:
            raise ConfigurationError(f"{action}: options belong into the configuration")
        ACTIONS[action](_targets(component, named))
        return
    if component is None and not named:
        raise ConfigurationError(f"{program} needs an action: {', '.join((*ACTIONS, FOREGROUND))}")
    run(_settings(component, named, options), verbose=action == FOREGROUND)


def program_component(program: str) -> Component | None:
    """None for `sr3`, whose configurations name their component."""
    name = program.removesuffix(".py")
    if name in ("sr3", "sr"):
        return None
    word = name.removeprefix("sr3_").removeprefix("sr_").removeprefix("dd_")
    try:
        return Component({"cpost": "post", "cpump": "shovel"}.get(word, word))
    except ValueError:
        raise ConfigurationError(f"{program} is not a program of Sarracenia") from None


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """The words, and the options with their values."""
    words: list[str] = []
    options: list[tuple[str, str]] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word == "-":
            words.append(word)
            continue
        name, equals, value = word.lstrip("-").partition("=")
        if name.lower() == _CONFIRMATION:
            if not equals and rest and rest[0].isdecimal():
                rest.pop(0)
            continue
        option = find_option(name)
        if option is None and name != "s":
            raise ConfigurationError(f"{word}: no such option")
        if not equals:
            is_flag = option is not None and option.parse in _FLAGS
            if is_flag and not (rest and rest[0].lower() in _FLAG_WORDS):
                value = "on"
            elif rest:
                value = rest.pop(0)
            else:
                raise ConfigurationError(f"{word} needs a value")
        options += _source_url(value) if name == "s" else [(name, value)]
    return words, options


def _source_url(url: str) -> list[tuple[str, str]]:
    parts = urlsplit(url)
    path = "/" + parts.path.lstrip("/")
    return [("post_base_url", f"{parts.scheme}://{parts.netloc}/"), ("path", path)]


def _targets(component: Component | None, named: Sequence[str]) -> list[str]:
    if component is None:
        return list(named)
    return [f"{component}/{name}" for name in named] or [component.value]


def _settings(
    component: Component | None, named: Sequence[str], options: Sequence[tuple[str, str]]
) -> PumpSettings:
    posters = (Component.POST, Component.WATCH)
    paths = [word for word in named if component in posters and Path(word).exists()]
    options = [*options, *(("path", path) for path in paths)]
    configurations = [word for word in named if word not in paths]
    if not configurations:
        if component is None:
            raise ConfigurationError("no configuration, as subscribe/weather")
        return read_options(component, options, config_home())
    (target,) = _targets(component, configurations[:1])
    path = Path(configurations[0])
    if not path.is_file():
        path = find_configurations([target])[0].path
    return read_conf(path, component or component_of(path), None, options)
