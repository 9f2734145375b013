"""What is said of a machine that cannot run everything."""

from __future__ import annotations

from penstock.cli import equipment


def test_modules_that_are_missing_are_named_with_the_extra_that_brings_them() -> None:
    lack = equipment.lacking_modules(("json", "no_such_module"))
    assert lack == "no_such_module not installed: pip install 'penstock[pump,web]'"
    assert equipment.lacking_modules(("json",)) is None
