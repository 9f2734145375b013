"""Settings classes: what a type accepts, and how all mistakes are reported."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel

from penstock.core.settings_model import (
    Field,
    SettingsError,
    build_settings,
    field_descriptions,
    settings_model,
)
from penstock.core.units import Bytes, Seconds, WholeSeconds


@settings_model
class Section:
    path: Path | None = None
    """A file."""
    choice: Literal["a", "b"] = "a"


@settings_model
class Sample:
    """For these tests."""

    text: str = Field(default="x", min_length=1, max_length=3, pattern="[a-z]+")
    """A text,
    in two lines."""
    number: int = Field(default=1, ge=0, le=9)
    share: float = Field(default=0.5, gt=0)
    flag: bool = False
    size: Bytes = 0
    pause: Seconds = 1.0
    whole: WholeSeconds = 1
    names: list[str] = Field(default_factory=list)
    section: Section = Section()

    def check(self) -> None:
        if self.flag and self.number == 9:
            raise ValueError("flag and number 9 exclude each other")


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("text", "abc", "abc"),
        ("number", "7", 7),
        ("number", 7.0, 7),
        ("share", 2, 2.0),
        ("share", "0.25", 0.25),
        ("flag", "yes", True),
        ("flag", "0", False),
        ("flag", 1, True),
        ("size", "2KiB", 2048),
        ("pause", "500ms", 0.5),
        ("whole", "2m", 120),
        ("names", ("a", "b"), ["a", "b"]),
        ("section", {"path": "/a"}, Section(path=Path("/a"))),
        ("section", Section(choice="b"), Section(choice="b")),
    ],
)
def test_a_value_becomes_one_of_its_type(name: str, given: object, value: object) -> None:
    made = getattr(build_settings(Sample, {name: given}), name)
    assert (made, type(made)) == (value, type(value))


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("text", 1, "should be a text"),
        ("text", "", "at least 1 characters"),
        ("text", "abcd", "at most 3 characters"),
        ("text", "a\n", r"should match \[a-z\]\+"),
        ("number", True, "should be a whole number"),
        ("number", 1.5, "should be a whole number"),
        ("number", float("inf"), "should be a whole number"),
        ("number", "many", "should be a whole number"),
        ("number", None, "should be a whole number"),
        ("number", -1, "greater than or equal to 0"),
        ("number", 10, "less than or equal to 9"),
        ("share", 0, "greater than 0"),
        ("share", float("nan"), "greater than 0"),
        ("flag", "maybe", "should be true or false"),
        ("size", "2 apples", "should be a size such as"),
        ("names", "a", "should be a list"),
        ("names", [1], "should be a text"),
        ("section", 1, "should be a section"),
    ],
)
def test_what_does_not_fit_is_refused(name: str, given: object, said: str) -> None:
    with pytest.raises(SettingsError, match=f"{name}: .*{said}"):
        build_settings(Sample, {name: given})


def test_all_mistakes_are_reported_with_their_place() -> None:
    values = {"number": -1, "section": {"choice": "c", "zzz": 1}, "other": 2}
    with pytest.raises(SettingsError) as refused:
        build_settings(Sample, values)
    found = [(each.location, each.unknown) for each in refused.value.problems]
    assert found == [
        (("number",), False),
        (("section", "choice"), False),
        (("section", "zzz"), True),
        (("other",), True),
    ]


def test_values_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(SettingsError, match="exclude each other"):
        Sample(flag=True, number=9)


def test_the_text_below_a_field_describes_it() -> None:
    assert field_descriptions(Sample) == {"text": "A text,\nin two lines."}


def test_units_work_in_models_of_pydantic() -> None:
    class Model(BaseModel):
        size: Annotated[Bytes, "a mark"] = 0
        log: Section = Section()

    values: dict[str, Any] = {"size": "1KiB", "log": {"choice": "b"}}
    assert Model.model_validate(values) == Model(size=1024, log=Section(choice="b"))
