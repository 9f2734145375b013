"""Configurations that test_sr3_options.py gives sr3 and Penstock alike, and the feed for both.

Each case sets a few options. In its text `HERE` is the directory of the program that reads it, and
what is above a line `subtopic` applies to the queue.
"""

from __future__ import annotations

import hashlib
import os
import time
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

DAY: Final = 86400.0
#: Files by their paths, with content, mode and age in seconds.
FILES: Final[dict[str, tuple[str, int, float]]] = {
    "a/b/one.txt": ("content of one\n", 0o640, 7200.0),
    "a/b/two.txt": ("content of two\n", 0o600, 3 * DAY),
    "a/b/copy.txt": ("content of one\n", 0o644, 100.0),
    "a/b/inline.txt": ("inlined\n", 0o644, 100.0),
    "a/b/gone.txt": ("soon removed\n", 0o644, 100.0),
    "a/c/SACN43_CWAO_012000_AAA.dat": ("bulletin\n", 0o644, 100.0),
    "a/c/what:head:SENDER=them.dat:rest": ("fields of a switch\n", 0o644, 100.0),
    "a/c/large.bin": ("0123456789" * 500, 0o664, 100.0),
    "a/sp ace/na me#.txt": ("blanks\n", 0o644, 100.0),
    "d/e/f/one.txt": ("another one\n", 0o755, 100.0),
    "d/late.txt": ("of a late announcement\n", 0o644, 100.0),
    "base/p/q.txt": ("below a base URL\n", 0o644, 100.0),
    "w/wrong.txt": ("not of the announced size\n", 0o644, 100.0),
}


def write_files(folder: Path) -> None:
    now = time.time()
    for name, (content, mode, age) in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
        path.chmod(mode)
        os.utime(path, (now - age, now - age))


def moment(at: float) -> str:
    return time.strftime("%Y%m%dT%H%M%S", time.gmtime(at)) + ".5"


def identity(content: str, method: str = "sha512") -> dict[str, str]:
    digest = hashlib.new(method, content.encode()).digest()
    return {"method": method, "value": b64encode(digest).decode()}


class Feed:
    """The announcements of the files below a server, as sr3 would write them."""

    def __init__(self, folder: Path, base_url: str) -> None:
        self._folder, self._base_url = folder, base_url.rstrip("/") + "/"
        self._now = time.time()

    def _file(self, name: str, age: float = 0.0, **others: Any) -> dict[str, Any]:
        status = (self._folder / name).stat()
        return {
            "pubTime": moment(self._now - age),
            "baseUrl": self._base_url,
            "relPath": name,
            "size": status.st_size,
            "mode": f"{status.st_mode & 0o777:o}",
            "mtime": moment(status.st_mtime),
            "atime": moment(status.st_atime),
            "identity": identity(FILES[name][0]),
            "source": "them",
            **others,
        }

    def _operation(self, name: str, **operation: str) -> dict[str, Any]:
        return {
            "pubTime": moment(self._now),
            "baseUrl": self._base_url,
            "relPath": name,
            "fileOp": operation,
            "source": "them",
        }

    def usual(self) -> Iterator[dict[str, Any]]:
        """Files and operations that every component can handle."""
        yield self._file("a/b/one.txt", flow="exp13")
        yield self._file("a/b/two.txt", identity=identity(FILES["a/b/two.txt"][0], "md5"))
        yield self._file("a/b/one.txt")  # announced again
        yield self._file("a/b/copy.txt")
        content = {"encoding": "utf-8", "value": FILES["a/b/inline.txt"][0]}
        yield self._file("a/b/inline.txt", content=content)
        yield self._file("a/c/SACN43_CWAO_012000_AAA.dat")
        yield self._file("a/c/what:head:SENDER=them.dat:rest")
        yield self._file("a/c/large.bin")
        yield self._file("a/sp ace/na me#.txt")
        yield self._file("d/e/f/one.txt")
        yield self._file("d/late.txt", age=2 * DAY)
        yield self._operation("a/b/link", link="one.txt")
        yield self._operation(
            "m/n",
            directory="",
        )
        yield self._operation("m/r", directory="")
        yield self._operation("m/r", remove="", directory="")
        yield self._file("a/b/gone.txt")
        yield self._operation("a/b/gone.txt", remove="")
        base = self._file("base/p/q.txt")
        yield base | {"baseUrl": f"{self._base_url}base", "relPath": "p/q.txt"}

    def wrong(self) -> Iterator[dict[str, Any]]:
        yield self._file("w/wrong.txt", size=3)
        yield self._file("a/b/one.txt")


def topic_of(body: dict[str, Any]) -> str:
    return ".".join(["v03", *body["relPath"].split("/")[:-1]])


@dataclass(frozen=True, slots=True)
class OptionCase:
    name: str
    options: tuple[str, ...]  #: that it is about
    text: str  #: below the subtopic
    queue: str = "subtopic #\n"
    component: str = "subscribe"
    feed: str = "usual"
    posts: bool = False  #: announces what it has done

    def __str__(self) -> str:
        return self.name


_PLAIN: Final = "directory HERE\nmirror on\n"
#: The copies are announced.
_MINE: Final = "post_baseUrl http://me/\npost_baseDir HERE\n"


def _case(name: str, options: str, text: str, **others: Any) -> OptionCase:
    return OptionCase(name, tuple(options.split()), text, **others)


SUBSCRIBERS: Final = (
    _case("defaults", "directory mirror", "directory HERE\n"),
    _case("mirror", "mirror", _PLAIN),
    _case(
        "patterns",
        "accept reject acceptUnmatched",
        f"{_PLAIN}reject .*two.*\naccept .*/a/b/.*\naccept .*/d/.*\nacceptUnmatched off\n",
    ),
    _case(
        "placement",
        "accept directory mirror strip flatten",
        "directory HERE/one\nmirror off\naccept .*/a/b/.*\ndirectory HERE/two\nmirror on\n"
        "strip 1\naccept .*/a/c/.*\nstrip 0\nflatten _\naccept .*/d/.*\n"
        "flatten /\nstrip .*/sp\naccept .*ace.*\nstrip 0\ndirectory HERE/rest\n",
    ),
    _case("strip", "strip", "mirror on\ndirectory HERE\nstrip 2\n"),
    _case("flatten", "flatten", "mirror on\nflatten -\ndirectory HERE\n"),
    _case(
        "names",
        "filename accept",
        "directory HERE/w\nfilename WHATFN\naccept .*what:.*\n"
        "directory HERE/h\nfilename HEADFN\naccept .*SACN43.*\nfilename None\n"
        "accept .*/two.txt DESTFN=renamed\nreject .*\n",
    ),
    _case(
        "sender names",
        "filename",
        "directory HERE/s\nfilename SENDER\naccept .*what:.*\nfilename NONE\ndirectory HERE/n\n"
        "accept .*/a/.*\nreject .*\n",
    ),
    _case(
        "times in names",
        "filename",
        "directory HERE/t\naccept .*what:.* NONE:TIME\naccept .*SACN.* WHATFN:TIME\nreject .*\n",
    ),
    _case(
        "variables",
        "directory source declare",
        "declare env PLACE=here\nmirror off\n"
        "directory HERE/${PLACE}/${YYYYMMDD}/${SOURCE}/${%Y-%m}/${YYYYMMDD-1d}/${JJJ}/${HH}\n"
        "reject .*late.*\n",  # the time of the announcement, not of the transfer
    ),
    _case(
        "groups",
        "accept sundew_compat_regex_first_match_is_zero",
        "sundew_compat_regex_first_match_is_zero on\ndirectory HERE/${0}/${1}\n"
        "accept .*/(a)/(b|c)/.*\nreject .*\n",
    ),
    _case(
        "whole match", "accept directory", "directory HERE/${1}\naccept .*/(a|d)/.*\nreject .*\n"
    ),
    _case("base url", "baseUrl_relPath", f"baseUrl_relPath on\n{_PLAIN}"),
    _case("base path", "directory", "directory HERE/${BUP}/${BUPL}\nmirror on\naccept .*\n"),
    _case("no links", "fileEvents", f"fileEvents create,modify,delete,mkdir\n{_PLAIN}"),
    _case("only links", "fileEvents", f"fileEvents link,mkdir\n{_PLAIN}"),
    _case("fewer events", "fileEvents", f"fileEvents -delete,rmdir\n{_PLAIN}"),
    _case("given modes", "permCopy permDefault", f"permCopy off\npermDefault 600\n{_PLAIN}"),
    _case(
        "default modes",
        "permDefault permDirDefault",
        f"permDefault 606\npermDirDefault 700\n{_PLAIN}",
    ),
    _case("no times", "timeCopy", f"timeCopy off\n{_PLAIN}"),
    _case("nofsetstat", "nofsetstat", f"nofsetstat on\n{_PLAIN}"),
    _case("old messages", "messageAgeMax", _PLAIN, queue="messageAgeMax 1d\nsubtopic #\n"),
    _case("old files", "fileAgeMax", f"fileAgeMax 1d\n{_PLAIN}"),
    _case("large files", "fileSizeMax", f"fileSizeMax 4k\n{_PLAIN}"),
    _case(
        "topics",
        "subtopic topicPrefix",
        _PLAIN,
        queue="topicPrefix v03\nsubtopic a.*\nsubtopic d.#\n",
    ),
    _case("inflight suffix", "inflight", f"inflight .part\n{_PLAIN}"),
    _case("inflight folder", "inflight", f"inflight tmp/\n{_PLAIN}"),
    _case("inflight prefix", "inflight", f"inflight .\n{_PLAIN}"),
    _case("inflight none", "inflight", f"inflight none\n{_PLAIN}"),
    _case("any size", "acceptSizeWrong", f"acceptSizeWrong on\n{_PLAIN}", feed="wrong"),
    _case("overwrite off", "overwrite", f"overwrite off\n{_PLAIN}"),
)
POSTING: Final = (
    _case(
        "again",
        "post_baseUrl post_baseDir",
        f"{_PLAIN}{_MINE}",
    ),
    _case(
        "base of source",
        "post_baseUrl",
        f"{_PLAIN}post_baseUrl http://me/${{SOURCE}}\npost_baseDir HERE\n",
    ),
    _case(
        "not downloaded",
        "download",
        f"download off\n{_PLAIN}post_baseDir HERE\naccept .*\n",
    ),
    _case(
        "topic",
        "post_topicPrefix post_format",
        f"{_PLAIN}post_topicPrefix v02.post\npost_format v02\n{_MINE}",
    ),
    _case(
        "header",
        "header",
        f"{_PLAIN}header colour=red\n{_MINE}",
    ),
    _case(
        "once",
        "nodupe_ttl",
        f"nodupe_ttl 300\n{_PLAIN}{_MINE}",
    ),
    _case(
        "once by data",
        "nodupe_basis",
        f"nodupe_ttl 300\nnodupe_basis data\n{_PLAIN}{_MINE}reject .*gone.*\n",
    ),
    _case(
        "once by name",
        "nodupe_basis",
        f"nodupe_ttl 300\nnodupe_basis name\n{_PLAIN}{_MINE}",
    ),
    _case(
        "source of the exchange",
        "sourceFromExchange",
        f"{_PLAIN}{_MINE}",
        queue="sourceFromExchange on\nsubtopic #\n",
    ),
    _case("a source", "source", f"source us\n{_PLAIN}{_MINE}"),
    _case(
        "shovel",
        "accept acceptUnmatched",
        "accept .*/a/.*\nacceptUnmatched off\n",
        component="shovel",
    ),
    _case("shovel topic", "topicCopy", "topicCopy on\naccept .*\n", component="shovel"),
    _case(
        "shovel prefix",
        "post_topicPrefix",
        "post_topicPrefix other.v03\naccept .*\n",
        component="shovel",
    ),
    _case(
        "shovel base", "post_baseUrl", "post_baseUrl http://me/\naccept .*\n", component="shovel"
    ),
    _case("winnow", "nodupe_ttl", "nodupe_ttl 300\naccept .*\n", component="winnow"),
    _case(
        "winnow data",
        "nodupe_basis",
        "nodupe_ttl 300\nnodupe_basis data\nreject .*gone.*\n",
        component="winnow",
    ),
    _case("winnow default", "nodupe_ttl", "accept .*\n", component="winnow"),
    _case(
        "sarra",
        "post_baseUrl post_baseDir",
        f"{_PLAIN}{_MINE}",
        component="sarra",
    ),
)
