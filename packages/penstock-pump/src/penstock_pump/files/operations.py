"""What is done to files that need no fetching: links, folders, removals, moves.

A link stays inside its directory whatever becomes of others: where it points, `..` may only come
first, and no more often than its folder is deep. Then it leads up to a folder inside and from there
down, over links of which the same holds. A link that was checked by where it leads today would
lead elsewhere when another is replaced, or when it is moved.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from penstock_pump.errors import BadPost, OutsideDirectory, RemoveFailed, unusable_name
from penstock_pump.files.target import LocalTarget, is_inside, temporary_name


def make_link(target: LocalTarget, pointing: str) -> bool:
    """Whether there was anything to do. A link that points out of the directory is refused."""
    if "\0" in pointing:
        raise BadPost(f"a link to {pointing[:80]!r}: that is no path")
    final = target.prepare()
    _check_link(target.directory, target.place, pointing)
    if final.is_symlink() and final.readlink() == Path(pointing):
        return False
    draft = final.with_name(temporary_name(final.name, ".", ".link"))
    draft.unlink(missing_ok=True)
    try:
        draft.symlink_to(pointing)
        draft.rename(final)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise _failed(f"no link {final}", error) from error
    return True


def _check_link(directory: str | os.PathLike[str], path: str, pointing: str) -> None:
    """Of a link that is, or will be, at a path in the directory."""
    folder, name = os.path.split(path)
    home, real = os.path.realpath(directory), os.path.realpath(folder)
    aim = os.path.realpath(f"{real}/{pointing}")
    words = [word for word in pointing.split("/") if word not in ("", ".")]
    down = [word for word in words if word != ".."]
    up = len(words) - len(down)
    deep = 0 if real == home else os.path.relpath(real, home).count("/") + 1
    if (
        pointing.startswith("/")
        or words[up:] != down
        or up > deep
        or not is_inside(real, home)
        or not is_inside(aim, home)
    ):
        raise OutsideDirectory(
            f"the link {name} in {real} to {pointing} could lead out of {home}: a target has to "
            "be relative, to have .. only at its beginning, and to stay inside"
        )


def _links(place: str) -> Iterator[tuple[str, str]]:
    """The links at a place or below it: the path from there, and where it points."""
    if os.path.islink(place):  # noqa: PTH114
        yield "", os.readlink(place)  # noqa: PTH115
        return
    for folder, folders, files in os.walk(place):
        for entry in (f"{folder}/{name}" for name in (*folders, *files)):
            if os.path.islink(entry):  # noqa: PTH114
                yield entry.removeprefix(place), os.readlink(entry)  # noqa: PTH115


def make_folder(target: LocalTarget, mode: int) -> bool:
    final = target.prepare()
    if final.is_dir():
        return False
    try:
        final.mkdir(mode=mode)
    except OSError as error:
        raise _failed(f"no directory {final}", error) from error
    return True


def remove(target: LocalTarget, *, folder: bool = False) -> bool:
    """Whether it was there. A directory goes only if it is empty."""
    if not target.final.parent.is_dir():
        return False
    target.check()
    try:
        if target.final.is_dir() and not target.final.is_symlink():
            target.final.rmdir()
        elif folder:
            return False
        else:
            target.final.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise _failed(f"{target.final} stays", error) from error
    return True


def _failed(what: str, error: OSError) -> Exception:
    return error if unusable_name(error) else RemoveFailed(f"{what}: {error.strerror}")


def move(old: LocalTarget, new: LocalTarget) -> bool:
    """Give a file we hold its new name. Whether we hold it, and nothing has that name."""
    if not old.final.parent.is_dir():
        return False
    old.check()
    final = new.prepare()
    if not os.path.lexists(old.final) or os.path.lexists(final):
        return False
    for path, pointing in _links(old.place):
        _check_link(new.directory, new.place + path, pointing)
    os.rename(old.final, final)  # noqa: PTH104 - Path.rename is the same
    _remove_outward(new)  # others may have made some meanwhile
    return True


def _remove_outward(moved: LocalTarget) -> None:
    refused: OutsideDirectory | None = None
    for path, pointing in _links(moved.place):
        try:
            _check_link(moved.directory, moved.place + path, pointing)
        except OutsideDirectory as error:
            Path(moved.place + path).unlink(missing_ok=True)
            refused = error
    if refused is not None:
        raise refused


def link_or_copy(old: LocalTarget, new: LocalTarget) -> bool:
    """A second name for a file we hold, until the removal of the first arrives."""
    if not old.final.parent.is_dir():
        return False
    old.check()
    final = new.prepare()
    if not old.final.is_file() or old.final.is_symlink() or os.path.lexists(final):
        return False
    try:
        os.link(old.final, final)
    except OSError:  # a file system without hard links
        draft = final.with_name(temporary_name(final.name, ".", ".copy"))
        try:
            shutil.copy2(old.final, draft)
            draft.rename(final)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
    return True
