"""Sarracenia's command lines, and actions on configurations."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from penstock.cli import app
from penstock.core.errors import ConfigurationError
from penstock_pump.commands.aliases import program_component, split_arguments
from penstock_pump.commands.configurations import find_configurations
from penstock_pump.config.sarracenia import read_options
from penstock_pump.config.settings import Component
from penstock_pump.transports.transport import SCHEMES


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("subscribe/a.conf", "subscribe/b.conf.off", "watch/w.toml", "subscribe/x.inc"):
        path = tmp_path / "sr3" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("broker amqp://h/\n" if ".conf" in name else 'component = "watch"\n')
    return tmp_path / "sr3"


def command(*arguments: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["pump", *arguments])
    return found.exit_code, found.output


@pytest.mark.parametrize(
    ("targets", "names"),
    [
        (None, ["subscribe/a", "subscribe/b", "watch/w"]),
        (["subscribe"], ["subscribe/a", "subscribe/b"]),
        (["subscribe/a"], ["subscribe/a"]),
        (["subscribe/a.conf", "watch"], ["subscribe/a", "watch/w"]),
    ],
)
def test_one_configuration_a_component_or_all(
    targets: list[str] | None, names: list[str], home: Path
) -> None:
    assert [str(each) for each in find_configurations(targets)] == names
    assert [str(each) for each in find_configurations([str(home)])][:1] == ["subscribe/a"]


def test_a_target_without_a_configuration_is_an_error(home: Path) -> None:
    with pytest.raises(ConfigurationError, match="subscribe/none: no configurations"):
        find_configurations(["subscribe/none"])


def test_list_enable_disable_show_and_remove(home: Path) -> None:
    assert command("list") == (0, "subscribe/a\nsubscribe/b disabled\nwatch/w\n")
    assert command("enable", "subscribe/b") == (0, "subscribe/b enabled\n")
    assert (home / "subscribe" / "b.conf").is_file()
    assert command("disable", "subscribe/b") == (0, "subscribe/b disabled\n")
    shown = command("show", "subscribe/a")[1]
    assert "dialect sr3 (folder sr3)" in shown
    assert "broker = amqp://anonymous@h/" in shown
    assert '"subscribe/a": null' in command("dump", "subscribe")[1]
    assert command("remove", "subscribe/b") == (0, "subscribe/b removed\n")
    assert not (home / "subscribe" / "b.conf.off").exists()


CHECKING = """
from sarracenia.flowcb import FlowCB
class Checking(FlowCB):
    def __init__(self, options):
        super().__init__(options)
        self.o.add_option('checking_file', 'str')
    def on_features(self):
        with open(self.o.checking_file, 'a') as file:
            file.write('on_features ')
    def on_start(self):
        raise RuntimeError('it does not run')
"""


def test_features_shows_what_is_installed_and_calls_plugins(home: Path, tmp_path: Path) -> None:
    (home / "plugins").mkdir()
    (home / "plugins" / "checking.py").write_text(CHECKING)
    record = tmp_path / "record"
    conf = home / "subscribe" / "a.conf"
    conf.write_text(f"broker amqp://h/\ncallback checking\nchecking_file {record}\n")
    code, output = command("features", "subscribe/a")
    assert code == 0, output
    lines = output.splitlines()
    assert lines[0] == "formats v02, v03, wis2"
    assert lines[1].startswith("checksums ")
    assert {"transport file installed", "transport http installed"} <= set(lines)
    assert lines[-1] == "subscribe/a plugins: callback checking"
    assert command("sarracenia", "sr3", "features", "subscribe/a") == (0, output)
    assert record.read_text() == "on_features on_features "


def test_a_transport_whose_module_is_missing_names_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SCHEMES, "gopher", "penstock_pump.transports.no_such:Gopher")
    lines = command("features", "subscribe/a")[1].splitlines()
    (line,) = [line for line in lines if line.startswith("transport gopher")]
    assert "not installed: install penstock-pump[gopher]" in line


def test_the_programs_by_their_names(home: Path) -> None:
    assert program_component("sr3") is None
    assert program_component("dd_subscribe") is Component.SUBSCRIBE
    assert program_component("sr_cpump") is Component.SHOVEL
    assert command("sarracenia", "sr3", "list", "watch") == (0, "watch/w\n")
    assert command("sarracenia", "sr_subscribe", "a", "list") == (0, "subscribe/a\n")
    code, output = command("sarracenia", "sr3")
    assert code == 2
    assert "needs an action" in output


def test_the_command_line_of_the_manual(tmp_path: Path) -> None:
    words, options = split_arguments(
        ["-s", "sftp://stanley@mysftpserver.com//data/foo", "-pb", "amqp://broker.com", "--debug"]
    )
    assert words == []
    settings = read_options(Component.WATCH, options, tmp_path / "sarra")
    assert settings.post_base_url == "sftp://stanley@mysftpserver.com/"
    assert settings.path == [Path("/data/foo")]
    assert (settings.post_broker, settings.log_level) == (
        "amqp://anonymous@broker.com",
        "debug",
    )


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["-mirror", "on", "a"], [("mirror", "on")]),
        (["-mirror", "a"], [("mirror", "on")]),
        (["--nodupe_ttl=5m", "a"], [("nodupe_ttl", "5m")]),
        (["-e", "create", "-at", "3", "a"], [("e", "create"), ("at", "3")]),
        (["--dangerWillRobinson=2", "a"], []),
        (["--dangerWillRobinson", "2", "a"], []),
    ],
)
def test_flags_and_values(arguments: list[str], options: list[tuple[str, str]]) -> None:
    assert split_arguments(arguments) == (["a"], options)


@pytest.mark.parametrize("arguments", [["-nosuch", "1"], ["-pb"]])
def test_a_command_line_that_cannot_be_read(arguments: list[str]) -> None:
    with pytest.raises(ConfigurationError):
        split_arguments(arguments)
