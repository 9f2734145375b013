"""Where files are fetched from and where they go: tables of cases."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_pump.errors import OutsideDirectory
from penstock_pump.posts import Post
from penstock_pump.selection import Placement, PostSelection, SelectionClause, SelectionMatch, place
from penstock_pump.transports.transport import destination_path, source_of


def post(base_url: str, relpath: str, **facts: str) -> Post:
    return Post(moment=0, base_url=base_url, relpath=relpath, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("base_url", "relpath", "by_the_page", "joined"),
    [
        ("http://h/", "a/b", "http://h/a/b", "http://h/a/b"),
        ("http://h", "a/b", "http://h/a/b", "http://h/a/b"),
        ("http://h", "/a/b", "http://h/a/b", "http://h/a/b"),
        ("http://h/d/", "a b", "http://h/d/a%20b", "http://h/d/a%20b"),
        ("http://h/d", "a", "http://h/d", "http://h/d/a"),
        ("http://h/", "a?b%20#c", "http://h/a%3Fb%2520%23c", "http://h/a%3Fb%2520%23c"),
        ("file:", "/a/b", "file:/a/b", "file:/a/b"),
        ("file:/", "a/b", "file:/a/b", "file:/a/b"),
        ("file:///d/", "a/b", "file:///d/a/b", "file:///d/a/b"),
        ("sftp://u@h/d/x.gif", "A/B/", "sftp://u@h/d/x.gif", "sftp://u@h/d/x.gif/A/B/"),
    ],
)
def test_where_it_is_fetched_from(
    base_url: str, relpath: str, by_the_page: str, joined: str
) -> None:
    assert source_of(post(base_url, relpath)).url == by_the_page
    assert source_of(post(base_url, relpath), join=True).url == joined


def test_a_retrieve_path_is_what_the_server_is_asked_for() -> None:
    given_path = post("http://h/", "a/b", retrieve="get%20it?id=7")
    assert source_of(given_path).url == "http://h/get%20it?id=7"


def test_the_seeds_complete_url_gives_the_name() -> None:
    announced = post("sftp://afsiext@cmc/data/NRDPS_HiRes_000.gif", "NRDPS/GIF/")
    assert destination_path(announced) == "NRDPS/GIF/NRDPS_HiRes_000.gif"


@pytest.mark.parametrize(
    ("rename", "path"), [("NURP/GIF/", "NURP/GIF/f.gif"), ("NRP/mine.gif", "NRP/mine.gif")]
)
def test_rename_gives_a_directory_or_a_name(rename: str, path: str) -> None:
    assert destination_path(post("http://h/", "a/f.gif", rename=rename)) == path


def test_file_urls_name_plain_paths() -> None:
    assert source_of(post("file:", "/a b/c#d")).path == "/a b/c#d"
    assert source_of(post("file:/", "a%20b")).path == "/a%20b"


CASES = [
    (Placement("d"), "a/b/f", "d/f"),
    (Placement("d", mirror=True), "a/b/f", "d/a/b/f"),
    (Placement("d", mirror=True), "/a/./b//f", "d/a/b/f"),
    (Placement("d", mirror=True, strip=1), "a/b/f", "d/b/f"),
    (Placement("d", mirror=True, strip=9), "a/b/f", "d/f"),
    (Placement("d", mirror=True, strip=re.compile("a/")), "a/b/f", "d/b/f"),
    (Placement("d", mirror=True, strip=re.compile(".*")), "a/b/f", "d/f"),
    (Placement("d", flatten="_"), "a/b/f", "d/a_b_f"),
    (Placement("d", mirror=True, flatten="_", strip=1), "a/b/f", "d/b/b_f"),
    (Placement("d", mirror=True, strip=3, strip_short=False), "a/b/f", "d/a/b/f"),
    (Placement("d", mirror=True, strip=2, strip_short=False), "a/b/f", "d/f"),
    (Placement("d", filename="WHATFN"), "a/F:x:y", "d/F"),
    (Placement("d", filename="HEADFN"), "a/F_A_B:x:y", "d/F_A"),
    (Placement("d", filename="HEADFN:TIME"), "a/F:x", "d/F:20240301000000"),
    (Placement("d", filename="TIME"), "a/F:20250101000000", "d/F:20250101000000:20250101000000"),
    (Placement("d", filename="SENDER"), "a/F:SENDER=me:x", "d/me"),
    (Placement("d", filename="NONE"), "a/F:x:SENDER=me:y", "d/F:x"),
    (Placement("d", filename="NONESENDER"), "a/F:x:SENDER=me:y", "d/F:x:SENDER=me"),
    (Placement("d", filename="NONE"), "a/F:b:c:d:5:f:g", "d/F:b:c:d:5:f"),
    (Placement("d", filename="NONE"), "a/F:b:c:d:direct:f:g", "d/F:b:c:d:direct"),
    (Placement("d", filename="WHATFN:SATNET=x:TIME"), "a/F:b", "d/F:SATNET=x:20240301000000"),
    (Placement("d", filename="DESTFN=other"), "a/F", "d/other"),
    (Placement("/", mirror=True), "a/f", "//a/f"),
    (Placement("${BD}/${0}/${NONE}"), "a/f", "base/found/${NONE}/f"),
]


@pytest.mark.parametrize(("rules", "path", "placed"), CASES, ids=str)
def test_where_it_is_put(rules: Placement, path: str, placed: str) -> None:
    variables = {"BD": "base", "%Y%m%d%H%M%S": "20240301000000"}
    assert place(path, rules, variables, ("found",)).full == placed


@pytest.mark.parametrize("path", ["../f", "a/../../f", "/..", "..", "/", "", "a/\0", "."])
def test_a_path_that_climbs_out_is_refused(path: str) -> None:
    with pytest.raises(OutsideDirectory):
        place(path, Placement("d", mirror=True))


@pytest.mark.parametrize("found", ["../x", "a/../../b", "/etc"])
def test_what_a_pattern_found_leads_nowhere_else(found: str) -> None:
    with pytest.raises(OutsideDirectory):
        place("f", Placement("${0}"), {}, (found,))


@given(st.text(max_size=30), st.integers(0, 5), st.booleans(), st.sampled_from(["/", "_", "."]))
def test_whatever_the_path_it_stays_below(path: str, strip: int, mirror: bool, join: str) -> None:
    try:
        placed = place(path, Placement("d", mirror=mirror, strip=strip, flatten=join))
    except OutsideDirectory:
        return
    words = placed.path.split("/")
    assert ".." not in words
    assert "" not in words


def test_the_first_pattern_that_matches_decides() -> None:
    inner, outer = Placement("inner"), Placement("outer")
    selection = PostSelection(
        [
            SelectionClause(True, re.compile(r".*/(\w+)\.txt"), inner),
            SelectionClause(False, re.compile(".*secret.*"), inner),
            SelectionClause(True, re.compile(".*"), outer),
        ]
    )
    assert selection.choose("http://h/secret.txt") == SelectionMatch(inner, ("secret",))
    assert selection.choose("http://h/secret.gif") == "reject .*secret.*"
    assert selection.choose("http://h/f.gif") == SelectionMatch(outer)


def test_what_no_pattern_matches() -> None:
    only = [SelectionClause(True, re.compile("http://a/"), Placement("d"))]
    assert PostSelection(only).choose("http://b/f") == "no accept matches"
    assert isinstance(PostSelection(only, unmatched=True).choose("http://b/f"), SelectionMatch)
    assert isinstance(PostSelection().choose("http://b/f"), SelectionMatch)
