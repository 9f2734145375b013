"""sr3's `callback` plugins: loaded by their names, and called with lists of messages.

A plugin gets each post as a list of one message, because posts are handled independently here. What
it leaves in `incoming` is accepted, what it moves to `failed` is retried later, the rest is
rejected. Plugins are not called concurrently, and not on the event loop.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from functools import partial
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import Any, Final

from penstock.core.errors import ConfigurationError
from penstock.core.logs import get_logger
from penstock_pump.callbacks import sarracenia_api
from penstock_pump.callbacks.listing_entries import listed_entry, listing_line
from penstock_pump.callbacks.options import CallbackOptions
from penstock_pump.callbacks.sarracenia_api import PROCESSING, CallbackMessage, FlowCB
from penstock_pump.config.settings import PumpSettings
from penstock_pump.credentials import PumpCredentials
from penstock_pump.errors import PluginRefusal, SourceUnavailable
from penstock_pump.files.target import LocalTarget
from penstock_pump.posts.codec import v03_moment
from penstock_pump.posts.post import Post
from penstock_pump.posts.v03 import V03, post_of
from penstock_pump.transports.listing import ListedFile, read_index

log = get_logger(__name__)

#: sr3's plugins for what every component here does by itself. `v2wrapper` runs plugins of v2.
NATIVE: Final = frozenset(
    {"gather.message", "gather.file", "post.message", "log", "retry", "report", "block_reassembly"}
    | {"housekeeping.resources", "nodupe.disk", "nodupe.redis", "scheduled.poll", "poll"}
    | {"v2wrapper"}
)
#: Methods with which plugins find posts by themselves.
_GATHERING: Final = ("gather", "poll")
#: Messages that `gather` may return at once.
_BATCH: Final = 100
#: sr3's code of a rejected post, and the first of those that mean a failure.
_REJECTED_CODE: Final = 304
_FAILED_CODE: Final = 400


@dataclass(slots=True)
class MessageWorklist:
    """What sr3 calls a worklist."""

    incoming: list[CallbackMessage] = field(default_factory=list)
    ok: list[CallbackMessage] = field(default_factory=list)
    rejected: list[CallbackMessage] = field(default_factory=list)
    failed: list[CallbackMessage] = field(default_factory=list)
    directories_ok: list[str] = field(default_factory=list)
    poll_catching_up: bool = False


class FlowCallbacks:
    def __init__(self, callbacks: Sequence[Any], options: CallbackOptions | None = None) -> None:
        self._callbacks = callbacks
        self._options = options
        self._lock = RLock()

    def changed_settings(self, settings: PumpSettings) -> PumpSettings:
        """With what plugins have assigned to their options."""
        return settings if self._options is None else self._options.changed_settings()

    def receive(self, post: Post) -> list[Post]:
        """`after_gather`: a post that no pattern was compared with yet. One, none, or several."""
        return [each for each, _ in self._incoming("after_gather", post, None)]

    def accept(
        self, post: Post, target: LocalTarget | None
    ) -> list[tuple[Post, LocalTarget | None]]:
        """The accepted posts with the paths of their files: one, none, or several."""
        return self._incoming("after_accept", post, target)

    def _incoming(
        self, event: str, post: Post, target: LocalTarget | None
    ) -> list[tuple[Post, LocalTarget | None]]:
        worklist = MessageWorklist(incoming=[self._message(post, target)])
        self._call(event, worklist)
        if worklist.failed and not worklist.incoming:
            raise SourceUnavailable("a plugin wants to try again later")
        return [from_message(each, target) for each in worklist.incoming]

    def work(self, post: Post, path: str) -> Post | None:
        """The post of a file that is here; None if a plugin rejects it."""
        target = LocalTarget(*_split(path))
        worklist = MessageWorklist(ok=[self._message(post, target)])
        self._call("after_work", worklist)
        if worklist.failed and not worklist.ok:
            raise SourceUnavailable("a plugin wants to try again later")
        return from_message(worklist.ok[0], None)[0] if worklist.ok else None

    def _message(self, post: Post, target: LocalTarget | None) -> CallbackMessage:
        """With the accept that it matches, for plugins that read its groups or arguments."""
        message = to_message(post, target)
        for index, mask in enumerate(self._options.masks if self._options is not None else ()):
            if (found := mask[3].match(post.url)) is not None:
                message["_mask_index"], message["_matches"] = index, found
                message["_deleteOnPost"] |= {"_mask_index", "_matches"}
                break
        return message

    def posted(self, post: Post) -> None:
        """`post` and `after_post`: the broker has the post."""
        worklist = MessageWorklist(ok=[to_message(post, None)])
        self._call("post", worklist)
        if worklist.failed and not worklist.ok:
            raise SourceUnavailable("a plugin could not publish the post")
        self._call("after_post", worklist)

    def report(self, post: Post, code: int, message: str) -> None:
        """`report`: what became of a post; 0 is the code of a rejection."""
        told = to_message(post, None)
        told["report"] = {
            "code": code or _REJECTED_CODE,
            "message": message,
            "timeCompleted": v03_moment(time.time_ns()),
        }
        told["_deleteOnPost"] |= {"report"}
        worklist = MessageWorklist()
        if code == 0:
            worklist.rejected.append(told)
        else:
            (worklist.ok if code < _FAILED_CODE else worklist.failed).append(told)
        self._call("report", worklist)

    def acknowledge(self, posts: Sequence[Post]) -> None:
        """`ack`: the posts are done with."""
        messages = [to_message(post, None) for post in posts]
        for each in self._having("ack"):
            with self._lock:
                each.ack(messages)

    def file_name(self, script: str, post: Post, target: LocalTarget) -> LocalTarget:
        """As `destfn` of the plugin with this name returns it; None leaves it."""
        for each in self._having("destfn"):
            if script.removesuffix(".py").lower() in _names_of(each):
                with self._lock:
                    name = each.destfn(to_message(post, target))
                return target if not name else LocalTarget(_split(target.full_path)[0], name)
        raise ConfigurationError(f"DESTFNSCRIPT={script}: no plugin of this name has destfn")

    def metrics(self) -> dict[str, dict[str, float]]:
        """The numbers of `metricsReport`, by plugin."""
        found = {}
        for each in self._having("metricsReport"):
            with self._lock:
                given = each.metricsReport() or {}
            numbers = {
                str(name): float(value)
                for name, value in given.items()
                if isinstance(value, int | float)
            }
            found[type(each).__name__] = numbers
        return found

    def has(self, method: str) -> bool:
        return next(self._having(method), None) is not None

    def _having(self, method: str) -> Iterator[Any]:
        return (each for each in self._callbacks if callable(getattr(each, method, None)))

    def read_page(self, page: str, url: str, zone: tzinfo) -> list[ListedFile]:
        """`on_html_page` of the first plugin that has it: files by their names."""
        for each in self._having("on_html_page"):
            with self._lock:
                entries = each.on_html_page(page) or {}
            return [
                each
                for name, entry in entries.items()
                if (each := listed_entry(name, entry)) is not None
            ]
        return read_index(page, url, zone)

    def read_line(self, listed: ListedFile) -> ListedFile | None:
        """`on_line` gets each line of a listing; None if a plugin leaves the file out."""
        result: ListedFile | None = listed
        for each in self._having("on_line"):
            if result is not None:
                with self._lock:
                    entry = each.on_line(listing_line(result))
                result = listed_entry(result.name, entry, result)
        return result

    def transfer(self, method: str, post: Post, target: LocalTarget) -> Post | None:
        """`download` or `send` of the first plugin that has it: the post, with the URL at which the
        plugin has put the file; None if there is no such plugin."""
        for each in self._having(method):
            message = self._message(post, target)
            try:
                with self._lock:
                    done = getattr(each, method)(message)
            except Exception as error:
                raise SourceUnavailable(f"plugin {type(each).__name__}: {error!r}") from error
            if not done:
                raise SourceUnavailable(f"a plugin could not {method} the file")
            if done is not True and int(done) < 0:
                raise PluginRefusal(f"a plugin cannot {method} the file")
            found, _ = from_message(message, None)
            return replace(
                found, base_url=str(message["new_baseUrl"]), relpath=str(message["new_relPath"])
            )
        return None

    def gathered(self, *, poll: bool = True) -> list[Post]:
        """The posts that plugins find by themselves, with `gather` or, when it is due, with `poll`.
        One that fails is called again the next time."""
        posts: list[Post] = []
        calls = [(each, partial(each.gather, _BATCH)) for each in self._having("gather")]
        calls += [(each, each.poll) for each in self._having("poll") if poll]
        for each, call in calls:
            try:
                with self._lock:
                    result = call()
                messages = result[1] if isinstance(result, tuple) else result
                posts += [from_message(message, None)[0] for message in messages or ()]
            except Exception as error:
                _log_failure(each, error)
        return posts

    @property
    def gathers(self) -> bool:
        return any(self.has(name) for name in _GATHERING)

    def warn_of_stop(self) -> None:
        """`please_stop`: a call that waits sees that it should return, so we do not wait for it."""
        for each in self._having("please_stop"):
            try:
                each.please_stop()
            except Exception as error:
                _log_failure(each, error)

    def notify(self, event: str) -> None:
        """`on_start`, `on_housekeeping`, `on_stop`, `on_declare`, …: an error ends nothing."""
        for each in self._callbacks:
            if callable(handler := getattr(each, event, None)):
                try:
                    with self._lock:
                        handler()
                except Exception as error:
                    _log_failure(each, error)

    def _call(self, event: str, worklist: MessageWorklist) -> None:
        """As in sr3, a plugin that fails leaves the worklist as it is."""
        with self._lock:
            for each in self._having(event):
                try:
                    getattr(each, event)(worklist)
                except Exception as error:
                    _log_failure(each, error)


def _log_failure(plugin: Any, error: Exception) -> None:
    log.warning("plugin failed", plugin=type(plugin).__name__, reason=repr(error))


def _names_of(plugin: Any) -> set[str]:
    """That a configuration may use: `sample`, `destfn.sample`, `sarracenia.….sample.Sample`."""
    module = type(plugin).__module__.removeprefix("pump_plugin_").removeprefix("sarracenia.flowcb.")
    plain, name = module.lower(), type(plugin).__name__.lower()
    short = {plain, f"{plain}.{name}", name}
    return {*short, *(f"sarracenia.flowcb.{each}" for each in short)}


def to_message(post: Post, target: LocalTarget | None) -> CallbackMessage:
    body = V03().encode(post).body
    assert isinstance(body, dict)
    message = CallbackMessage(body)
    message["subtopic"] = post.relpath.split("/")[:-1]
    message["_deleteOnPost"] |= PROCESSING
    message["new_baseUrl"], message["new_relPath"] = post.base_url, post.relpath
    if target is not None:
        message["new_dir"], message["new_file"] = _split(target.full_path)
    return message


def from_message(
    message: CallbackMessage, target: LocalTarget | None
) -> tuple[Post, LocalTarget | None]:
    dropped = {*message.get("_deleteOnPost", ()), *PROCESSING}
    body = {
        key: value
        for key, value in message.items()
        if not key.startswith("_") and key not in dropped
    }
    post = post_of(body)
    if target is not None and "new_file" in message:
        folder, name = str(message.get("new_dir", "")), str(message["new_file"])
        if (folder, name) != _split(target.full_path):
            target = LocalTarget(folder, name)
    return post, target


def _split(path: str) -> tuple[str, str]:
    folder, _, name = path.rpartition("/")
    return folder or ".", name


def load_callbacks(
    names: Iterable[str],
    settings: PumpSettings,
    paths: Sequence[Path] = (),
    credentials: PumpCredentials | None = None,
) -> FlowCallbacks | None:
    wanted = _wanted(names)
    if not wanted:
        return None
    classes = _classes(wanted, paths)
    options = CallbackOptions(settings, credentials)
    sarracenia_api.adapt_installation(options.credentials)
    return FlowCallbacks([_make(*each, options) for each in classes.items()], options)


def gathering_callbacks(names: Iterable[str], paths: Sequence[Path] = ()) -> bool:
    """Whether one of the plugins finds posts by itself."""
    wanted = _wanted(names)
    return bool(wanted) and any(
        callable(getattr(each, name, None))
        for each in _classes(wanted, paths).values()
        for name in _GATHERING
    )


def _wanted(names: Iterable[str]) -> list[str]:
    plain = (name.removesuffix(".py").removeprefix("sarracenia.flowcb.") for name in names)
    return [name for name in dict.fromkeys(plain) if _module_of(name) not in NATIVE]


def _module_of(name: str) -> str:
    """Without the class: `log.Log` is `log`."""
    module, _, last = name.rpartition(".")
    return module if module and last[:1].isupper() else name


def _classes(
    names: Sequence[str], paths: Sequence[Path]
) -> dict[str, Callable[[CallbackOptions], Any]]:
    sarracenia_api.install(paths)
    return {name: _find_class(name, paths) for name in names}


def _find_class(name: str, paths: Sequence[Path]) -> Callable[[CallbackOptions], Any]:
    tried: list[str] = []
    for candidate, class_name in _candidates(name):
        module = _import(candidate, paths, tried)
        if module is not None and (found := _class_of(module, class_name)) is not None:
            return found
    raise ConfigurationError(
        f"callback {name!r} is not found: add its directory to plugin_path ({'; '.join(tried)})"
    )


def _make(name: str, made: Callable[[CallbackOptions], Any], options: CallbackOptions) -> Any:
    try:
        return made(options)
    except (Exception, SystemExit) as error:  # some exit where an option is missing
        raise ConfigurationError(f"callback {name!r}: {error!r}") from error


def _candidates(name: str) -> list[tuple[str, str]]:
    """Modules and classes that a name can mean: `accept.speedo`, `accept.speedo.Speedo`."""
    module, _, last = name.rpartition(".")
    found = [(name, last)]
    if last[:1].isupper() and module:
        found.append((module, last))
    return [
        (f"{prefix}{module_name}", class_name)
        for module_name, class_name in found
        for prefix in ("sarracenia.flowcb.", "")
    ]


def _import(name: str, paths: Sequence[Path], tried: list[str]) -> ModuleType | None:
    for folder in paths:
        file = folder / (name.replace(".", "/") + ".py")
        if file.is_file():
            spec = importlib.util.spec_from_file_location(f"pump_plugin_{name}", file)
            assert spec is not None
            assert spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            try:
                spec.loader.exec_module(module)
            except ImportError as error:
                del sys.modules[spec.name]
                raise ConfigurationError(f"callback {name!r} needs a module: {error}") from error
            except Exception as error:
                del sys.modules[spec.name]
                raise ConfigurationError(f"callback {name!r}: {error!r}") from error
            return module
    try:
        return importlib.import_module(name)
    except ImportError as error:
        tried.append(str(error))
        return None
    except Exception as error:
        raise ConfigurationError(f"callback {name!r}: {error!r}") from error


def _class_of(module: ModuleType, name: str) -> Callable[[CallbackOptions], Any] | None:
    """By its name without case; otherwise the only plugin of the module."""
    found = [
        each
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, FlowCB) and each is not FlowCB
    ]
    own = [each for each in found if each.__module__ == module.__name__]
    for each in own:
        if each.__name__.lower() == name.lower():
            return each
    return own[-1] if own else None
