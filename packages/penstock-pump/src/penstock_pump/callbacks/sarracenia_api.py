"""The part of sr3's Python interface that its plugins use: their base class, messages, times.

It is our own, and small. It becomes the module `sarracenia` when a plugin is loaded, unless sr3 has
been imported. Modules that it does not have are taken from an installed sr3, or from directories of
`plugin_path`, if there are any.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import logging
import os
import stat
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from penstock_pump.config.values import duration
from penstock_pump.posts.checksums import BUILT_IN, Checksum
from penstock_pump.posts.codec import read_moment, v03_moment
from penstock_pump.posts.v03 import read_content, read_identity, write_identity

NAME: Final = "sarracenia"
_MARK: Final = "_penstock_pump"
#: Keys of a message that are not posted.
PROCESSING: Final = frozenset(
    {"new_dir", "new_file", "new_path", "new_baseUrl", "new_relPath", "new_subtopic", "subtopic"}
)


class FlowCB:
    """The base class of sr3's plugins: keeps the options, and has a logger."""

    def __init__(self, options: Any, class_logger: logging.Logger | None = None) -> None:
        self.o = options
        self.stop_requested = False
        self.logger = class_logger or logging.getLogger(type(self).__module__)
        level = str(getattr(options, "logLevel", None) or "info").upper()
        logging.getLogger(type(self).__module__).setLevel(getattr(logging, level, logging.INFO))

    def please_stop(self) -> None:
        self.stop_requested = True


class CallbackMessage(dict[str, Any]):
    """A post as sr3's plugins see it: the keys of v03, and those of its processing."""

    def __init__(self, *given: Any, **keys: Any) -> None:
        super().__init__(*given, **keys)
        self.setdefault("_deleteOnPost", set())
        self.setdefault("_format", "v03")

    def copyDict(self, given: dict[str, Any]) -> None:
        self.update(given)

    def setReport(self, code: int, text: str | None = None) -> None:
        self["report"] = {"code": code, "timeCompleted": nowstr(), "message": text or ""}
        self["_deleteOnPost"] |= {"report"}

    def getIDStr(self) -> str:
        return f"{self.get('baseUrl', '')} {self.get('relPath', '')}"

    def dumps(self) -> str:
        return str({key: value for key, value in self.items() if not key.startswith("_")})

    def isRetry(self) -> bool:
        return "_isRetry" in self

    def validate(self) -> bool:
        return all(key in self for key in ("pubTime", "baseUrl", "relPath"))

    def setSize(self, path: str) -> None:
        self["size"] = Path(path).stat().st_size

    def getContent(self, options: Any = None) -> bytes | None:
        """Of an inlined file, or of the local file."""
        if "content" in self:
            return read_content(self["content"]).data
        path = Path(self.get("new_dir", ""), self.get("new_file", ""))
        return path.read_bytes() if path.is_file() else None

    def updatePaths(
        self,
        options: Any,
        new_dir: str | None = None,
        new_file: str | None = None,
        publisher_index: int = 0,
    ) -> None:
        """Where the file is, and where others will find it: `new_relPath`, `new_baseUrl`."""
        relpath = str(self.get("relPath", ""))
        self["new_dir"] = new_dir or self.get("new_dir", "")
        self["new_file"] = (
            new_file if new_file is not None else self.get("new_file", relpath.rpartition("/")[2])
        )
        path = f"{self['new_dir']}/{self['new_file']}"
        if base_dir := getattr(options, "post_baseDir", None):
            path = path.removeprefix(options.variableExpansion(base_dir))
        base_url = self.get("post_baseUrl") or getattr(options, "post_baseUrl", None)
        self["new_baseUrl"] = options.variableExpansion(base_url or self.get("baseUrl", "file:"))
        self["new_relPath"] = path.lstrip("/")
        self["new_subtopic"] = self["new_relPath"].split("/")[:-1]
        self["_deleteOnPost"] |= PROCESSING
        for key in ("relPath", "subtopic", "baseUrl"):
            self.setdefault(key, self[f"new_{key}"])

    @classmethod
    def fromFileInfo(cls, path: str, options: Any, lstat: Any = None) -> CallbackMessage:
        """The post of a file whose facts are known; it need not be here."""
        message = cls(pubTime=nowstr())
        folder, _, name = str(path).rpartition("/")
        message.updatePaths(options, folder, name)
        message["source"] = getattr(options, "source", None) or "guest"
        for key, option in (("to_clusters", "to_clusters"), ("from_cluster", "cluster")):
            if value := getattr(options, option, None):
                message[key] = value
        method, _, later = str(getattr(options, "identity_method", None) or "").partition(",")
        if later:
            message["identity"] = {"method": method, "value": later}
        for key in ("size", "mtime", "atime", "mode"):
            value = getattr(lstat, f"st_{key}", None)
            if value is not None:
                message[key] = _fact(key, value)
        if stat.S_ISDIR(getattr(lstat, "st_mode", None) or 0):
            message["fileOp"] = {"directory": ""}
            message.pop("size", None)
        return message

    @classmethod
    def fromFileData(cls, path: str, options: Any, lstat: Any = None) -> CallbackMessage:
        """The post of a local file, with its checksum."""
        found = cls.fromFileInfo(path, options, lstat or os.stat(path))  # noqa: PTH116
        if Path(path).is_file():
            found.computeIdentity(path, options)
        return found

    def computeIdentity(self, path: str, options: Any, offset: int = 0) -> None:
        name = str(getattr(options, "identity_method", None) or "sha512")
        method = read_identity({"method": name}).method
        if (new_digest := BUILT_IN.get(method)) is not None:
            with Path(path).open("rb") as file:
                digest = hashlib.file_digest(file, new_digest)  # type: ignore[arg-type]
            self["identity"] = write_identity(Checksum(method, digest.hexdigest()))


def _fact(key: str, value: Any) -> Any:
    if key in ("mtime", "atime"):
        return timeflt2str(float(value))
    return f"{int(value) & 0o7777:o}" if key == "mode" else int(value)


def nowflt() -> float:
    return time.time()


def nowstr() -> str:
    return v03_moment(time.time_ns())


def timeflt2str(seconds: float | None = None) -> str:
    return v03_moment(int((time.time() if seconds is None else seconds) * 1e9))


def timestr2flt(text: str) -> float:
    return read_moment(text) / 1e9


def timev2tov3str(text: str) -> str:
    return v03_moment(read_moment(text))


def durationToSeconds(text: Any, default: float | None = None) -> float:
    if text in (None, "none", "off"):
        return 0.0
    if text in ("on", True):
        return default or 0.0
    return duration(str(text)) or 0.0


def durationToString(seconds: float) -> str:
    return f"{seconds:g}s"


def naturalSize(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def naturalTime(seconds: float) -> str:
    return f"{seconds:.0f} seconds ago"


def naturalDelta(seconds: float, months: bool = True, minimum_unit: str = "seconds") -> str:
    return f"{seconds:.0f} seconds"


def timeValidate(text: str) -> bool:
    try:
        datetime.fromtimestamp(timestr2flt(text), UTC)
    except Exception:
        return False
    return True


_MODULE_NAMES: Final = (
    *(nowflt, nowstr, timeflt2str, timestr2flt, timev2tov3str, durationToSeconds, timeValidate),
    *(durationToString, naturalSize, naturalTime, naturalDelta),
)


def _attribute(package: str, name: str) -> Any:
    """What a plugin names and these modules do not have: a module that it has not imported, as
    `sarracenia.flowcb.poll`, or a name of the package of an installed sr3."""
    if not name.startswith("__"):
        if importlib.util.find_spec(f"{package}.{name}") is not None:
            return importlib.import_module(f"{package}.{name}")
        for folder in sys.modules[package].__path__:
            if hasattr(module := _installed(package, Path(folder)), name):
                return getattr(module, name)
    raise AttributeError(f"module {package!r} has no attribute {name!r}")


@cache
def _installed(package: str, folder: Path) -> ModuleType | None:
    """The package of an installed sr3, beside ours; none if it lacks a module that it needs."""
    path = folder / "__init__.py"
    spec = importlib.util.spec_from_file_location(
        package, path, submodule_search_locations=[str(folder)]
    )
    if spec is None or spec.loader is None or not path.is_file():
        return None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ImportError:
        return None
    return module


def install(paths: Iterable[Path]) -> None:
    """Makes the modules `sarracenia` and `sarracenia.flowcb`, unless sr3 is imported."""
    present = sys.modules.get(NAME)
    if present is not None and not hasattr(present, _MARK):
        return
    folders = [path / NAME for path in paths if (path / NAME).is_dir()]
    for path in paths:  # plugins import each other
        if not (path / NAME).is_dir() and str(path) not in sys.path:
            sys.path.append(str(path))
    if present is None:
        spec = importlib.util.find_spec(NAME)
        folders += [Path(each) for each in (spec.submodule_search_locations or ())] if spec else []
    package = present or ModuleType(NAME)
    flowcb = sys.modules.get(f"{NAME}.flowcb") or ModuleType(f"{NAME}.flowcb")
    for module, folder in ((package, ""), (flowcb, "flowcb")):
        known = list(getattr(module, "__path__", []))
        found = [str(each / folder) for each in folders]
        module.__path__ = [*dict.fromkeys((*known, *found))]
        setattr(module, _MARK, True)
        module.__getattr__ = partial(_attribute, module.__name__)  # type: ignore[method-assign]
    for function in _MODULE_NAMES:
        setattr(package, function.__name__, function)
    package.Message = CallbackMessage  # type: ignore[attr-defined]
    package.stat = os.stat  # type: ignore[attr-defined]
    package.__version__ = "3.0"  # type: ignore[attr-defined]
    package.flowcb = flowcb  # type: ignore[attr-defined]
    flowcb.FlowCB = FlowCB  # type: ignore[attr-defined]
    sys.modules[NAME] = package
    sys.modules[f"{NAME}.flowcb"] = flowcb


def adapt_installation(credentials: Any) -> None:
    """For plugins that use an installed sr3: some look credentials up in a module of it instead of
    in their options. Its transfers set alarms, which only the main thread can; their sockets have
    time limits, too."""
    with suppress(ImportError):
        importlib.import_module(f"{NAME}.config").Config.credentials = credentials
    for name, module in list(sys.modules.items()):
        if name.startswith(f"{NAME}.transfer"):
            for each in {"alarm_set", "alarm_cancel"} & vars(module).keys():
                setattr(module, each, _set_no_alarm)


def _set_no_alarm(seconds: float = 0.0) -> None:
    pass
