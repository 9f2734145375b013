"""Pictures over HTTP: uploaded, encoded anew, shown; and what is refused."""

from __future__ import annotations

import io
import os
import struct
import zlib
from pathlib import Path

import httpx
import pytest
from PIL import Image

from penstock_hives.settings import HivesSettings
from tests.hives.app.world import Business, World, png


@pytest.fixture
async def business(world: World) -> Business:
    return await world.business()


async def upload(
    world: World, business: Business, content: bytes, name: str = "a.png", **form: str
) -> httpx.Response:
    return await world.call(
        *("POST", f"/hives/{business.hive}/images", business.member),
        files={"file": (name, content, "image/png")},
        data=form,
    )


async def test_a_picture_is_kept_as_a_jpeg_of_our_own(world: World, business: Business) -> None:
    made = (await upload(world, business, png(3200, 1000), caption="The bar")).json()

    assert (made["width"], made["height"], made["mime"]) == (1600, 500, "image/jpeg")
    answer = await world.client.get(made["url"])
    assert answer.headers["content-type"] == "image/jpeg"
    assert "immutable" in answer.headers["cache-control"]
    with Image.open(io.BytesIO(answer.content)) as picture:
        assert picture.size == (1600, 500)


async def test_nothing_else_of_the_file_is_kept(world: World, business: Business) -> None:
    photograph = Image.new("RGB", (80, 40), "blue")
    facts = Image.Exif()
    facts[0x0112] = 6  # turned by a quarter
    facts[0x010E] = "<script>alert(1)</script> taken at home"
    out = io.BytesIO()
    photograph.save(out, "JPEG", exif=facts)

    made = (await upload(world, business, out.getvalue() + b"<?php evil ?>")).json()

    content = (await world.client.get(made["url"])).content
    assert (made["width"], made["height"]) == (40, 80)  # upright
    assert b"script" not in content
    assert b"php" not in content


async def test_the_first_picture_is_the_cover_and_another_may_become_it(
    world: World, business: Business
) -> None:
    first = (await upload(world, business, png(10, 10))).json()
    second = (await upload(world, business, png(20, 10))).json()
    assert (first["kind"], second["kind"]) == ("cover", "secondary")

    answer = await world.patch(f"/images/{second['id']}", business.member, {"kind": "cover"})
    assert answer.status_code == 200

    gallery = await world.read(f"/hives/{business.hive}/images")
    assert [(each["id"], each["kind"]) for each in gallery] == [
        (first["id"], "secondary"),
        (second["id"], "cover"),
    ]
    hive = await world.read(f"/hives/{business.hive}")
    assert len(hive["images"]) == 2


async def test_when_the_cover_goes_the_next_one_is_it(world: World, business: Business) -> None:
    first = (await upload(world, business, png(10, 10))).json()
    second = (await upload(world, business, png(20, 10))).json()

    assert (await world.delete(f"/images/{first['id']}", business.member)).status_code == 204

    [left] = await world.read(f"/hives/{business.hive}/images")
    assert (left["id"], left["kind"]) == (second["id"], "cover")


async def test_files_nobody_has_any_more_are_swept_after_an_hour(
    world: World, business: Business, settings: HivesSettings
) -> None:
    kept, gone = [(await upload(world, business, png(size, 77))).json() for size in (31, 32)]
    await world.delete(f"/images/{gone['id']}", business.member)
    assert await world.resources.services.images.sweep() == 0  # it may be about to be entered

    for path in files(settings.images):
        os.utime(path, (0, 0))

    assert await world.resources.services.images.sweep() == 1
    assert (await world.client.get(kept["url"])).status_code == 200
    assert (await world.client.get(gone["url"])).status_code == 404


async def test_an_upload_sent_again_with_its_key_is_one_picture(
    world: World, business: Business
) -> None:
    request = world.client.build_request(
        "POST",
        f"/v1/hives/{business.hive}/images",
        files={"file": ("a.png", png())},
        headers={"Authorization": f"Bearer {business.member}", "Idempotency-Key": "picture"},
    )
    content = await request.aread()

    answers = [
        await world.client.post(request.url, content=content, headers=request.headers)
        for _ in range(2)
    ]

    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json() == answers[1].json()
    assert len(await world.read(f"/hives/{business.hive}/images")) == 1


async def test_transparent_pictures_stand_on_white(world: World, business: Business) -> None:
    made = (await upload(world, business, png(8, 8, "RGBA", (0, 0, 0, 0)))).json()

    with Image.open(io.BytesIO((await world.client.get(made["url"])).content)) as picture:
        assert picture.convert("RGB").getpixel((4, 4)) == (255, 255, 255)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>",
        b"GIF89a" + bytes(40),
        png()[:60],
        b"\x89PNG\r\n\x1a\n" + bytes(100),
    ],
    ids=["empty", "svg", "gif", "cut short", "only a header"],
)
async def test_what_is_no_picture_is_refused(
    world: World, business: Business, settings: HivesSettings, content: bytes
) -> None:
    answer = await upload(world, business, content)

    assert answer.status_code == 415
    assert files(settings.images) == []


async def test_a_small_file_that_would_fill_the_memory_is_refused(
    world: World, business: Business
) -> None:
    answer = await upload(world, business, bomb(30_000, 30_000))

    assert answer.status_code == 413


async def test_an_upload_over_the_limit_is_refused(world: World, business: Business) -> None:
    answer = await upload(world, business, bytes(world.resources.settings.image_bytes + 1))

    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/cron.d/x.png", "a\\..\\b.png", "x" * 300]
)
async def test_the_name_of_a_file_means_nothing(
    world: World, business: Business, settings: HivesSettings, name: str
) -> None:
    answer = await upload(world, business, png(), name)

    assert answer.status_code == 201
    [kept] = files(settings.images)
    assert kept.is_relative_to(settings.images)


async def test_pictures_of_others_cannot_be_touched(world: World, business: Business) -> None:
    made = (await upload(world, business, png())).json()
    rival = await world.business()

    assert (await world.delete(f"/images/{made['id']}", rival.admin)).status_code == 404
    assert (await upload(world, rival, png())).status_code == 201
    path = f"/hives/{business.hive}/images"
    answer = await world.call("POST", path, rival.admin, files={"file": ("a.png", png())})
    assert answer.status_code == 404


async def test_pictures_of_hidden_hives_are_not_shown(world: World, business: Business) -> None:
    made = (await upload(world, business, png())).json()
    await world.patch(f"/hives/{business.hive}", business.admin, {"public": False})

    assert (await world.client.get(made["url"])).status_code == 404


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def bomb(width: int, height: int) -> bytes:
    """A PNG that says it is large, and has next to nothing in it."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        whole = kind + body
        return struct.pack(">I", len(body)) + whole + struct.pack(">I", zlib.crc32(whole))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = zlib.compress(bytes(10_000))
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    )
