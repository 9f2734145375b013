"""Lists a page at a time: `items`, and a cursor for the rest.

A cursor is what the last item was sorted by, made opaque: pages neither skip nor repeat what is
added or removed between them.
"""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel

T = TypeVar("T")

Limit = Annotated[int, Query(ge=1, le=100, description="How many at most.")]
Cursor = Annotated[
    str | None, Query(max_length=400, description="Where the page before has ended: its `next`.")
]


class Page(BaseModel, Generic[T]):
    items: list[T]
    next: str | None = None
    """The cursor of the next page; null on the last."""
