"""Fuzzes the configurations of the pump, those of Sarracenia (v2, sr3), and credentials.

    PYTHONPATH=. python packages/penstock-pump/tests/fuzz/fuzz_pump.py -runs=1000000

Coverage-guided, by atheris. An input is one choice of a reader and a text, of whose bytes some are
options and values. A reader may refuse it by the error it promises; anything else is a finding.
"""

from __future__ import annotations

import atheris

with atheris.instrument_imports(include=["penstock_pump"]):
    import os
    import tempfile
    from contextlib import suppress
    from pathlib import Path

    from penstock.core.config import LogSettings
    from penstock.core.errors import ConfigurationError
    from penstock.core.logs import configure_logs
    from penstock_pump.config import sarracenia
    from penstock_pump.config.options import OPTIONS
    from penstock_pump.config.sarracenia import read_conf
    from penstock_pump.config.settings import Component
    from penstock_pump.credentials import parse_credentials
    from tests.fuzz_input import Choices, compose_text, memory_folder, run_fuzzer

NAMES = tuple(option.name for option in OPTIONS.values())
VALUES = (
    *("amqps://user:pw@host/vhost", "mqtt://h", "sftp://h/", "file:/", "on", "off", "None", "0"),
    *("1", "-1", "1e9", "9" * 30, "10s", "1d", "5M", "#", "*.csv", "(", "[", ".*", "${HOME}"),
    *("${YYYYMMDD}", "${BROKER_USER}", "xpublic", "v02.post", "v03", "WHATFN", "DESTFN=x", "\n"),
    *("sha512", "md5", "cod,md5", "n", "\t", "é", "\x00", "'", '"', "include x", "accept .*\n"),
    *("subtopic #\n", "directory /tmp/x\n", "env A=b", "source @all", "append", ".tmp", "0o755"),
)


class FuzzedPath(type(Path())):  # type: ignore[misc]
    """The file with what is fuzzed, in memory. What it includes is looked for on the disk."""

    __slots__ = ()
    content = b""

    def read_text(self, encoding: str | None = None, errors: str | None = None) -> str:
        if self.name == "fuzzed.conf":
            return self.content.decode()
        return str(super().read_text(encoding, errors))

    def is_file(self) -> bool:
        return False if self.parent == HOME and self.name in COMMON else bool(super().is_file())


HOME = FuzzedPath(tempfile.mkdtemp(dir=memory_folder()))
COMMON = {"default.conf", "admin.conf", "credentials.conf", *(f"{each}.conf" for each in Component)}
FILES = {component: HOME / component / "fuzzed.conf" for component in Component}
#: All variables are copied for each file.
os.environ.clear()
os.environ.update(HOME=str(HOME), USER="fuzzer")
configure_logs(LogSettings(level="error"))
# Names like an unknown one, for its error message: they take longer than the rest.
vars(sarracenia)["get_close_matches"] = lambda *_: []


def fuzz_options(choices: Choices) -> None:
    """Options that exist, mostly."""
    lines = []
    for _ in range(1 + choices.number(6)):
        name = choices.one_of(NAMES) if choices.number(8) else choices.text(NAMES)
        lines.append(f"{name} {choices.text(VALUES)}")
    _read(choices.one_of(tuple(Component)), "\n".join(lines).encode("utf-8", "surrogatepass"))


def fuzz_configuration(choices: Choices) -> None:
    component = choices.one_of(tuple(Component))
    _read(component, compose_text(choices.rest(), (*VALUES, *NAMES[:60])).encode())


def fuzz_configuration_bytes(choices: Choices) -> None:
    _read(choices.one_of(tuple(Component)), choices.rest())


def _read(component: Component, text: bytes) -> None:
    FuzzedPath.content = text
    with suppress(ConfigurationError):
        read_conf(FILES[component], component)


def fuzz_credentials(choices: Choices) -> None:
    lines = compose_text(choices.rest(), VALUES).splitlines()
    with suppress(ConfigurationError):
        parse_credentials(lines, "credentials.conf").find("sftp://user@host/path")


TARGETS = (fuzz_options, fuzz_configuration, fuzz_configuration_bytes, fuzz_credentials)


def fuzz(data: bytes) -> None:
    choices = Choices(data)
    choices.one_of(TARGETS)(choices)


if __name__ == "__main__":
    run_fuzzer(fuzz)
