"""Query parameters of public reads; the API and the cached reader validate with the same models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from penstock_hives.errors import FieldError, invalid_fields


class PublicQuery(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class PageQuery(PublicQuery):
    limit: int = Field(default=50, ge=1, le=100)
    """The number of items on a page."""
    cursor: str | None = Field(default=None, max_length=400)
    """The `next` of the page before."""


Q = TypeVar("Q", bound=PublicQuery)


def parse_query(model: type[Q], values: Mapping[str, str]) -> Q:
    """The parameters of a URL; raises `InvalidRequest`. Unknown names are ignored."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise invalid_fields(
            [FieldError(".".join(map(str, each["loc"])), each["msg"]) for each in error.errors()]
        ) from None
