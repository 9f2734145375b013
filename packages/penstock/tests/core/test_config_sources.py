"""Where settings come from: the order of the places, and what is said of what is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import penstock
from penstock.core.config_sources import DEFAULT_ORIGIN, load_settings, parse_overrides
from penstock.core.errors import ConfigurationError

KEY = "broker.heartbeat"
VARIABLE = "PENSTOCK_BROKER__HEARTBEAT"


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "penstock.toml"
    path.write_text("[broker]\nheartbeat = 20\nchannel_max = 7\n")
    return path


def wrong(text: str, tmp_path: Path, **environ: str) -> str:
    """What is said of a configuration file."""
    (tmp_path / "penstock.toml").write_text(text)
    with pytest.raises(ConfigurationError) as refused:
        load_settings(environ, directory=tmp_path)
    return str(refused.value)


# The order.


def test_a_flag_wins_over_the_environment_the_file_and_the_default(toml: Path) -> None:
    flags = {KEY: ("flag --set", "40s")}
    found = load_settings({VARIABLE: "30s"}, flags, toml)
    assert found.settings.broker.heartbeat == 40
    assert found.origins[KEY] == "flag --set"


def test_the_environment_wins_over_the_file(toml: Path) -> None:
    found = load_settings({VARIABLE: "30s"}, file=toml)
    assert found.settings.broker.heartbeat == 30
    assert found.origins[KEY] == f"environment {VARIABLE}"


def test_the_file_wins_over_the_default(toml: Path) -> None:
    found = load_settings({}, file=toml)
    assert found.settings.broker.heartbeat == 20
    assert found.origins[KEY] == f"file {toml}"


def test_what_nobody_set_is_the_default(tmp_path: Path) -> None:
    found = load_settings({}, directory=tmp_path)
    assert found.settings.broker.heartbeat == 60
    assert {origin for _, _, origin in found.rows()} == {DEFAULT_ORIGIN}


def test_places_are_merged_key_by_key(toml: Path) -> None:
    found = load_settings({VARIABLE: "30"}, {"data": ("flag --data", "/d")}, toml)
    assert found.settings.data == Path("/d")
    assert (found.settings.broker.heartbeat, found.settings.broker.channel_max) == (30, 7)


def test_a_flag_that_was_not_given_says_nothing(toml: Path) -> None:
    assert load_settings({}, {KEY: ("flag", None)}, toml).settings.broker.heartbeat == 20


# The file.


def test_the_file_in_the_working_directory_is_read_by_itself(toml: Path) -> None:
    assert load_settings({}, directory=toml.parent).settings.broker.heartbeat == 20


def test_the_environment_can_name_the_file(toml: Path, tmp_path: Path) -> None:
    other = toml.rename(tmp_path / "other.toml")
    found = load_settings({"PENSTOCK_CONFIG": str(other)}, directory=tmp_path)
    assert found.settings.broker.heartbeat == 20


def test_a_file_that_was_asked_for_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="configuration file not found"):
        load_settings({}, file=tmp_path / "none.toml")


def test_a_file_that_is_not_toml_is_named(tmp_path: Path) -> None:
    said = wrong("[broker\n", tmp_path)
    assert f"{tmp_path / 'penstock.toml'}: is not TOML" in said


# The environment and the flags.


def variables_of_flags() -> set[str]:
    folder = Path(penstock.__file__).parent
    texts = (file.read_text() for file in folder.glob("cli/**/*.py"))
    return {name for text in texts for name in re.findall(r'envvar="(PENSTOCK_\w+)"', text)}


def test_what_flags_and_applications_read_is_no_setting_of_ours(tmp_path: Path) -> None:
    theirs = {"PENSTOCK_HIVES_PRODUCTION", "PENSTOCK_HIVES_IDENTITY_MAIL"}
    assert {"PENSTOCK_DATABASE", "PENSTOCK_URL"} <= variables_of_flags()
    load_settings(dict.fromkeys(theirs | variables_of_flags(), "true"), directory=tmp_path)


def test_a_list_in_the_environment_has_commas_or_is_json(tmp_path: Path) -> None:
    both = ["amqp://127.0.0.1:1", "http://127.0.0.1:2"]
    for text in (",".join(both), '["amqp://127.0.0.1:1", "http://127.0.0.1:2"]'):
        found = load_settings({"PENSTOCK_BROKER__LISTEN": text}, directory=tmp_path)
        assert found.settings.broker.listen == both


def test_where_clients_connect_is_no_setting(tmp_path: Path) -> None:
    assert load_settings({"PENSTOCK_URL": "amqp://example"}, directory=tmp_path).origins == {}


def test_set_takes_key_and_value() -> None:
    assert parse_overrides(["a.b=c=d"]) == {"a.b": ("flag --set", "c=d")}
    with pytest.raises(ConfigurationError, match="should be key=value"):
        parse_overrides(["broker.heartbeat"])


# What is wrong.


def test_a_bad_value_names_the_key_the_file_the_value_and_what_is_allowed(tmp_path: Path) -> None:
    said = wrong("[broker]\nheartbeat = 'soon'\n", tmp_path)
    assert f"file {tmp_path / 'penstock.toml'}: broker.heartbeat = 'soon'" in said
    assert "should be a duration such as 10s, 500ms" in said


def test_a_bad_value_names_the_environment_variable(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_settings({"PENSTOCK_LOG__LEVEL": "loud"}, directory=tmp_path)
    said = str(refused.value)
    assert "environment PENSTOCK_LOG__LEVEL: log.level = 'loud'" in said
    assert "'debug', 'info', 'warning' or 'error'" in said


def test_a_number_out_of_range_says_the_range(tmp_path: Path) -> None:
    assert "less than or equal to 65535" in wrong("[broker]\nchannel_max = 70000\n", tmp_path)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("[broker]\nheartbeet = 1\n", "broker.heartbeat"),
        ("[brokr]\nheartbeat = 1\n", "broker.heartbeat"),
        ("heartbeat = 1\n", "broker.heartbeat"),
        ("[broker]\nlevel = 'info'\n", "log.level"),
    ],
)
def test_an_unknown_key_is_refused_with_the_one_that_was_meant(
    written: str, meant: str, tmp_path: Path
) -> None:
    assert f"did you mean {meant}?" in wrong(written, tmp_path)


def test_a_key_like_no_other_is_refused_with_those_there_are(tmp_path: Path) -> None:
    said = wrong("[log]\nzzz = 1\n", tmp_path)
    assert "unknown setting log.zzz; known settings: log.level, log.format" in said


def test_an_unknown_variable_is_refused_like_a_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as refused:
        load_settings({"PENSTOCK_BROKER__HEARTBEET": "1"}, directory=tmp_path)
    assert "environment PENSTOCK_BROKER__HEARTBEET: unknown setting" in str(refused.value)
    assert "did you mean broker.heartbeat?" in str(refused.value)


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    said = wrong("[broker]\nheartbeat = -1\n[log]\nlevel = 'x'\n", tmp_path, PENSTOCK_NOTHING="1")
    assert len(said.splitlines()) == 3


def test_settings_that_do_not_fit_together_name_their_section(tmp_path: Path) -> None:
    said = wrong("[broker.tls]\ncertificate = 'a.pem'\n", tmp_path)
    assert "broker.tls: certificate and key are set together" in said


def test_an_address_that_is_none_says_what_one_looks_like(tmp_path: Path) -> None:
    said = wrong("[broker]\nlisten = ['gopher://x']\n", tmp_path)
    assert "broker.listen" in said
    assert "scheme://host:port with a scheme of amqp, amqps" in said


def test_a_section_of_names_has_the_origin_of_its_names(tmp_path: Path) -> None:
    file = tmp_path / "penstock.toml"
    file.write_text('[broker.oauth2.scope_aliases]\nops = ["penstock.tag:administrator"]\n')
    found = load_settings({}, directory=tmp_path)
    assert found.settings.broker.oauth2.scope_aliases == {"ops": ["penstock.tag:administrator"]}
    origins = {setting.key: origin for setting, _, origin in found.rows()}
    assert origins["broker.oauth2.scope_aliases"] == f"file {file}"


@pytest.mark.parametrize("text", ["a = " + "[" * 9999, "a = " + "9" * 9999])
def test_toml_that_is_too_deep_or_has_too_many_digits_is_refused(tmp_path: Path, text: str) -> None:
    assert "is not TOML" in wrong(text, tmp_path)


@pytest.mark.parametrize("name", ["PENSTOCK_BROKER", "PENSTOCK_BROKER__LISTEN"])
def test_a_variable_that_is_too_deep_is_refused(tmp_path: Path, name: str) -> None:
    assert name in wrong("", tmp_path, **{name: "[" * 99_999})


def test_the_home_directory_of_an_unknown_user_is_refused(tmp_path: Path) -> None:
    assert "home directory" in wrong("data = '~nobody-of-that-name/x'", tmp_path)
