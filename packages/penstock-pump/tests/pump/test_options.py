"""The table of Sarracenia's options: dialects, and what becomes of each option."""

from __future__ import annotations

import json
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock.core.errors import ConfigurationError
from penstock_pump.callbacks.options import CallbackOptions
from penstock_pump.components.factory import bindings, selection
from penstock_pump.config.dialect import Dialect
from penstock_pump.config.options import TABLE, OptionStatus, find_option
from penstock_pump.config.reference import options_page
from penstock_pump.config.sarracenia import read_conf
from penstock_pump.config.settings import Component, PumpSettings, settings_of
from penstock_pump.posts.post import FileEvent, Post
from penstock_pump.selection import SelectionMatch, place
from penstock_pump.variables import PostVariables
from tests.integration.pump.sarracenia import PROGRAMS
from tests.paths import DOCS

EXAMPLES = PROGRAMS.parent / "lib"


def conf(tmp_path: Path, text: str, folder: str = "conf/subscribe") -> Path:
    path = tmp_path / folder / "weather.conf"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("folder", "text", "dialect", "reason"),
    [
        ("sr3/subscribe", "topic_prefix v02.post\n", Dialect.SR3, "folder sr3"),
        ("sarra/subscribe", "acceptUnmatched on\n", Dialect.V2, "folder sarra"),
        ("sarra/subscribe", "dialect sr3\n", Dialect.SR3, "option dialect"),
        ("c/subscribe", "broker amqp://h/\ntopicPrefix v03\n", Dialect.SR3, "option topicPrefix"),
        ("c/sarra", "topic_prefix v02.post\n", Dialect.V2, "option topic_prefix"),
        ("c/subscribe", "sum d\nidentity md5\n", Dialect.SR3, "option identity"),
        ("c/subscribe", "broker amqp://h/\n", Dialect.SR3, "default"),
    ],
)
def test_the_dialect_is_decided_once(
    folder: str, text: str, dialect: Dialect, reason: str, tmp_path: Path
) -> None:
    settings = read_conf(conf(tmp_path, text, folder))
    assert (settings.dialect, settings.dialect_reason) == (dialect, reason)


def test_all_defaults_follow_the_dialect(tmp_path: Path) -> None:
    sr3 = read_conf(conf(tmp_path, "broker amqp://h/\n", "sr3/subscribe"))
    assert [each.key for each in bindings(sr3)] == ["v03.#"]
    assert (sr3.accept_unmatched, sr3.mirror, sr3.report_back) == (True, False, False)
    assert sr3.post_format == "v03"
    v2 = read_conf(conf(tmp_path, "broker amqp://h/\n", "sarra/subscribe"))
    assert [each.key for each in bindings(v2)] == ["v02.post.#"]
    assert (v2.accept_unmatched, v2.mirror, v2.report_back) == (False, False, True)
    assert read_conf(conf(tmp_path, "", "sr3/sarra")).mirror
    assert read_conf(conf(tmp_path, "", "sr3/winnow")).suppress_duplicates == 300.0
    assert settings_of({"component": "subscribe", "dialect": "sr3"}).topic_prefix == ["v03"]


def test_the_page_of_options_is_that_of_the_table() -> None:
    assert (DOCS / "pump-options.md").read_text() == options_page()


def test_every_setting_of_the_table_exists_and_every_other_option_has_its_reason() -> None:
    for option in TABLE:
        assert option.setting is None or option.setting in PumpSettings.model_fields, option.name
        assert option.components
        assert option.status is OptionStatus.HONOURED or len(option.note) > 10, option.name


def test_only_a_sender_leaves_modes_and_times_to_the_server(tmp_path: Path) -> None:
    text = "broker amqp://h/\nnofsetstat on\n"
    for component, kept in (("sender", False), ("subscribe", True)):
        settings = read_conf(conf(tmp_path, text, f"sr3/{component}"))
        assert (settings.preserve_mode, settings.preserve_time) == (kept, kept)


def test_no_option_is_dropped_silently(tmp_path: Path) -> None:
    notes = read_conf(conf(tmp_path, "bufSize 1M\nblockSize 5M\nacceptUnmached on\n")).notes
    assert [(each.option, each.reason) for each in notes] == [
        ("bufSize", "buffers follow the size of the files"),
        ("blockSize", "subscribe does not use it"),
        ("acceptUnmached", "unknown option; did you mean acceptUnmatched?"),
    ]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("queue_suffix a", "queueName"),
        ("tlsRigour lax", "always verified"),
        ("nodupe_driver redis", "kept on disk"),
        ("save on", "penstock pump save"),
        ("import mymodule", "install it beside them"),
        ("accept .* NOSUCH", "after the pattern"),
    ],
)
def test_what_is_refused_names_the_alternative(line: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=why):
        read_conf(conf(tmp_path, line + "\n"))


def test_an_option_that_the_component_does_not_use_is_not_set(tmp_path: Path) -> None:
    text = "broker amqp://h/\nblockSize 5M\npath /a\nsendTo ftp://h/\ndirectory /d\naccept .*\n"
    told = read_conf(conf(tmp_path, text, "sr3/shovel"))
    assert [each.option for each in told.notes] == ["blockSize", "path", "sendTo", "directory"]
    unused = {"blocksize", "path", "destination", "directory"}
    assert not unused & told.model_fields_set
    assert (told.select[0].directory, told.with_unused()) == (".", told)
    used = read_conf(conf(tmp_path, text, "sr3/sender"))
    assert (used.destination, used.select[0].directory) == ("ftp://h/", "/d")


def test_plugins_read_the_options_that_the_component_does_not_use(tmp_path: Path) -> None:
    text = "broker amqp://h/\nidentity md5\npost_baseDir /data\nsendTo ftp://h/\ncallback mine\n"
    told = read_conf(conf(tmp_path, text, "sr3/shovel"))
    assert (told.sum, told.post_base_dir, told.destination) == ("s", None, None)
    options = CallbackOptions(told.model_copy(update={"instance": 3}))
    assert (options.identity_method, options.post_baseDir) == ("md5", "/data")
    assert (options.sendTo, options.no) == ("ftp://h/", 3)
    options.post_baseUrl = "http://h/"
    changed = options.changed_settings()
    assert (changed.post_base_url, changed.post_base_dir) == ("http://h/", None)


def test_posters_use_the_options_of_modes_times_clusters_and_directories(tmp_path: Path) -> None:
    text = "preserve_mode off\npreserve_time off\ncluster here\n"
    posts = read_conf(conf(tmp_path, text, "sarra/watch"))
    assert (posts.preserve_mode, posts.preserve_time, posts.cluster) == (False, False, "here")
    polled = read_conf(conf(tmp_path, "directory /d\naccept .*\n", "sarra/poll"))
    assert (polled.select[0].directory, polled.notes) == ("/d", ())


def test_options_that_change_what_happens_to_data(tmp_path: Path) -> None:
    text = (
        "vip 10.0.0.1,10.0.0.2\nnotify_only on\ndiscard on\ndelete on\nsimulate on\n"
        "no_download off\nretry_ttl 1h\nfileEvents -rmdir\nheader flow=exp13\nqueueType quorum\n"
    )
    settings = read_conf(conf(tmp_path, text))
    assert settings.vip == ["10.0.0.1", "10.0.0.2"]
    assert (settings.download, settings.discard, settings.delete) == (True, True, True)
    assert settings.dry_run
    assert settings.events == frozenset(FileEvent) - {FileEvent.RMDIR}
    assert settings.headers == {"flow": "exp13"}
    assert settings.queue_arguments == {"x-queue-type": "quorum"}


def test_several_topic_prefixes_and_subtopics_of_posters(tmp_path: Path) -> None:
    text = (
        "broker amqp://h/\ntopicPrefix v02.post,v03\nsubtopic a.#\n"
        "exchange xb\ntopicPrefix v03\nsubtopic b.#\n"
    )
    found = [(each.exchange, each.key) for each in bindings(read_conf(conf(tmp_path, text)))]
    assert found == [("xpublic", "v02.post.a.#"), ("xpublic", "v03.a.#"), ("xb", "v03.b.#")]
    poster = read_conf(conf(tmp_path, "subtopic x.y\ninflight 10\nexchange xs_me\n", "c/watch"))
    assert (poster.post_subtopic, poster.min_age, poster.post_exchange) == ("x.y", 10.0, "xs_me")


def test_directories_are_announced_where_their_events_are_named(tmp_path: Path) -> None:
    assert read_conf(conf(tmp_path, "events create|rmdir\n", "sarra/watch")).folders
    assert not read_conf(conf(tmp_path, "events create\n", "sarra/watch")).folders


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("YYYYMMDD", "20240301"),
        ("YYYYMMDD-1D", "20240229"),
        ("YYYYMMDD-70m", "20240229"),
        ("YYYYMMDD-2D", "20240228"),
        ("HH-6H", "19"),
        ("JJJ", "061"),
        ("%Y%m%d", "20240301"),
        ("%o-1d%Y/%j", "2024/060"),
        ("%o+2h%H", "03"),
        ("SOURCE", "me"),
        ("BUP", "data/in"),
        ("BUPL", "in"),
        ("baseUrlPath", "data/in"),
        ("baseUrlPathLast", "in"),
        ("DR", "/base"),
        ("RYYYY", "2024"),
        ("RHH", "01"),
        ("BBB", "AAA"),
        ("T1", "S"),
        ("CCCC", "CWAO"),
        ("PLACE", "here"),
    ],
)
def test_variables(variable: str, value: str) -> None:
    at = int(datetime(2024, 3, 1, 1, 2, 3, tzinfo=UTC).timestamp()) * 10**9
    post = Post(
        moment=at, base_url="http://h/data/in/", relpath="a/SACN43_CWAO_010000_AAA", source="me"
    )
    assert PostVariables(post, {"PLACE": "here", "BD": "/base"})[variable] == value


def test_a_name_after_the_pattern(tmp_path: Path) -> None:
    text = "directory /d\naccept .*/([A-Z]+)/.* DESTFN=${1}_${%Y}\naccept .*old TIME\n"
    chosen = selection(read_conf(conf(tmp_path, text)))
    post = Post(moment=0, base_url="http://h/", relpath="a/SA/file")
    match = chosen.choose(post.url)
    assert isinstance(match, SelectionMatch)
    variables = PostVariables(post, {})
    placed = place(post.relpath, match.placement, variables, match.groups)
    assert placed.full == "/d/SA_1970"
    match = chosen.choose("http://h/old")
    assert isinstance(match, SelectionMatch)
    placed = place("old", match.placement, variables, match.groups)
    assert placed.full == "/d/old:19700101000000"


def test_group_zero_is_the_first_in_v2_and_the_whole_match_in_sr3(tmp_path: Path) -> None:
    text = "accept .*/(x)/.*\n"
    for dialect, groups in (("v2", ("x",)), ("sr3", ("http://h/x/f", "x"))):
        match = selection(read_conf(conf(tmp_path, f"dialect {dialect}\n{text}"))).choose(
            "http://h/x/f"
        )
        assert isinstance(match, SelectionMatch)
        assert match.groups == groups


def example_files() -> list[Path]:
    found = EXAMPLES.glob("python3*/site-packages/sarra*/examples/*/*.conf")
    return sorted(found)


@pytest.mark.skipif(not example_files(), reason="Sarracenia is not installed: scripts/peers")
def test_every_example_of_sarracenia_is_read_with_each_option_accounted_for() -> None:
    problems = []
    for path in example_files():
        try:
            settings = read_conf(path)
        except ConfigurationError as error:
            # One example has a pattern that no program can compile.
            if path.name != "sci2ec.conf" or "is not a regular expression" not in str(error):
                problems.append(f"{path}: {error}")
            continue
        plugins = bool(settings.plugins)
        told = {each.option for each in settings.notes}
        for line in path.read_text().splitlines():
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            option = find_option(words[0])
            if option is None and not plugins and words[0] not in told:
                problems.append(f"{path}: {words[0]} is dropped")
        is_sr3 = f"{Path('sarracenia/examples')}" in str(path)
        assert settings.dialect is (Dialect.SR3 if is_sr3 else Dialect.V2), path
        assert settings.component in Component
    assert not problems, "\n".join(problems)
    assert len(example_files()) > 70


#: What its own table of names has for plugins: options of callbacks, known where they are named.
OF_PLUGINS = re.compile("fdelay|filter_wmo2msc|pathReplace|msg_replace|baseurl", re.IGNORECASE)


@pytest.mark.skipif(not example_files(), reason="Sarracenia is not installed: scripts/peers")
def test_every_option_that_the_programs_themselves_know_is_in_the_table() -> None:
    program = """
import json, sarracenia.config as config
names = set()
for name, value in vars(config).items():
    if name.endswith("_options") and name != "default_options":
        names |= set(value)
names |= set(config.default_options) | set(config.Config.synonyms)
names |= set(config.Config.synonyms.values())
print(json.dumps(sorted(names)))
"""
    words = [str(PROGRAMS / "python"), "-c", program]
    found = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120).stdout
    sr3 = [name for name in json.loads(found) if not OF_PLUGINS.search(name)]
    (source,) = EXAMPLES.glob("python3*/site-packages/sarra/sr_config.py")
    v2: set[str] = set()
    for listed, one in re.findall(
        r"words0\s+in\s+\[([^\]]*)\]|words0\s*==\s*['\"](\w+)", source.read_text()
    ):
        v2 |= {one} if one else set(re.findall(r"['\"]([\w-]+)['\"]", listed))
    assert (len(sr3) > 250, len(v2) > 200) == (True, True)
    assert [name for name in (*sr3, *sorted(v2)) if find_option(name) is None] == []


def test_names_of_options_belong_to_one_row() -> None:
    seen: dict[str, str] = {}
    for option in TABLE:
        for name in option.names:
            key = re.sub("[_-]", "", name.lower())
            if name != "plugin":
                assert seen.setdefault(key, option.name) == option.name, name
