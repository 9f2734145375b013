"""Pictures of a hive."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class ImageKind(StrEnum):
    COVER = "cover"  #: the one that stands for the hive
    SECONDARY = "secondary"


@dataclass(frozen=True, slots=True)
class HiveImage:
    id: int
    hive_id: int
    kind: str
    url: str
    mime: str
    width: int
    height: int
    bytes: int
    caption: str
    position: int
    created_at: datetime


def image_url(image: int) -> str:
    return f"/v1/images/{image}"
