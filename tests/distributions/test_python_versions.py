"""The environment installs on every Python 3.11, such as the 3.11.2 of Debian 12."""

from __future__ import annotations

import importlib.metadata

from packaging.specifiers import SpecifierSet

OLDEST = "3.11.0"


def test_no_dependency_needs_a_later_python() -> None:
    required = {
        distribution.name: distribution.metadata["Requires-Python"]
        for distribution in importlib.metadata.distributions()
    }
    assert "penstock" in required
    assert {
        name: versions
        for name, versions in required.items()
        if versions and not SpecifierSet(versions).contains(OLDEST)
    } == {}
