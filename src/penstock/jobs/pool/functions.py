"""The function that a name means: `module:name`, or `module:Class.name`.

Whoever may ask for work may choose the name, and was permitted a module's functions: not what that
module uses to do its work. So nothing is found by way of a module it has imported
(`module:os.system`), nothing that begins with an underscore, and no function or class that is
another package's. What was permitted by its own name may be anything.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

from penstock.jobs.errors import FormError


def find_function(name: str, *, own: bool = True) -> Callable[..., Any]:
    """With `own`, only what is the module's own, and for others."""
    module, _, path = name.partition(":")
    try:
        found: Any = import_module(module)
        for step in path.split("."):
            found = getattr(found, step)
            if own and (step.startswith("_") or inspect.ismodule(found)):
                raise FormError(f"{name} is not for others to call")
    except (ImportError, AttributeError, ValueError) as error:
        raise FormError(f"there is no function {name}: {error}") from error
    if not callable(found):
        raise FormError(f"{name} is no function")
    home = _home(found)
    if own and home is not None and _package(home) != _package(module):
        raise FormError(f"{name} is of {home}: it may be called if it is permitted by name")
    return found  # type: ignore[no-any-return]


def _home(found: Any) -> str | None:
    """The module it was written in; of a value that can be called nobody knows."""
    if inspect.isroutine(found) or inspect.isclass(found):
        return getattr(found, "__module__", None)
    return None


def _package(module: str) -> str:
    return module.partition(".")[0].lstrip("_")  # some of Python's own are in two
