"""What is said of a machine that cannot run everything."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.cli import equipment


def java(home: Path, version: str) -> str:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return str(home)


@pytest.mark.parametrize("version", ["17.0.9", "21", "25.0.1"])
def test_a_java_that_is_new_enough_lacks_nothing(tmp_path: Path, version: str) -> None:
    assert equipment.lacking_java(java(tmp_path, version)) is None


@pytest.mark.parametrize(("version", "named"), [("11.0.2", "Java 11"), ("1.8.0_392", "Java 8")])
def test_a_java_that_is_too_old_is_named(tmp_path: Path, version: str, named: str) -> None:
    lack = equipment.lacking_java(java(tmp_path, version))
    assert lack is not None
    assert named in lack


def test_a_java_of_unknown_age_is_tried(tmp_path: Path) -> None:
    home = java(tmp_path, "17")
    (tmp_path / "release").unlink()
    assert equipment.lacking_java(home) is None


def test_no_java_on_the_path_says_what_to_install(tmp_path: Path) -> None:
    lack = equipment.lacking_java("", str(tmp_path))
    assert lack is not None
    assert "default-jre-headless" in lack


def test_modules_that_are_missing_are_named_with_the_extra_that_brings_them() -> None:
    lack = equipment.lacking_modules(("json", "no_such_module"))
    assert lack == "no_such_module not installed: pip install 'penstock[pump,web]'"
    assert equipment.lacking_modules(("json",)) is None
