"""Images of hives: the gallery, the cover, uploads."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, File, Form, Request, Response, UploadFile
from pydantic import Field

from penstock.core.errors import ContentTooLarge
from penstock_hives.api.dependencies import Reader, ResourcesDep, ServicesDep, require_permission
from penstock_hives.api.fields import LongText, PathId, RequestBody, fields_set
from penstock_hives.api.idempotency import IdempotentRoute
from penstock_hives.api.responses import PUBLIC, PublicRoute, etag_response
from penstock_hives.images.models import HiveImage, ImageKind
from penstock_hives.people.permissions import AppPermission, Caller

router = APIRouter(route_class=IdempotentRoute, tags=["images"])
public_router = APIRouter(route_class=PublicRoute, tags=["images"])

ImageEditor = Annotated[Caller, Depends(require_permission(AppPermission.EDIT_IMAGES))]
Caption = Annotated[LongText, Field(max_length=200)]


class ImageEdit(RequestBody):
    kind: Literal["cover", "secondary"] | None = None
    caption: Caption | None = None
    position: Annotated[int, Field(ge=0, le=1000)] | None = None


@public_router.get("/hives/{hive}/images", response_model=list[HiveImage])
async def list_images(
    request: Request, hive: PathId, caller: Reader, services: ServicesDep
) -> Response:
    """The gallery, in order."""
    return etag_response(request, await services.images.of_hive(hive), PUBLIC)


@router.post("/hives/{hive}/images", status_code=201)
async def add_image(
    hive: PathId,
    caller: ImageEditor,
    context: ResourcesDep,
    response: Response,
    file: Annotated[UploadFile, File(description="JPEG, PNG or WebP.")],
    kind: Annotated[Literal["cover", "secondary"], Form()] = "secondary",
    caption: Annotated[Caption, Form()] = "",
) -> HiveImage:
    """The image is encoded again, upright and at most 1600 pixels wide or high; metadata is
    removed. The first image is the cover."""
    most = context.settings.image_bytes
    content = await file.read(most + 1)
    if len(content) > most:
        raise ContentTooLarge(f"an image may have at most {most:,} bytes")
    made = await context.services.images.add(caller, hive, content, ImageKind(kind), caption)
    response.headers["Location"] = made.url
    return made


@public_router.get(
    "/images/{image}",
    response_class=Response,
    responses={200: {"content": {"image/jpeg": {"schema": {"type": "string"}}}}},
)
async def get_image(image: PathId, caller: Reader, services: ServicesDep) -> Response:
    """The image file. It never changes, so it can be cached forever."""
    content, mime = await services.images.content(image)
    headers = {
        "Cache-Control": "public, max-age=31536000, immutable",
        "X-Content-Type-Options": "nosniff",
        "Content-Security-Policy": "default-src 'none'",
    }
    return Response(content, 200, headers, mime)


@router.patch("/images/{image}")
async def edit_image(
    image: PathId, body: ImageEdit, caller: ImageEditor, services: ServicesDep
) -> HiveImage:
    """Change caption, position or kind; a new cover replaces the old one."""
    return await services.images.edit(caller, image, fields_set(body))


@router.delete("/images/{image}", status_code=204)
async def remove_image(image: PathId, caller: ImageEditor, services: ServicesDep) -> None:
    """Remove an image from the gallery."""
    await services.images.remove(caller, image)
