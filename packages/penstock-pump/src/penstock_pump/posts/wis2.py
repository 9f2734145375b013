"""WIS2 notifications: GeoJSON features that announce data, by the WMO's message standard.

The canonical link is the file; its path on the server is the path of the post, so a mirror has the
layout of the source. Other members (id, geometry, links, properties) are preserved. A post of
another format gets an id that is the same for every copy of the announcement.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit
from uuid import NAMESPACE_URL, uuid5

from penstock_pump.errors import BadPost
from penstock_pump.posts import checksums
from penstock_pump.posts.codec import EncodedPost, checked_path, read_moment, rfc3339_moment
from penstock_pump.posts.parts import Parts
from penstock_pump.posts.post import FileEvent, Post
from penstock_pump.posts.v03 import (
    read_content,
    read_identity,
    read_object,
    write_content,
    write_identity,
)
from penstock_pump.posts.wis2_schema import (
    CANONICAL,
    CONFORMS_TO,
    INTEGRITY_METHODS,
    MAX_CONTENT_BYTES,
)

#: The key of a post's `extra` with the other members of the notification.
PRESERVED_PROPERTIES: Final = "wis2"
_READ: Final = frozenset({"pubtime", "integrity", "content", "data_id"})


class Wis2:
    name = "wis2"
    prefix = "origin.a.wis2"

    def encode(self, post: Post) -> EncodedPost:
        preserved = dict(post.extra.get(PRESERVED_PROPERTIES) or {})
        href = post.base_url.rstrip("/") + "/" + quote(checked_path(post.relpath).lstrip("/"))
        link: dict[str, Any] = {
            **preserved.pop("link", {}),
            "rel": "deletion" if post.event is FileEvent.DELETE else "canonical",
            "href": href,
        }
        if post.parts is not None:
            link["length"] = post.parts.file_size
        properties: dict[str, Any] = {
            **preserved.pop("properties", {}),
            "data_id": preserved.pop("data_id", post.relpath.lstrip("/")),
            "pubtime": rfc3339_moment(post.moment),
        }
        if not {"datetime", "start_datetime"} & properties.keys():
            # The time of the data; unknown is allowed, missing is not.
            at = post.mtime
            properties["datetime"] = None if at is None else rfc3339_moment(at)
        identity = write_identity(post.sum) if post.event is FileEvent.MODIFY else None
        if identity is not None and identity["method"] in INTEGRITY_METHODS:
            properties["integrity"] = identity
        if post.content is not None and len(post.content.data) <= MAX_CONTENT_BYTES:
            size = len(post.content.data)
            properties["content"] = {**write_content(post.content), "size": size}
        others = preserved.pop("links", [])
        return EncodedPost(
            {
                "id": str(uuid5(NAMESPACE_URL, f"{href} {post.moment}")),
                "type": "Feature",
                "conformsTo": [CONFORMS_TO],
                "geometry": None,
                **preserved,
                "properties": properties,
                "links": [link, *others],
            }
        )

    def decode(self, body: bytes, headers: Mapping[str, Any]) -> Post:
        given = read_object(body)
        properties, links = given.get("properties"), given.get("links")
        if not isinstance(properties, dict) or not isinstance(links, list):
            raise BadPost("a WIS2 notification should have properties and links")
        link = next((each for each in links if _is_canonical(each)), None)
        if link is None:
            raise BadPost("a WIS2 notification should have a canonical link")
        url = urlsplit(str(link["href"]))
        relpath = checked_path(unquote(url.path).lstrip("/"))
        length, integrity = link.get("length"), properties.get("integrity")
        known = read_identity(integrity) if isinstance(integrity, dict) else None
        if link["rel"] == "deletion":
            known = checksums.removal_sum(relpath.rpartition("/")[2])
        content = properties.get("content")
        return Post(
            moment=read_moment(str(properties.get("pubtime", ""))),
            base_url=f"{url.scheme}://{url.netloc}/",
            relpath=relpath,
            sum=known,
            parts=Parts.whole(length) if isinstance(length, int) and length >= 0 else None,
            content=None if content is None else read_content(content),
            retrieve=f"{url.path.lstrip('/')}?{url.query}" if url.query else None,
            extra={PRESERVED_PROPERTIES: _preserved(given, properties, link, links)},
        )


def _is_canonical(link: Any) -> bool:
    return isinstance(link, dict) and link.get("rel") in CANONICAL and "href" in link


def _preserved(
    given: dict[str, Any], properties: dict[str, Any], link: dict[str, Any], links: list[Any]
) -> dict[str, Any]:
    preserved = {key: value for key, value in given.items() if key not in ("properties", "links")}
    if "data_id" in properties:
        preserved["data_id"] = properties["data_id"]
    preserved["properties"] = {key: value for key, value in properties.items() if key not in _READ}
    preserved["link"] = {
        key: value for key, value in link.items() if key not in ("rel", "href", "length")
    }
    preserved["links"] = [each for each in links if each is not link]
    return preserved
