"""sr3's `callback` plugins: loaded by their names, and called with lists of messages.

A plugin gets each post as a list of one message, because posts are handled independently here. What
it leaves in `incoming` is accepted, what it moves to `failed` is retried later, the rest is
rejected. Plugins are not called concurrently, and not on the event loop.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import Any, Final

from penstock.core.errors import ConfigurationError
from penstock.core.logs import get_logger
from penstock_pump.callbacks import sarracenia_api
from penstock_pump.callbacks.listing_entries import listed_entry, listing_line
from penstock_pump.callbacks.options import CallbackOptions
from penstock_pump.callbacks.sarracenia_api import CallbackMessage, FlowCB
from penstock_pump.config.settings import PumpSettings
from penstock_pump.errors import SourceUnavailable
from penstock_pump.files.target import LocalTarget
from penstock_pump.posts.post import Post
from penstock_pump.posts.v03 import V03, post_of
from penstock_pump.transports.listing import ListedFile, read_index

log = get_logger(__name__)

#: sr3's plugins for what every component here does by itself.
NATIVE: Final = frozenset(
    {"gather.message", "gather.file", "post.message", "log", "retry", "report", "block_reassembly"}
    | {"housekeeping.resources", "nodupe.disk", "nodupe.redis", "scheduled", "poll"}
)
_PROCESSING: Final = frozenset({"new_dir", "new_file", "new_path", "new_baseUrl", "new_relPath"})


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
    def __init__(self, callbacks: Sequence[Any]) -> None:
        self._callbacks = callbacks
        self._lock = RLock()

    def accept(
        self, post: Post, target: LocalTarget | None
    ) -> list[tuple[Post, LocalTarget | None]]:
        """The accepted posts with the paths of their files: one, none, or several."""
        worklist = MessageWorklist(incoming=[to_message(post, target)])
        self._call("after_accept", worklist)
        if worklist.failed and not worklist.incoming:
            raise SourceUnavailable("a plugin wants to try again later")
        return [from_message(each, target) for each in worklist.incoming]

    def work(self, post: Post, path: str) -> Post | None:
        """The post of a file that is here; None if a plugin rejects it."""
        target = LocalTarget(*_split(path))
        worklist = MessageWorklist(ok=[to_message(post, target)])
        self._call("after_work", worklist)
        if worklist.failed and not worklist.ok:
            raise SourceUnavailable("a plugin wants to try again later")
        return from_message(worklist.ok[0], None)[0] if worklist.ok else None

    def posted(self, post: Post) -> None:
        """`after_post`: the broker has the post."""
        self._call("after_post", MessageWorklist(ok=[to_message(post, None)]))

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

    def transfer(self, method: str, post: Post, target: LocalTarget) -> bool | None:
        """`download` or `send` of the first plugin that has it: whether it succeeded."""
        for each in self._callbacks:
            if callable(handler := getattr(each, method, None)):
                with self._lock:
                    return bool(handler(to_message(post, target)))
        return None

    def gathered(self) -> list[Post]:
        """The posts that plugins find by themselves, with `poll` or `gather`."""
        posts: list[Post] = []
        for each in self._callbacks:
            for method, arguments in (("poll", ()), ("gather", (100,))):
                if callable(found := getattr(each, method, None)):
                    with self._lock:
                        result = found(*arguments)
                    messages = result[1] if isinstance(result, tuple) else result
                    posts += [from_message(message, None)[0] for message in messages or ()]
        return posts

    @property
    def gathers(self) -> bool:
        return any(hasattr(each, name) for each in self._callbacks for name in ("poll", "gather"))

    def notify(self, event: str) -> None:
        """`on_start`, `on_housekeeping`, `on_stop`: an error does not end the component."""
        for each in self._callbacks:
            if callable(handler := getattr(each, event, None)):
                try:
                    with self._lock:
                        handler()
                except Exception as error:
                    log.warning("plugin failed", plugin=type(each).__name__, reason=repr(error))

    def _call(self, event: str, worklist: MessageWorklist) -> None:
        with self._lock:
            for each in self._callbacks:
                if callable(handler := getattr(each, event, None)):
                    handler(worklist)


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
    message["_deleteOnPost"] |= {"subtopic", "new_dir", "new_file", "new_baseUrl", "new_relPath"}
    message["new_baseUrl"], message["new_relPath"] = post.base_url, post.relpath
    if target is not None:
        message["new_dir"], message["new_file"] = _split(target.full_path)
    return message


def from_message(
    message: CallbackMessage, target: LocalTarget | None
) -> tuple[Post, LocalTarget | None]:
    dropped = {*message.get("_deleteOnPost", ()), *_PROCESSING}
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
    names: Iterable[str], settings: PumpSettings, paths: Sequence[Path] = ()
) -> list[Any]:
    wanted = [name for name in names if name.removesuffix(".py") not in NATIVE]
    if not wanted:
        return []
    sarracenia_api.install(paths)
    options = CallbackOptions(settings)
    return [_load(name, options, paths) for name in wanted]


def _load(name: str, options: CallbackOptions, paths: Sequence[Path]) -> Any:
    plain = name.removesuffix(".py")
    tried: list[str] = []
    for candidate, class_name in _candidates(plain):
        module = _import(candidate, paths, tried)
        if module is not None and (found := _class_of(module, class_name)) is not None:
            try:
                return found(options)
            except Exception as error:
                raise ConfigurationError(f"callback {name!r}: {error!r}") from error
    raise ConfigurationError(
        f"callback {name!r} is not found: add its directory to plugin_path ({'; '.join(tried)})"
    )


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
