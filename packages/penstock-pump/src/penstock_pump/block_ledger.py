"""The blocks of files that a sender has written to their destination, on disk.

Instances of a configuration share it. The posts of a file are announced when its last block is
there, because before that the file does not have its name. Blocking; any thread may call it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from penstock_pump.posts.post import Post
from penstock_pump.posts.v03 import V03
from penstock_pump.sqlite_store import SqliteStore

_SCHEMA: Final = """
create table if not exists sent (
    target text, moment integer, number integer, post text, primary key (target, moment, number)
) without rowid;
create table if not exists finished (target text primary key, moment integer) without rowid;
"""


class BlockLedger:
    def __init__(self, path: Path | None) -> None:
        self._store = SqliteStore(path, _SCHEMA)

    def is_wanted(self, target: str, post: Post) -> bool:
        """False if the block was sent, or its file or a newer version of it is complete."""
        assert post.parts is not None
        with self._store.transaction() as db:
            newest = "select max(moment) from sent where target = ?"
            moments = (
                db.execute("select moment from finished where target = ?", (target,)).fetchone(),
                db.execute(newest, (target,)).fetchone(),
            )
        finished, started = (row[0] if row and row[0] is not None else -1 for row in moments)
        return bool(finished < post.moment and started <= post.moment)

    def add(self, target: str, post: Post) -> list[Post] | None:
        """Records a block that was sent; all posts of the file when it is the last."""
        assert post.parts is not None
        text = json.dumps(V03().encode(post).body)
        with self._store.transaction() as db:
            db.execute("delete from sent where target = ? and moment < ?", (target, post.moment))
            db.execute(
                "insert or replace into sent values (?, ?, ?, ?)",
                (target, post.moment, post.parts.number, text),
            )
            rows = db.execute(
                "select post from sent where target = ? and moment = ? order by number",
                (target, post.moment),
            ).fetchall()
        if len(rows) < post.parts.count:
            return None
        return [V03().decode(row[0].encode(), {}) for row in rows]

    def finish(self, target: str, moment: int) -> None:
        with self._store.transaction() as db:
            db.execute("delete from sent where target = ? and moment <= ?", (target, moment))
            db.execute("insert or replace into finished values (?, ?)", (target, moment))

    def close(self) -> None:
        self._store.close()
