"""Settings classes: frozen dataclasses whose values are converted and checked when they are made.

    @settings_model
    class TlsSettings:
        verify_peer: bool = False
        '''Whether clients must present a certificate.'''

The type of a field says what it accepts, `Field` its limits, the text below it what it is for.
`build_settings` makes one from a mapping, such as a section of a file. All mistakes are raised in
one `SettingsError`. pydantic does the same, but every process of ours would load it: it takes
90 ms and 11 MB, a third of an idle broker.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

_Model = TypeVar("_Model")
_LIMITS: Final = "limits"
_TRUE: Final = ("true", "yes", "on", "1")
_FALSE: Final = ("false", "no", "off", "0")


class SettingProblem(NamedTuple):
    location: tuple[str, ...]
    text: str
    value: Any
    unknown: bool = False  #: there is no setting of this name


class SettingsError(ValueError):
    """All mistakes in the values of one settings class."""

    def __init__(self, problems: list[SettingProblem]) -> None:
        self.problems = problems
        lines = (f"{'.'.join(each.location) or 'settings'}: {each.text}" for each in problems)
        super().__init__("\n".join(lines))


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """What a value may be, besides its type."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None

    def check(self, value: Any) -> None:
        if self.ge is not None and not value >= self.ge:
            raise ValueError(f"should be greater than or equal to {self.ge}")
        if self.gt is not None and not value > self.gt:
            raise ValueError(f"should be greater than {self.gt}")
        if self.le is not None and not value <= self.le:
            raise ValueError(f"should be less than or equal to {self.le}")
        if self.min_length is not None and len(value) < self.min_length:
            raise ValueError(f"should have at least {self.min_length} characters")
        if self.max_length is not None and len(value) > self.max_length:
            raise ValueError(f"should have at most {self.max_length} characters")
        if self.pattern is not None and not re.fullmatch(self.pattern, value):
            raise ValueError(f"should match {self.pattern}")


def Field(
    *,
    default: Any = dataclasses.MISSING,
    default_factory: Any = dataclasses.MISSING,
    repr: bool = True,  # noqa: A002 - likewise
    **limits: Any,
) -> Any:
    """A field with limits: those of `Limits`."""
    metadata = {_LIMITS: Limits(**limits)}
    if default_factory is not dataclasses.MISSING:
        return dataclasses.field(default_factory=default_factory, repr=repr, metadata=metadata)
    return dataclasses.field(default=default, repr=repr, metadata=metadata)


class Before:
    """Annotates a type: the function is applied to a value before its type is checked."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """The same type in a model of pydantic."""
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(self.function, handler(source))


class After:
    """Annotates a type: the function is applied to a value of that type."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(Field,))
def settings_model(cls: type[_Model]) -> type[_Model]:
    """A frozen dataclass that checks its values. A method `check`, if there is one, raises
    `ValueError` if values contradict each other."""
    cls.__post_init__ = _check_values  # type: ignore[attr-defined]
    return dataclasses.dataclass(frozen=True, kw_only=True)(cls)


def build_settings(model: type[_Model], values: Mapping[str, Any]) -> _Model:
    """An instance from a mapping; sections are mappings in it. Names that the class does not have
    are mistakes like others."""
    known = {field.name for field in dataclasses.fields(model)}  # type: ignore[arg-type]
    problems = [
        SettingProblem((name,), "unknown setting", value, unknown=True)
        for name, value in values.items()
        if name not in known
    ]
    try:
        made = model(**{name: value for name, value in values.items() if name in known})
    except SettingsError as error:
        problems = error.problems + problems
    if problems:
        raise SettingsError(problems)
    return made


def field_types(model: Any) -> dict[str, Any]:
    """The types of the fields, with their annotations."""
    return _hints(model)


@cache
def _hints(model: Any) -> dict[str, Any]:
    return get_type_hints(model, include_extras=True)


def field_descriptions(model: Any) -> dict[str, str]:
    """The text below each field in the source."""
    return _descriptions(model)


@cache
def _descriptions(model: Any) -> dict[str, str]:
    body = ast.parse(textwrap.dedent(inspect.getsource(model))).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(description))),
            ):
                found[name] = inspect.cleandoc(description)
    return found


def field_limits(field: dataclasses.Field[Any]) -> Limits:
    return field.metadata.get(_LIMITS) or Limits()


def field_default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _check_values(self: Any) -> None:
    types = field_types(type(self))
    problems: list[SettingProblem] = []
    for field in dataclasses.fields(self):
        value = getattr(self, field.name)
        if value is field.default:
            continue
        try:
            made = _converted(types[field.name], value)
            if made is not None:
                field_limits(field).check(made)
            object.__setattr__(self, field.name, made)
        except SettingsError as error:
            problems += [
                each._replace(location=(field.name, *each.location)) for each in error.problems
            ]
        except ValueError as error:
            problems.append(SettingProblem((field.name,), str(error), value))
    check = getattr(self, "check", None)
    if not problems and check is not None:
        try:
            check()
        except ValueError as error:
            problems.append(SettingProblem((), str(error), None))
    if problems:
        raise SettingsError(problems)


def _converted(hint: Any, value: Any) -> Any:
    origin = get_origin(hint)
    if hint is Any:
        return value
    if origin is Annotated:
        base, *marks = get_args(hint)
        for mark in marks:
            if isinstance(mark, Before):
                value = mark.function(value)
        value = _converted(base, value)
        for mark in marks:
            if isinstance(mark, After):
                value = mark.function(value)
        return value
    if origin in (Union, UnionType):
        return _one_of(get_args(hint), value)
    if origin is Literal:
        return _choice(get_args(hint), value)
    if origin is list:
        if not isinstance(value, list | tuple):
            raise ValueError("should be a list")
        return [_converted(get_args(hint)[0], each) for each in value]
    if origin is dict:
        if not isinstance(value, Mapping):
            raise ValueError("should be a section of names and values")
        return {str(key): _converted(get_args(hint)[1], each) for key, each in value.items()}
    if isinstance(value, hint) and not (isinstance(value, bool) and hint is not bool):
        return value
    if dataclasses.is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise ValueError("should be a section with settings")
        return build_settings(hint, value)  # type: ignore[arg-type]
    return _plain(hint, value)


def _one_of(types: tuple[Any, ...], value: Any) -> Any:
    if value is None and NoneType in types:
        return None
    kinds = [kind for kind in types if kind is not NoneType]
    if type(value) in kinds:
        return value
    return _converted(kinds[0], value)


def _choice(allowed: tuple[Any, ...], value: Any) -> Any:
    if value in allowed:
        return value
    *most, last = map(repr, allowed)
    raise ValueError(f"should be {', '.join(most)} or {last}")


def _plain(hint: Any, value: Any) -> Any:
    """A text or number as another type, if nothing is lost."""
    if hint is bool:
        text = str(value).lower()
        if text in _TRUE or text in _FALSE:
            return text in _TRUE
        raise ValueError("should be true or false")
    if hint is Path and isinstance(value, str):
        return Path(value)
    if hint in (int, float) and isinstance(value, str | int | float) and type(value) is not bool:
        try:
            number = float(value) if hint is float else int(value)
            if not isinstance(value, float) or number == value:
                return number
        except (ValueError, OverflowError):
            pass
    names = {int: "a whole number", float: "a number", str: "a text", Path: "a path"}
    raise ValueError(f"should be {names[hint]}")
