"""v2's plugins: a file with functions or a class, named by `on_message`, `on_file`, `plugin`, ….

The file is executed with `self`, as v2 does. It sets `self.on_message = function`, or
`self.plugin = 'Class'`, or has a function called as the event. A function gets the component, which
has `msg`, `logger` and the options, and returns False to stop the processing. Functions are not
called concurrently.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import tzinfo
from pathlib import Path
from threading import RLock
from typing import Any, Final
from urllib.parse import urlsplit

from penstock.core.errors import ConfigurationError
from penstock.core.logs import get_logger
from penstock_pump.callbacks.listing_entries import listed_entry, listing_line
from penstock_pump.callbacks.options import CallbackOptions
from penstock_pump.config.options import TABLE, OptionStatus
from penstock_pump.config.settings import Component, PumpSettings
from penstock_pump.files.target import LocalTarget
from penstock_pump.names import user_of
from penstock_pump.posts.codec import read_moment, v02_moment
from penstock_pump.posts.post import Post
from penstock_pump.posts.reports import PostReport
from penstock_pump.posts.topics import routing_key, topic_words
from penstock_pump.posts.v02 import V02, post_of, split_body
from penstock_pump.transports.listing import ListedFile

log = get_logger(__name__)

#: What v2 has plugins for by default, and every component here does by itself.
NATIVE: Final = frozenset(
    {"none", "msg_log", "msg_rawlog", "msg_dump", "post_log", "file_log", "hb_memory", "hb_pulse"}
    | {f"{kind}_total{save}" for kind in ("msg", "post", "file") for save in ("", "_save")}
    | {"accel_wget", "accel_scp", "accel_cp", "msg_stdfiles", "msg_by_source", "msg_by_user"}
)
#: Plugins that v2 ships, and those of sr3 that do the same. A file of the site's own comes first.
SHIPPED: Final = {
    "msg_hour_tree": "accept.hourtree",
    "msg_http_to_https": "accept.httptohttps",
    "msg_print_lag": "accept.printlag",
    "msg_rename4jicc": "accept.rename4jicc",
    "msg_rename_whatfn": "accept.renamewhatfn",
    "msg_save": "accept.save",
    "msg_speedo": "accept.speedo",
    "msg_sundew_pxroute": "accept.sundewpxroute",
    "msg_test_retry": "accept.testretry",
    "msg_to_clusters": "accept.toclusters",
    "msg_2localfile": "accept.tolocalfile",
    "msg_delete": "filter.deleteflowfiles",
    "msg_fdelay": "filter.fdelay",
    "msg_rename_dmf": "accept.renamedmf",
    "msg_replace_new_dir": "accept.pathreplace",
    "msg_wmo_type_suffix": "accept.wmotypesuffix",
    "post_hour_tree": "accept.posthourtree",
    "post_long_flow": "accept.longflow",
    "post_override": "accept.postoverride",
    "wmo2msc": "filter.wmo2msc",
    "file_age": "work.age",
    "file_email": "send.email",
}
_EVENTS: Final = {"on_msg": "on_message", "on_rpt": "on_report", "on_hb": "on_heartbeat"}
EVENTS: Final = (
    *("on_message", "on_file", "on_part", "on_post", "on_report", "on_start", "on_stop"),
    *("on_heartbeat", "do_download", "do_send", "do_poll", "on_line", "on_html_page", "on_watch"),
)
#: Events of v2 that the table of options refuses, with the reasons.
REFUSED: Final = {
    name: option.note
    for option in TABLE
    if option.status is OptionStatus.REFUSED
    for name in option.v2
    if name.startswith(("on_", "do_"))
}

V2Function = Callable[[Any], Any]


class V2Message:
    """A message with the attributes that v2's plugins read and set."""

    def __init__(self, post: Post, target: LocalTarget | None) -> None:
        self._urlstr = ""  #: as a plugin sets it
        encoded = V02().encode(replace(post, content=None))
        self.headers: dict[str, Any] = dict(encoded.headers)
        self.notice = str(encoded.body)
        self.pubtime, self.baseurl, self.relpath, _ = split_body(self.notice.encode())
        self.topic = routing_key(V02.prefix, topic_words(post.relpath))
        self.new_baseurl, self.new_relpath = self.baseurl, self.relpath
        folder, _, name = (
            ("", "", post.name) if target is None else target.full_path.rpartition("/")
        )
        self.new_dir, self.new_file = folder, name
        self.sumstr, self.partstr = self.headers.get("sum"), self.headers.get("parts")
        self.isRetry = False
        self.code = 0  #: of a report

    @property
    def urlstr(self) -> str:
        return self._urlstr or self.baseurl.rstrip("/") + "/" + self.relpath.lstrip("/")

    @urlstr.setter
    def urlstr(self, url: str) -> None:
        self._urlstr = url

    def set_notice(self, baseurl: str, relpath: str, time: str | None = None) -> None:
        self.baseurl, self.relpath, self._urlstr = baseurl, relpath, ""
        self.pubtime = time or self.pubtime

    def set_parts(
        self, method: str = "1", size: int = 0, count: int = 1, rest: int = 0, current: int = 0
    ) -> None:
        self.partstr = self.headers["parts"] = f"{method},{size},{count},{rest},{current}"

    def get_elapse(self) -> float:
        return time.time() - read_moment(self.pubtime) / 1e9

    def report_publish(self, *arguments: Any) -> None:
        """The component reports by itself."""

    def post(self) -> Post:
        relpath = self.relpath.replace("%20", " ").replace("%23", "#")
        return post_of(self.pubtime, self.baseurl, relpath, self.headers)


class V2Parent(CallbackOptions):
    """The component, as v2's plugins see it."""

    def __init__(self, settings: PumpSettings) -> None:
        super().__init__(settings)
        self.logger = logging.getLogger("penstock_pump.v2_plugins")
        self.msg: V2Message | None = None
        self.user_cache_dir = str(settings.state or "")
        self.program_dir = "penstock"
        self.line = ""  #: of a listing, for `on_line`
        self.data = ""  #: an index page, for `on_html_page`
        self.entries: dict[str, str] = {}  #: what it lists
        is_poll = settings.component is Component.POLL
        self.destination = settings.poll_url if is_poll else settings.destination
        self.posts: list[Post] = []  #: what `do_poll` has found

    def post(
        self,
        post_exchange: str | None,
        post_base_url: str,
        post_relpath: str,
        to_clusters: str | None = None,
        partstr: str | None = None,
        sumstr: str | None = None,
        rename: str | None = None,
        mtime: str | None = None,
        atime: str | None = None,
        mode: int | None = None,
        link: str | None = None,
    ) -> bool:
        """Called by `do_poll`. The component publishes to its own exchange, once it returns."""
        settings = self._settings
        headers = {
            "parts": partstr, "sum": sumstr, "rename": rename, "mtime": mtime, "atime": atime,
            "mode": None if mode is None else f"{mode & 0o7777:o}", "link": link,
            "source": settings.source or user_of(settings.post_broker or settings.broker),
            "from_cluster": settings.cluster, "to_clusters": to_clusters,
        }  # fmt: skip
        given = {name: value for name, value in headers.items() if value is not None}
        moment = v02_moment(time.time_ns())
        self.posts.append(post_of(moment, post_base_url, post_relpath.lstrip("/"), given))
        return True


class V2Plugins:
    def __init__(self, settings: PumpSettings) -> None:
        self.parent = V2Parent(settings)
        self._functions: dict[str, list[V2Function]] = {event: [] for event in EVENTS}
        self._lock = RLock()

    def load(self, event: str, name: str, paths: Sequence[Path]) -> str | None:
        """The name of the plugin of sr3 that does the same, if there is no such file."""
        plain = name.strip().removesuffix(".py")
        if plain.lower() in NATIVE:
            return None
        event = _EVENTS.get(event, event)
        for folder in paths:
            file = folder / f"{plain}.py"
            if file.is_file():
                self._execute(event, file)
                return None
        if plain.lower() in SHIPPED:
            return SHIPPED[plain.lower()]
        raise ConfigurationError(
            f"{event} {name}: no file {plain}.py in {', '.join(map(str, paths)) or 'plugin_path'}"
        )

    def _execute(self, event: str, file: Path) -> None:
        """The file assigns to attributes of `self`, which is a plain object here."""
        assigned = _Assigned(self.parent)
        names: dict[str, Any] = {"self": assigned, "__name__": file.stem, "__file__": str(file)}
        try:
            exec(compile(file.read_text(), str(file), "exec"), names)  # noqa: S102 - the site's own
            if isinstance(plugin := assigned.__dict__.get("plugin"), str):
                instance = names[plugin](self.parent)
                found = {each: getattr(instance, each, None) for each in (*EVENTS, *REFUSED)}
            else:
                found = {
                    each: assigned.__dict__.get(each) or names.get(each)
                    for each in (*EVENTS, *REFUSED)
                }
        except Exception as error:
            raise ConfigurationError(f"{event} {file}: {error!r}") from error
        added = {each: function for each, function in found.items() if callable(function)}
        for each in added.keys() & REFUSED:
            raise ConfigurationError(f"{event} {file}: {each} is refused: {REFUSED[each]}")
        if not added:
            raise ConfigurationError(f"{event} {file}: it has no function for any event")
        for each, function in added.items():
            self._functions[each].append(function)

    def message(
        self, event: str, post: Post, target: LocalTarget | None
    ) -> tuple[Post, LocalTarget | None] | None:
        """The post and path as the functions change them; None if one returns False."""
        functions = self._functions[event]
        if not functions:
            return post, target
        message = V2Message(post, target)
        if not self._call(event, message):
            return None
        before = V2Message(post, target)
        if target is not None and (message.new_dir, message.new_file) != (
            before.new_dir,
            before.new_file,
        ):
            target = LocalTarget(message.new_dir or ".", message.new_file)
        return message.post(), target

    def _call(self, event: str, message: V2Message | None) -> bool:
        """False as soon as a function returns it."""
        with self._lock:
            self.parent.msg = message
            return all(function(self.parent) for function in self._functions[event])

    def report(self, report: PostReport) -> PostReport | None:
        """`on_report` may change the headers; False: the report is not published. One that fails
        changes nothing."""
        try:
            message = V2Message(report.post, None)
            message.code, message.headers["message"] = report.code, report.message
            if not self._call("on_report", message):
                return None
            text = str(message.headers.pop("message", ""))
            return replace(report, post=message.post(), message=text)
        except Exception as error:
            _log_failure("on_report", error)
            return report

    def takes_changes(self) -> bool:
        """`on_watch`: False if the changes of a tree are to wait. One that fails stops nothing."""
        try:
            return self._call("on_watch", None)
        except Exception as error:
            _log_failure("on_watch", error)
            return True

    def polled(self, url: str) -> list[Post]:
        """What `do_poll` posts: that of the plugin registered for the scheme, or the last one. What
        it posts before an error is kept."""
        function = self._functions["do_poll"][-1]
        for each in self._functions["do_poll"]:
            if urlsplit(url).scheme in _schemes(each):
                function = each
        parent = self.parent
        with self._lock:
            now = Post(moment=time.time_ns(), base_url=url or "file:", relpath="-")
            parent.msg = V2Message(now, None)
            parent.posts = []
            try:
                function(parent)
            except Exception as error:
                _log_failure("do_poll", error)
            return parent.posts

    def line(self, listed: ListedFile) -> ListedFile | None:
        """`on_line` reads and sets `line`; False leaves the file out."""
        with self._lock:
            self.parent.line = listing_line(listed)
            if not self._call("on_line", None):
                return None
            return listed_entry(listed.name, self.parent.line, listed)

    def page(self, page: str, url: str, zone: tzinfo) -> list[ListedFile]:
        """`on_html_page` reads `data`, and sets `entries`: names, and a line of each."""
        with self._lock:
            self.parent.data, self.parent.entries = page, {}
            if not self._call("on_html_page", None):
                return []
            found = [listed_entry(name, line) for name, line in self.parent.entries.items()]
        return [each for each in found if each is not None]

    def handles(self, event: str) -> bool:
        return bool(self._functions[event])

    def notify(self, event: str) -> None:
        with self._lock:
            for function in self._functions.get(event, ()):
                function(self.parent)


def _log_failure(event: str, error: Exception) -> None:
    log.warning("plugin failed", plugin=event, reason=repr(error))


def _schemes(function: V2Function) -> Iterable[str]:
    """Of the URLs that the plugin is for: `registered_as`, a name or a list of them."""
    registered = getattr(getattr(function, "__self__", None), "registered_as", None)
    found = registered() if callable(registered) else []
    return [found] if isinstance(found, str) else found


class _Assigned:
    """What a file sees as `self`: it reads the component, and its assignments are kept apart."""

    def __init__(self, parent: V2Parent) -> None:
        self.__dict__["_parent"] = parent

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_parent"], name)
