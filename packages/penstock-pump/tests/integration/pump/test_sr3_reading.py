"""Configurations as sr3 itself reads them: the same subscriptions, publishers, patterns and values.

sr3 3.3.1 reads its own examples and a few files with every notation, and prints what it has found.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from penstock.core.errors import ConfigurationError
from penstock_pump.components.factory import base_dir, bindings, post_copies, subscriptions
from penstock_pump.config.dialect import Dialect
from penstock_pump.config.options import TABLE, ConfOption, OptionStatus, find_option
from penstock_pump.config.sarracenia import read_conf
from penstock_pump.config.settings import Component, PumpSettings
from penstock_pump.config.values import sr3_seconds
from penstock_pump.names import posted_exchange, user_of
from penstock_pump.posts.post import FileEvent
from tests.integration.pump.sarracenia import PROGRAMS

EXAMPLES: Final = sorted(PROGRAMS.parent.glob("lib/python3*/site-packages/sarracenia/examples"))
pytestmark = pytest.mark.skipif(not EXAMPLES, reason="sr3 is not installed: scripts/peers")

READING: Final = """
import json, logging, sys
import sarracenia.config
logging.disable(logging.CRITICAL)
found = {}
for name in sys.argv[1:]:
    component, _, file = name.partition("/")
    sys.argv = ["sr3", "show", name]
    read = sarracenia.config.one_config(component, file.removesuffix(".conf"), "show")
    values = {key: getattr(read, key, None) for key in vars(read)}
    values["broker"], values["post_broker"] = str(read.broker), str(read.post_broker)
    values["subscriptions"] = [
        (str(each["broker"]), bound["exchange"] if "exchange" in bound else None, bound["topic"])
        for each in read.subscriptions for bound in each["bindings"]
    ]
    values["queues"] = len(read.subscriptions)
    values["publishers"] = [
        {**each, "broker": str(each["broker"])} for each in read.publishers
    ]
    values["masks"] = [(*each[:3], *each[4:]) for each in read.masks]
    found[name] = values
json.dump(found, sys.stdout, default=lambda each: sorted(each) if type(each) is set else str(each))
"""
#: Every notation of values, and options whose place in the file matters.
WRITTEN: Final = {
    "subscribe/values.conf": """
declare env PLACE=here
declare var KIND=radar
broker amqp://me@h/
exchange xone
topicPrefix v02/post
queueName q_${BROKER_USER}.${COMPONENT}.${CONFIG}.${PLACE}
expire 1d12h
prefetch 1k
messageAgeMax 1h30m
retry_ttl 2w
timeout 90
housekeeping 5m
batch 1ki
instances 3
subtopic a.*.#
subtopic b.#
exchange xtwo
topicPrefix v03
subtopic c.#
topic just.this.one
source us
directory ~/data/${PLACE}/${SOURCE}/${%Y%m%d}
filename None
mirror on
strip 2
accept .*/one/.*
filename NONE
flatten _
accept .*/two/(.*) DESTFN=${0}
reject .*\\.tmp
strip .*/three/
filename None
flatten none
directory /${KIND}
accept .*/three/.*
byteRateMax 10k
fileSizeMax 1.5Mb
fileAgeMax 1M
nodupe_ttl 20m
nodupe_basis path
fileEvents create,modify
messageRateMax 2.5
messageCountMax 1k
attempts 2
permDefault 640
permDirDefault 750
permCopy off
acceptUnmatched no
logReject on
delete yes
vip 10.0.0.1
""",
    "subscribe/brokers.conf": """
broker amqp://one.example.org/
subtopic a.#
broker amqp://two@two.example.org/
subtopic b.#
broker mqtt://three@three.example.org/
exchange x3
subtopic c/#
directory /tmp
fileEvents -rmdir,mkdir
nodupe_ttl on
kbytes_ps 10
""",
    "subscribe/defaults.conf": "broker amqp://me@h/\n",
    "shovel/defaults.conf": (
        "broker amqp://me@h/\nexchangeSuffix in\npost_broker amqp://me@h/\n"
        "post_exchangeSuffix out\npost_exchangeSplit 3\n"
    ),
    "sarra/off.conf": (
        "broker amqp://me@h/\nexchange x\ntopicPrefix none\nsubtopic a.b\n"
        "post_broker amqp://me@h/\npost_exchange y\npost_baseUrl file:/data\n"
        "directory /data/in\ndirectory none\nsource a\nsource off\npost_topicPrefix v02.post\n"
        "nodupe_ttl off\nfileEvents none\nkbytes_ps 10k\n"
    ),
    "watch/values.conf": (
        "post_broker amqp://me@h/\npost_baseUrl sftp://me@h//srv/\npath ~/a b\npath /c\n"
        "sleep 1m30s\nblockSize 50M\ninlineByteMax 8ki\ninline on\nfileAgeMin 10\nrecursive off\n"
        "fileEvents +mkdir\nidentity md5\nrename /a/b\nfollow_symlinks on\nrandomize on\n"
    ),
    "watch/two.conf": (
        "post_broker amqp://me@one/\npost_exchange xone\npost_baseUrl http://one/\n"
        "post_broker mqtt://me@two/\npost_exchange xtwo\npost_baseUrl http://two/\n"
        "post_baseDir /data\npath /data\n"
    ),
    "post/inline.conf": (
        "post_broker amqp://me@h/\npost_baseUrl http://h/\npath /c\ninlineByteMax 9k\n"
        "post_exchange xs\nidentity cod,sha512\npersistent off\npost_messageAgeMax 1h\n"
    ),
    "sender/values.conf": (
        "broker amqp://me@h/\nsendTo sftp://you@there/\nbaseDir /out\ninflight .part\n"
        "post_broker amqp://me@h2/\npost_baseUrl http://there/\ntimeCopy off\n"
    ),
}
#: Values that differ on purpose, or where sr3's are in other units.
OTHERS: Final = {
    "httpUserAgent": "each program has its own",
    "prefetch": "more messages at a time, for batches",
    "hostname": "the machine's name where it is not set",
    "logLevel": "the program's own",
    "retry_ttl": "two days where it is not set; docs/differences/sarracenia.md",
    "source": "the user of the broker where it is not set",
    "inlineEncoding": "guess is auto",
    "queueName": "compared by its prefix",
    "exchange": "compared by the subscriptions",
    "topicPrefix": "compared by the subscriptions",
    "broker": "compared by the subscriptions",
    "vip": "sr3 has a comment as a value in one example",
    "strip": "compared by the patterns",
    "nodupe_basis": "becomes a plugin of sr3's",
    "identity": "sr3 has identity_method",
    "sleep": "sr3 turns that of a poll into scheduled_interval",
    "scheduled_interval": "the same",
    "inlineByteMax": "compared where inline is on",
    "directory": "compared by the patterns",
    "flatten": "compared by the patterns",
    "kbytes_ps": "becomes byteRateMax",
    "fileEvents": "compared by themselves",
}
PUBLISHING: Final = {
    "post_broker",
    "post_baseUrl",
    "post_baseDir",
    "post_exchange",
    "post_topicPrefix",
}


def example_texts() -> Iterator[tuple[str, str]]:
    for path in EXAMPLES[0].glob("*/*"):
        if path.suffix == ".conf":
            yield f"{path.parent.name}/{path.name}", path.read_text()
        # Files to include are read as if they were configurations; each can stand by itself.
        elif path.suffix == ".inc":
            component = "shovel" if path.parent.name == "cpump" else path.parent.name
            yield f"{component}/{path.stem}_inc.conf", path.read_text()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Configurations in sr3's folder, with a password for each URL that they name."""
    home = tmp_path_factory.mktemp("home")
    folder = home / "sr3"
    shutil.copytree(EXAMPLES[0], folder)
    urls = set()
    for name, text in (*example_texts(), *WRITTEN.items()):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        # sr3 leaves a broker out whose name is an undefined variable.
        text = re.sub(r"\$\{(FLOWBROKER|PITCHERBROKER)\}/?", "h", text)
        text = re.sub(r"(broker\s+)(h\s)", r"\1amqp://guest@\2", text)
        text = re.sub(r"\$\{(SCIUSER|COLLABUSER)\}", "me", text)
        path.write_text(text)
        for url in re.findall(r"^\s*\w+\s+(\w+://\S+@\S+)", text, re.MULTILINE):
            parts = urlsplit(url)
            urls.add(f"{parts.scheme}://{parts.username}:x@{parts.hostname}/")
    (folder / "credentials.conf").write_text("\n".join(sorted(urls)) + "\n")
    return home


@pytest.fixture(scope="module")
def theirs(home: Path) -> dict[str, dict[str, Any]]:
    names = [f"{each.parent.name}/{each.name}" for each in sorted((home / "sr3").glob("*/*.conf"))]
    environment = {**os.environ, "XDG_CONFIG_HOME": str(home), "XDG_CACHE_HOME": str(home / "c")}
    (home / "c" / "sr3").mkdir(parents=True)
    read = subprocess.run(
        [str(PROGRAMS / "python"), "-c", READING, *names],
        capture_output=True, text=True, check=True, timeout=120, env=environment,
    )  # fmt: skip
    found: dict[str, dict[str, Any]] = json.loads(read.stdout)
    assert len(found) > 60
    return found


@pytest.fixture(scope="module")
def ours(home: Path, theirs: dict[str, Any]) -> dict[str, PumpSettings]:
    found = {}
    for name in theirs:
        if name == "subscribe/sci2ec.conf":  # it has a pattern that no program can compile
            with pytest.raises(ConfigurationError, match="is not a regular expression"):
                read_conf(home / "sr3" / name)
        else:
            found[name] = read_conf(home / "sr3" / name)
    return found


def without_end(url: str | None) -> str:
    return (url or "").rstrip("/").replace(":anonymous@", "@").lower()


def test_the_same_exchanges_and_topics_at_the_same_brokers(
    theirs: dict[str, Any], ours: dict[str, PumpSettings]
) -> None:
    compared = 0
    for name, settings in ours.items():
        wanted = {
            (without_end(broker), exchange, topic)
            for broker, exchange, topic in theirs[name]["subscriptions"]
        }
        # A poll of sr3 subscribes to what it posts, for several machines with one address.
        if settings.component in (Component.POST, Component.WATCH, Component.POLL) or not wanted:
            continue
        found: set[tuple[str, str | None, str]] = set()
        for each in subscriptions(settings):
            for bound in bindings(each):
                if each.broker.startswith("mqtt"):
                    share = next(t for b, _, t in wanted if b == without_end(each.broker))
                    levels = share.split("/")[:2]  # $share and the queue
                    topic = "/".join([*levels, bound.exchange, *bound.key.split(".")])
                    found.add((without_end(each.broker), None, topic))
                else:
                    found.add((without_end(each.broker), bound.exchange, bound.key))
        assert found == wanted, name
        assert len(subscriptions(settings)) == theirs[name]["queues"], name
        compared += 1
    assert compared > 30


def test_the_same_posts_go_to_the_same_brokers(
    theirs: dict[str, Any], ours: dict[str, PumpSettings]
) -> None:
    compared = 0
    for name, settings in ours.items():
        every = [*post_copies(settings), settings]
        publishers = theirs[name]["publishers"]
        # One example has the same publisher twice, with two topics.
        if name != "poll/usgs.conf" and publishers:
            assert len(every) == len(publishers), name
        bases = [*(each.base_url for each in settings.post_copies), settings.post_base_url]
        for target, base, publisher in zip(
            every[::-1], bases[::-1], publishers[::-1], strict=False
        ):
            url = target.post_broker or target.broker
            assert without_end(url) == without_end(publisher["broker"]), name
            exchange, split = posted_exchange(target, url), target.post_exchange_split
            named = [f"{exchange}{number:02d}" for number in range(split)] if split else [exchange]
            assert named == publisher["exchange"], name
            assert target.post_format == publisher["format"], name
            # sr3 forwards with the prefix that it reads; ours is that of the format.
            if target.post_topic_prefix is not None:
                assert target.post_topic_prefix == ".".join(publisher["topicPrefix"]), name
            # sr3 does not know this spelling of the option.
            if name != "sarra/wmo_mesh.conf":
                assert (base or settings.poll_url) == publisher["baseUrl"], name
            if publisher["baseDir"] is not None and publisher["baseDir"].strip("/"):
                wanted = publisher["baseDir"].rstrip("/").replace("//", "/")
                assert str(base_dir(settings)).replace("//", "/") == wanted, name
            compared += 1
    assert compared > 20


def test_the_same_patterns_with_the_same_placement(
    theirs: dict[str, Any], ours: dict[str, PumpSettings]
) -> None:
    compared = 0
    for name, settings in ours.items():
        # `get` is v2's.
        rules = [each for each in settings.select if name != "poll/nasa-mls-nrt.conf"]
        masks = theirs[name]["masks"]
        assert len(rules) == len(masks), name
        for rule, mask in zip(rules, masks, strict=True):
            pattern, directory, filename, accepts, mirror, strip, to_strip, flatten, words = mask
            assert (rule.accept or rule.reject).pattern == pattern, name  # type: ignore[union-attr]
            assert (rule.accept is not None) == accepts, name
            assert (rule.directory or ".") == (directory or "."), name
            assert (rule.filename, rule.mirror) == (filename, mirror), (name, pattern)
            assert rule.flatten == (flatten or "/"), (name, pattern)
            assert rule.arguments == words, (name, pattern)
            if to_strip:
                assert rule.strip.pattern.lstrip("/") == to_strip, name  # type: ignore[union-attr]
            else:
                assert rule.strip == strip, name
            compared += 1
    assert compared > 60


def honoured(settings: PumpSettings) -> Iterator[ConfOption]:
    for option in TABLE:
        used = option.status is OptionStatus.HONOURED and settings.component in option.components
        if used and option.setting and option.name not in (OTHERS.keys() | PUBLISHING):
            yield option


def plain(value: object) -> object:
    """sr3 has numbers as text where an option has no type of its own."""
    if value in (None, "", [], 0, False, "None"):
        return None
    if isinstance(value, list):
        value = ",".join(map(str, value))
    if isinstance(value, str) and re.fullmatch(r"\d+(\.\d+)?[smhd]?", value):
        return sr3_seconds(value)
    return str(value) if isinstance(value, Path) else value


def test_the_same_values(theirs: dict[str, Any], ours: dict[str, PumpSettings]) -> None:
    compared, different = 0, []
    for name, settings in ours.items():
        for option in honoured(settings):
            if option.name not in theirs[name]:
                continue
            wanted, found = theirs[name][option.name], getattr(settings, option.setting or "")
            if plain(found) != plain(wanted):
                different.append((name, option.name, found, wanted))
            compared += 1
    assert different == []
    assert compared > 1000


def test_the_values_of_the_written_files(
    theirs: dict[str, Any], ours: dict[str, PumpSettings]
) -> None:
    values, watch = ours["subscribe/values.conf"], ours["watch/values.conf"]
    assert values.queue == theirs["subscribe/values.conf"]["queueName"].replace(
        "${BROKER_USER}.${COMPONENT}.${CONFIG}", "me.subscribe.values"
    ).replace("${PLACE}", "here")
    assert values.retry_ttl == theirs["subscribe/values.conf"]["retry_ttl"]
    assert (values.sum, watch.sum) == ("s", "d")
    for name in ("subscribe/brokers.conf", "sarra/off.conf"):
        assert ours[name].bandwidth == theirs[name]["byteRateMax"]
    assert theirs["watch/values.conf"]["identity_method"] == "md5"
    assert watch.inline == theirs["watch/values.conf"]["inlineByteMax"] == 8192
    assert ours["post/inline.conf"].inline == 0
    assert theirs["post/inline.conf"]["inline"] is False
    assert watch.post_base_url is not None
    assert user_of(ours["subscribe/brokers.conf"].broker) == "three"


def test_the_same_events(theirs: dict[str, Any], ours: dict[str, PumpSettings]) -> None:
    """A post does not tell whether a file was created or modified."""
    for name, settings in ours.items():
        named = {"modify" if each == "create" else each for each in theirs[name]["fileEvents"]}
        assert settings.events == {FileEvent(each) for each in named}, name


def test_every_option_of_the_examples_is_accounted_for(
    home: Path, ours: dict[str, PumpSettings]
) -> None:
    """Honoured, without effect with a reason, for a plugin, or noted as unknown."""
    for name, settings in ours.items():
        assert settings.dialect is Dialect.SR3
        told = {each.option for each in settings.notes}
        for line in (home / "sr3" / name).read_text().splitlines():
            word = (line.split() or ["#"])[0]
            if word.startswith("#") or word in told or word in settings.plugin_options:
                continue
            assert find_option(word) is not None, (name, word)
