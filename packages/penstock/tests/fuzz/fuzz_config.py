"""Fuzzes what reads settings: `penstock.toml`, variables, `--set`, addresses, sizes, durations.

    PYTHONPATH=. python packages/penstock/tests/fuzz/fuzz_config.py -runs=1000000

Coverage-guided, by atheris. An input is one choice of a source and a text, of whose bytes some are
names and values of settings. A reader may refuse it by `ConfigurationError`; anything else is a
finding.
"""

from __future__ import annotations

import atheris

with atheris.instrument_imports(include=["penstock.core", "tomllib"]):
    import tempfile
    from contextlib import suppress
    from pathlib import Path

    from penstock.core import config_sources
    from penstock.core.addresses import parse_address
    from penstock.core.config import list_settings
    from penstock.core.config_sources import load_settings, parse_overrides
    from penstock.core.errors import ConfigurationError
    from penstock.core.units import parse_bytes, parse_count, parse_seconds
    from tests.fuzz_input import Choices, compose_text, memory_folder, run_fuzzer

SETTINGS = list_settings()
KEYS = tuple(SETTINGS)
# These take longer than the rest.
vars(config_sources)["list_settings"] = lambda: SETTINGS
vars(config_sources)["get_close_matches"] = lambda *_, **__: []
VALUES = (
    *("true", "false", "0", "1", "-1", "0.5", "25%", "1e400", "9" * 30, '"', "[", "]", "{", "}"),
    *("64MiB", "10s", "2h", "amqp://127.0.0.1:0", "http://[::1]:15672", "10.0.0.0/8", "~/x", "="),
    *(",", '["a", "b"]', '{"a": 1}', "null", "info", "\n", "[broker]\n", "[broker.tls]\n", "'''"),
    *("2026-05-31T12:00:00Z", "0x1F", "inf", "nan", "é", "\x00", "[[broker.links]]\n", "#", "://"),
)
FILE = Path(tempfile.mkdtemp(dir=memory_folder())) / "x.toml"


def fuzz_lines(choices: Choices) -> None:
    """Settings that exist, mostly, with values of any type."""
    lines = []
    for _ in range(1 + choices.number(4)):
        key = choices.one_of(KEYS) if choices.number(8) else choices.text(KEYS)
        value = choices.text(VALUES)
        quoted = f'"{value}"' if choices.number(2) else value
        lines.append(f"{key} = {quoted}")
    FILE.write_text("\n".join(lines))
    load_settings({}, file=FILE)


def fuzz_toml(choices: Choices) -> None:
    FILE.write_text(compose_text(choices.rest(), (*VALUES, *KEYS[:60])))
    load_settings({}, file=FILE)


def fuzz_bytes(choices: Choices) -> None:
    FILE.write_bytes(choices.rest())
    load_settings({}, file=FILE)


def fuzz_environment(choices: Choices) -> None:
    key = choices.one_of((*KEYS, "broker", "broker.tls", "broker.cluster", "log"))
    name = f"PENSTOCK_{key.upper().replace('.', '__')}"
    load_settings({name: compose_text(choices.rest(), VALUES)}, directory=FILE.parent)


def fuzz_overrides(choices: Choices) -> None:
    key = choices.one_of(KEYS) if choices.number(8) else choices.text(KEYS)
    pairs = [f"{key}={compose_text(choices.rest(), VALUES)}"]
    load_settings({}, parse_overrides(pairs), directory=FILE.parent)


def fuzz_units(choices: Choices) -> None:
    text = compose_text(choices.rest(), VALUES)
    parse_count(text)
    for parse in (parse_bytes, parse_seconds, parse_address):
        with suppress(ValueError):
            parse(text)


TARGETS = (fuzz_lines, fuzz_toml, fuzz_bytes, fuzz_environment, fuzz_overrides, fuzz_units)


def fuzz(data: bytes) -> None:
    choices = Choices(data)
    with suppress(ConfigurationError):
        choices.one_of(TARGETS)(choices)


if __name__ == "__main__":
    run_fuzzer(fuzz)
