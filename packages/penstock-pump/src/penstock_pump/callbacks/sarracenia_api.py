"""The part of sr3's Python interface that its plugins use: their base class, messages, times.

It is our own, and small. It becomes the module `sarracenia` when a plugin is loaded, unless sr3 has
been imported. Modules that it does not have are taken from an installed sr3, or from directories of
`plugin_path`, if there are any.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from penstock_pump.config.values import duration
from penstock_pump.posts.codec import read_moment, v03_moment
from penstock_pump.posts.parts import Parts

NAME: Final = "sarracenia"
_MARK: Final = "_penstock_pump"


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
        from penstock_pump.posts.v03 import read_content

        if "content" in self:
            return read_content(self["content"]).data
        path = Path(self.get("new_dir", ""), self.get("new_file", ""))
        return path.read_bytes() if path.is_file() else None

    def updatePaths(
        self, options: Any, new_dir: str | None = None, new_file: str | None = None
    ) -> None:
        self["new_dir"] = new_dir if new_dir is not None else self.get("new_dir", "")
        self["new_file"] = new_file or self.get("new_file", "")

    @classmethod
    def fromFileInfo(cls, path: str, options: Any, lstat: Any = None) -> CallbackMessage:
        """The post of a file whose facts are known; it need not be here."""
        message = cls()
        base = getattr(options, "post_baseUrl", None) or "file:"
        message.update(
            pubTime=nowstr(),
            baseUrl=base,
            relPath=str(path).lstrip("/"),
            source=getattr(options, "source", None) or "guest",
            identity={"method": "cod", "value": "sha512"},
        )
        if lstat is not None:
            for key, found in (("size", "st_size"), ("mtime", "st_mtime"), ("mode", "st_mode")):
                value = getattr(lstat, found, None)
                if value is not None:
                    message[key] = _fact(key, value)
        return message

    @classmethod
    def fromFileData(cls, path: str, options: Any, lstat: Any = None) -> CallbackMessage:
        """The post of a local file."""
        found = cls.fromFileInfo(path, options, lstat or os.stat(path))  # noqa: PTH116
        found["blocks_parts"] = str(Parts.whole(found.get("size", 0)))
        found["_deleteOnPost"] |= {"blocks_parts"}
        return found


def _fact(key: str, value: Any) -> Any:
    if key == "mtime":
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
