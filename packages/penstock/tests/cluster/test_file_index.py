"""A follower's files become those of the leader, by comparison."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cluster import file_index as index
from penstock.cluster.file_index import digest_file, is_replicated, reconcile

names = st.sampled_from(["users.json", "log/a", "log/q/0.seg", "log/q/acks", "log/q/1.seg"])
contents = st.binary(max_size=24)


def write(data: Path, files: dict[str, bytes]) -> None:
    for path, content in files.items():
        (data / path).parent.mkdir(parents=True, exist_ok=True)
        (data / path).write_bytes(content)


@settings(deadline=None)
@given(st.dictionaries(names, contents), st.dictionaries(names, contents), st.data())
def test_what_differs_is_cut_and_fetched(
    leader: dict[str, bytes], follower: dict[str, bytes], data: st.DataObject
) -> None:
    import tempfile

    for path in leader:  # mostly a common beginning
        if path in follower and data.draw(st.booleans()):
            follower[path] = leader[path][: data.draw(st.integers(0, 24))] + follower[path][:3]
    before = index.DIGEST_BYTES
    index.DIGEST_BYTES = 4  # type: ignore[misc]
    try:
        with tempfile.TemporaryDirectory() as folder:
            here, there = Path(folder) / "follower", Path(folder) / "leader"
            write(here, follower)
            write(there, leader)
            their_index = {one.path: (one.size, one.digests) for one in index.file_index(there)}
            for path, position in reconcile(here, their_index):
                (here / path).parent.mkdir(parents=True, exist_ok=True)
                kept = (here / path).read_bytes() if (here / path).exists() else b""
                assert len(kept) == position
                (here / path).write_bytes(kept + leader[path][position:])
            found = {path: (here / path).read_bytes() for path in index.replicated_files(here)}
            assert found == leader
    finally:
        index.DIGEST_BYTES = before  # type: ignore[misc]


def test_only_what_is_new_is_fetched(tmp_path: Path) -> None:
    start = b"a" * index.DIGEST_BYTES
    write(tmp_path, {"log/q/0.seg": start + b"old tail"})
    (tmp_path / "leader").write_bytes(start + b"another, longer tail")
    missing = reconcile(tmp_path, {"log/q/0.seg": digest_file(tmp_path / "leader")})
    assert missing == [("log/q/0.seg", index.DIGEST_BYTES)]


def test_spools_indexes_and_locks_stay_out() -> None:
    assert is_replicated("users.json")
    assert is_replicated("log/topology.jsonl")
    for path in ("log/spool/1", "log/q/0.idx", "broker.lock", "cluster.json", "lake/x", "pg/x"):
        assert not is_replicated(path)
