"""Settings from TOML and from Sarracenia's own files, and its credentials."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.core.errors import ConfigurationError
from penstock_pump.commands.options import component_settings
from penstock_pump.components.factory import (
    base_dir,
    base_url,
    bindings,
    post_copies,
    selection,
    subscriptions,
)
from penstock_pump.config.sarracenia import read_conf
from penstock_pump.config.settings import Component, PumpSettings, read_toml, settings_of
from penstock_pump.credentials import PumpCredentials, parse_credentials, without_secret
from penstock_pump.flow.subscription import PumpBinding
from penstock_pump.names import posted_exchange, queue_name, subscribed_exchange
from penstock_pump.posts.post import FileEvent
from penstock_pump.selection import Placement, SelectionMatch
from tests.paths import DOCS


def conf(tmp_path: Path, text: str, component: str = "subscribe") -> Path:
    folder = tmp_path / component
    folder.mkdir(exist_ok=True)
    path = folder / "weather.conf"
    path.write_text(text)
    return path


V2 = """
# a comment
broker amqp://anonymous@dd.example.org/
exchange xpublic
subtopic bulletins.alphanumeric.#
exchange xother
subtopic *.radar.#

instances 2
expire 10m
persistent off
directory /data/${YYYYMMDD}/in
mirror True
strip 2
accept .*/(\\w+)/CACN.*
directory /data/other
flatten _
accept .*SACN.*
reject .*
inflight .part
attempts 5
timeout 2m
kbytes_ps 100
cache 20m
default_mode 640
events create,delete
"""


def test_a_v2_configuration_is_read_as_it_is(tmp_path: Path) -> None:
    settings = read_conf(conf(tmp_path, V2))
    assert settings.component is Component.SUBSCRIBE
    assert settings.name == "weather"
    assert bindings(settings) == [
        PumpBinding("xpublic", "v02.post", "bulletins.alphanumeric.#"),
        PumpBinding("xother", "v02.post", "*.radar.#"),
    ]
    assert (settings.inflight, settings.attempts, settings.timeout) == (".part", 5, 120.0)
    assert (settings.bandwidth, settings.suppress_duplicates) == (102_400, 1200.0)
    assert settings.default_mode == 0o640
    assert settings.events == {FileEvent.MODIFY, FileEvent.DELETE}
    assert (settings.expire, settings.persistent) == (600.0, False)
    assert settings.join


def test_placing_options_count_for_what_is_accepted_below_them(tmp_path: Path) -> None:
    chosen = selection(read_conf(conf(tmp_path, V2)))
    first = Placement("/data/${YYYYMMDD}/in", True, 2, "/", None)
    second = Placement("/data/other", True, 2, "_", None)
    assert chosen.choose("http://h/a/b/CACN00") == SelectionMatch(first, ("b",))
    assert chosen.choose("http://h/SACN00") == SelectionMatch(second)
    assert chosen.choose("http://h/else") == "reject .*"


def test_an_sr3_configuration(tmp_path: Path) -> None:
    settings = read_conf(
        conf(
            tmp_path,
            "broker amqps://me@h/\ntopicPrefix v03\nqueueName q_me_mine\nsubtopic #\n"
            "post_broker amqp://me@h2/\npost_baseUrl http://h2\npost_baseDir /data\n"
            "post_exchange xmine\nnodupe_ttl 300\nacceptUnmatched on\nidentity sha512\n"
            "permDefault 644\nbyteRateMax 1M\nfileEvents create|modify\n",
            "sarra",
        )
    )
    assert bindings(settings) == [PumpBinding("xs_me", "v03", "#")]
    assert (settings.queue, settings.post_exchange) == ("q_me_mine", "xmine")
    assert (settings.post_base_url, settings.sum) == ("http://h2", "s")
    assert settings.bandwidth == 1_000_000
    assert settings.mirror


def test_files_above_and_included_ones_and_variables(tmp_path: Path) -> None:
    (tmp_path / "default.conf").write_text("declare env PLACE=here\nattempts 7\n")
    (tmp_path / "credentials.conf").write_text("amqp://me:secret@h/\n")
    path = conf(tmp_path, "include more.inc\nbroker amqp://me@h/\ndirectory /d/${PLACE}/${HH}\n")
    (path.parent / "more.inc").write_text("timeout 7\n")
    settings = read_conf(path)
    assert settings.directory == "/d/here/${HH}"
    assert (settings.attempts, settings.timeout) == (7, 7.0)
    assert settings.credentials == tmp_path / "credentials.conf"


def test_an_included_file_that_has_no_such_name_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="null byte"):
        read_conf(conf(tmp_path, "include a\0b\n"))


def test_an_included_file_with_a_name_that_is_too_long_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="File name too long"):
        read_conf(conf(tmp_path, f"include {'x' * 300}\n"))


def test_every_problem_is_named_with_its_line(tmp_path: Path) -> None:
    path = conf(tmp_path, "attempts many\ntimeout soon\nmirror perhaps\n")
    with pytest.raises(ConfigurationError) as raised:
        read_conf(path)
    told = str(raised.value).splitlines()
    assert [line.partition(": ")[0].rpartition(":")[2] for line in told] == ["1", "2", "3"]


def test_which_component_is_told_by_the_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot tell the component"):
        read_conf(conf(tmp_path, "", "elsewhere"))
    assert read_conf(conf(tmp_path, "", "elsewhere"), Component.SHOVEL).accept_unmatched


def test_toml(tmp_path: Path) -> None:
    path = tmp_path / "radar.toml"
    path.write_text(
        'component = "subscribe"\nbroker = "amqp://h/"\ntimeout = "5m"\nmin_age = 3\n'
        'bandwidth = "10MB"\n[[select]]\naccept = ".*"\ndirectory = "/d"\nstrip = "a/"\n'
    )
    settings = read_toml(path, {"name": "other"})
    assert (settings.name, settings.timeout, settings.bandwidth) == ("other", 300.0, 10**7)
    assert settings.select[0].strip == re.compile("a/")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"component": "pump"}, "should be one of"),
        ({"component": "post", "timeout": "soon"}, "timeout: .*duration"),
        ({"component": "post", "unheard": 1}, "unheard: "),
        ({"component": "subscribe", "select": [{"accept": "("}]}, "not a regular expression"),
        ({"component": "subscribe", "prefetch": 0}, "prefetch: "),
    ],
)
def test_what_cannot_be_used_is_an_error_that_says_why(
    given: dict[str, object], problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        settings_of(given)


def test_names_by_convention(tmp_path: Path) -> None:
    def named(component: str, **given: object) -> tuple[str, str]:
        settings = settings_of({"component": component, "broker": "amqp://me@h/", **given})
        return subscribed_exchange(settings), posted_exchange(settings, settings.broker)

    assert named("post") == ("xpublic", "xs_me")
    assert named("sarra") == ("xpublic", "xpublic")
    assert named("post", post_exchange_suffix="a") == ("xpublic", "xs_me_a")
    assert named("report") == ("xs_me", "xpublic")
    assert named("sarra", dialect="sr3") == ("xs_me", "xs_me")
    public = settings_of({
        "component": "sarra", "dialect": "sr3", "broker": "amqp://anonymous@h/"
    })  # fmt: skip
    assert subscribed_exchange(public) == "xpublic"


def test_a_queue_is_chosen_once_and_instances_share_it(tmp_path: Path) -> None:
    given = {"component": "subscribe", "broker": "amqp://me@h/", "name": "w", "state": tmp_path}
    first = queue_name(settings_of(given))
    assert re.fullmatch(r"q_me\.subscribe\.w\.\d{8}\.\d{8}", first)
    assert queue_name(settings_of({**given, "instance": 2})) == first
    assert queue_name(settings_of({**given, "component": "winnow"})) == "q_me.winnow.w"


def test_a_queue_named_with_random_digits_keeps_its_name(tmp_path: Path) -> None:
    text = "broker amqp://me@h/\nqueueName q_${BROKER_USER}_${RAND8}\nsubtopic #\n"
    settings = read_conf(conf(tmp_path, text), flags={"state": tmp_path / "s"})
    name = queue_name(settings)
    assert re.fullmatch(r"q_me_\d{8}", name)
    assert queue_name(settings) == name
    text = "broker amqp://me@h/\nqueueShare all\nqueueName q_${BROKER_USER}_${QUEUESHARE}\n"
    assert read_conf(conf(tmp_path, text)).queue == "q_me_all"


BROKERS = """
broker amqp://one.example.org/
subtopic a.#
broker amqp://me@two.example.org/
exchange xtwo
queueName q_me_two
subtopic b.#
subtopic c.#
"""


def test_several_brokers_in_one_configuration(tmp_path: Path) -> None:
    found = subscriptions(read_conf(conf(tmp_path, BROKERS)))
    assert [(each.broker, each.queue, bindings(each)) for each in found] == [
        (
            "amqp://anonymous@one.example.org/",
            None,
            [PumpBinding("xpublic", "v03", "a.#")],
        ),
        (
            "amqp://me@two.example.org/",
            "q_me_two",
            [PumpBinding("xtwo", "v03", "b.#"), PumpBinding("xtwo", "v03", "c.#")],
        ),
    ]
    (one,) = subscriptions(read_conf(conf(tmp_path, BROKERS), flags={"broker": "amqp://other/"}))
    assert (one.broker, len(bindings(one))) == ("amqp://other/", 3)


def test_posts_go_to_several_brokers(tmp_path: Path) -> None:
    text = (
        "post_broker amqp://me@h/\npost_exchange xone\npost_broker mqtt://me@other/\n"
        "post_exchange xtwo\npost_baseUrl http://two/\n"
    )
    settings = read_conf(conf(tmp_path, text, "watch"))
    (copy,) = post_copies(settings)
    found = [(each.post_broker, each.post_exchange) for each in (settings, copy)]
    assert found == [("mqtt://me@other/", "xtwo"), ("amqp://me@h/", "xone")]
    (tmp_path / "default.conf").write_text("post_broker amqp://me@h/\n")
    settings = read_conf(conf(tmp_path, "post_broker amqp://me@other/\n", "watch"))
    assert settings.post_broker == "amqp://me@other/"
    assert not settings.post_copies


@pytest.mark.parametrize(
    ("text", "setting", "value"),
    [
        ("filename None", "filename", None),
        ("filename NONE", "filename", "NONE"),
        ("post_exchange off", "post_exchange", None),
        ("directory ~/in", "directory", str(Path.home() / "in")),
        ("path a b", "path", [Path("a b")]),
        ("inlineByteMax 8k", "inline", 0),
        ("inline", "inline", 4096),
        ("inline on\ninlineByteMax 8ki", "inline", 8192),
        ("inline on\ninline off", "inline", 0),
        ("fileEvents none", "events", frozenset()),
        (
            "fileEvents -mkdir,rmdir",
            "events",
            frozenset(FileEvent) - {FileEvent.MKDIR, FileEvent.RMDIR},
        ),
        ("fileAgeMin 1h30m", "min_age", 5400.0),
        ("blockSize 50M", "blocksize", 50_000_000),
        ("blockSize 1Mi", "blocksize", 1 << 20),
        ("post_topicPrefix none", "post_topic_prefix", ""),
        ("nodupe_basis name_only", "suppress_basis", "name_only"),
        ("nodupe_basis data_only", "suppress_basis", "data"),
        ("declare option recursive off", "recursive", False),
    ],
)
def test_values_as_sr3_writes_them(text: str, setting: str, value: object, tmp_path: Path) -> None:
    component = "sarra" if setting in ("filename", "directory") else "watch"
    settings = read_conf(conf(tmp_path, f"dialect sr3\n{text}\n", component))
    assert getattr(settings, setting) == value


def test_sizes_of_v2_are_binary(tmp_path: Path) -> None:
    settings = read_conf(conf(tmp_path, "dialect v2\nblocksize 50M\npath a b\ninline\n", "watch"))
    assert (settings.blocksize, settings.inline) == (50 << 20, 1024)
    assert settings.path == [Path("a"), Path("b")]


def test_the_base_directory_is_the_path_of_a_file_url() -> None:
    def found(url: str, **given: object) -> tuple[str, str]:
        given = {"component": "sarra", "post_base_url": url, "directory": "/in", **given}
        return base_url(settings_of(given)), str(base_dir(settings_of(given)))

    assert found("file:/") == ("file:/", "/")
    assert found("file://") == ("file:/", "/")
    assert found("file:/data") == ("file:/data/", "/data")
    assert found("sftp://h/data") == ("sftp://h/data/", "/data")
    assert found("http://h/data") == ("http://h/data/", "/in")
    assert found("file:/data", post_base_dir="/") == ("file:/data/", "/")


def test_credentials_are_found_by_scheme_user_host_and_port() -> None:
    known = parse_credentials(
        [
            "# secrets",
            "",
            "amqp://me:p%40ss@h/",
            "sftp://me@h ssh_keyfile=/k",
            "ftp://h:2121 passive,binary,tls",
            "https://h/ bearer_token=abc",
        ],
        "credentials.conf",
    )
    assert known.complete("amqp://me@h/vhost") == "amqp://me:p%40ss@h/vhost"
    assert known.complete("amqp://you@h/") == "amqp://you@h/"
    assert known.complete("amqp://me:own@h/") == "amqp://me:own@h/"
    assert known.find("amqp://me@h/").password == "p@ss"
    assert known.find("sftp://me@h/path").ssh_keyfile == "/k"
    assert known.find("ftp://h:2121/f").tls
    assert known.find("https://h/f").bearer_token == "abc"
    assert PumpCredentials().find("http://u:p@h/").password == "p"
    assert known.complete("amqp://anonymous@h/") == "amqp://anonymous:anonymous@h/"


@pytest.mark.parametrize(
    ("words", "tls", "implicit"),
    [
        ("passive = True, binary = True", False, False),
        ("active ascii ssl", False, False),
        ("tls, prot_p", True, False),
        ("tls=True,prot_p=True", True, False),
        ("bearer_token = abc== tls", True, False),
        ("implicit_ftps", True, True),
        ("implicit_ftps = False", False, False),
        ("bt=x,s3_endpoint=https://s3/,sftp_compat_mode", False, False),
    ],
)
def test_credentials_as_sarracenia_writes_them(words: str, tls: bool, implicit: bool) -> None:
    found = parse_credentials([f"ftp://me:secret@h/  {words}"], "c").find("ftp://me@h/f")
    assert (found.password, found.tls, found.implicit) == ("secret", tls, implicit)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("amqp://me:p%40ss@h:5672/v", "amqp://me@h:5672/v"),
        ("amqp://me@h/", "amqp://me@h/"),
        ("amqps://h", "amqps://h"),
        ("ftp://:secret@[::1]:21/", "ftp://@[::1]:21/"),
    ],
)
def test_a_url_without_its_secret(url: str, shown: str) -> None:
    assert without_secret(url) == shown


def test_a_key_file_may_be_below_the_home_or_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("KEYS", "/keys")
    lines = ["sftp://a@h ssh_keyfile=~/.ssh/id", "sftp://b@h ssh_keyfile = ${KEYS}/id"]
    known = parse_credentials(lines, "c")
    assert known.find("sftp://a@h/").ssh_keyfile == "/home/me/.ssh/id"
    assert known.find("sftp://b@h/").ssh_keyfile == "/keys/id"


@pytest.mark.parametrize(
    "line",
    ["nonsense", "amqp://h/ unheard", "amqp://h/ x=1", "amqp://[h/", "amqp://h:port/"],
)
def test_a_line_of_credentials_that_cannot_be_read_is_named(line: str) -> None:
    with pytest.raises(ConfigurationError, match="c:1: "):
        parse_credentials([line], "c")


@pytest.mark.parametrize(
    ("setting", "text", "value"),
    [
        ("topic_prefix", "v03", ["v03"]),
        ("topic_prefix", "['v02.post', \"v03\"]", ["v02.post", "v03"]),
        ("topic_prefix", " ['v03'] ", ["v03"]),
        ("subtopic", "['a.#', 'b.#']", ["a.#", "b.#"]),
        ("plugins", "[]", []),
        ("file_directories", "/a b", [Path("/a b")]),
        ("file_directories", "['/a', '/b']", [Path("/a"), Path("/b")]),
        ("path", "/a", [Path("/a")]),
        ("variables", "{A = 'b'}", {"A": "b"}),
        ("strip", "[0-9]+/", re.compile("[0-9]+/")),
    ],
)
def test_lists_and_tables_in_one_line(setting: str, text: str, value: object) -> None:
    settings = component_settings(Component.SUBSCRIBE, None, [f"{setting}={text}"])
    assert getattr(settings, setting) == value


def test_bindings_and_rules_in_one_line() -> None:
    pairs = ["bindings=[{exchange = 'xa', subtopic = 'a.#'}]", "select=[{reject = '.*x'}]"]
    settings = component_settings(Component.SUBSCRIBE, None, pairs)
    assert bindings(settings) == [PumpBinding("xa", "v02.post", "a.#")]
    assert isinstance(selection(settings).choose("http://h/x"), str)


def test_a_list_that_cannot_be_read_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"topic_prefix.*should be as in TOML"):
        component_settings(Component.SUBSCRIBE, None, ["topic_prefix=[v02.post,v03]"])


BOUND = "broker amqp://h/\nexchange xa\ntopic_prefix v02.post\nsubtopic a.#\n"


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ({}, PumpBinding("xa", "v02.post", "a.#")),
        ({"topic_prefix": "['v03']"}, PumpBinding("xa", "v03", "a.#")),
        ({"exchange": "xb"}, PumpBinding("xb", "v02.post", "a.#")),
        ({"subtopic": ["b.#"]}, PumpBinding("xa", "v02.post", "b.#")),
    ],
    ids=str,
)
def test_a_flag_counts_before_the_bindings_of_a_file(
    flags: dict[str, object], found: PumpBinding, tmp_path: Path
) -> None:
    assert bindings(read_conf(conf(tmp_path, BOUND), None, flags)) == [found]


def test_what_a_post_may_name_in_a_file_of_sarracenias(tmp_path: Path) -> None:
    (tmp_path / "default.conf").write_text("file_directories /a /b\nprivate_hosts on\n")
    settings = read_conf(conf(tmp_path, "broker amqp://h/\n"))
    assert settings.file_directories == [Path("/a"), Path("/b")]
    assert settings.private_hosts


def test_the_table_of_settings_on_the_page_is_complete_and_has_the_defaults() -> None:
    page = (DOCS / "pump.md").read_text().partition("## All settings")[2]
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \|(?: `([^`]*)`)? +\|", page, re.MULTILINE)
    assert sorted(name for name, _ in rows) == sorted(PumpSettings.model_fields)
    for name, shown in rows:
        default = PumpSettings.model_fields[name].default
        if isinstance(default, bool | str | int | float) and shown not in ("2d", "775"):
            spelled = f"{default:g}" if isinstance(default, float) else str(default)
            assert shown == (spelled.lower() if isinstance(default, bool) else spelled), name


def test_former_names_of_settings_are_accepted() -> None:
    given = {"component": "sarra", "hold": "1GB", "hold_exchange": "xs_s", "hold_readers": 2}
    settings = settings_of(given)
    assert settings.part_quota == 1_000_000_000
    assert (settings.part_quota_exchange, settings.part_quota_readers) == ("xs_s", 2)
