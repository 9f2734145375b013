"""What is said of a machine without the Java that Spark needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.core.errors import ConfigurationError
from penstock.core.java import check_java, java_problem


def java(home: Path, version: str) -> str:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return str(home)


@pytest.mark.parametrize("version", ["17.0.9", "21", "25.0.1"])
def test_a_java_that_is_new_enough_lacks_nothing(tmp_path: Path, version: str) -> None:
    assert java_problem(java(tmp_path, version)) is None


@pytest.mark.parametrize(("version", "named"), [("11.0.2", "Java 11"), ("1.8.0_392", "Java 8")])
def test_a_java_that_is_too_old_is_named(tmp_path: Path, version: str, named: str) -> None:
    lack = java_problem(java(tmp_path, version))
    assert lack is not None
    assert named in lack


def test_a_java_of_unknown_age_is_tried(tmp_path: Path) -> None:
    home = java(tmp_path, "17")
    (tmp_path / "release").unlink()
    assert java_problem(home) is None


def test_no_java_on_the_path_says_what_to_install(tmp_path: Path) -> None:
    lack = java_problem("", str(tmp_path))
    assert lack is not None
    assert "default-jre-headless" in lack


def test_spark_is_not_tried_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", java(tmp_path, "11"))
    with pytest.raises(ConfigurationError, match=r"Spark needs Java 17 or later.*is Java 11"):
        check_java()
