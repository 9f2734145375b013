"""Names of a package that are imported when they are first used.

    __getattr__ = lazy_exports(__name__, {"connector.source": ["register"]})

A process that imports one module of a package does not load what the package's `__init__` exports:
PySpark, pyarrow and psycopg take a quarter of a second.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def lazy_exports(package: str, names: Mapping[str, Sequence[str]]) -> Callable[[str], Any]:
    """`names` has the names of each module of the package."""
    modules = {name: module for module, exported in names.items() for name in exported}

    def __getattr__(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{modules[name]}"), name)
        setattr(sys.modules[package], name, value)
        return value

    return __getattr__
