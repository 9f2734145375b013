"""Operations without a download: links, folders, removals, moves.

A link must stay inside its directory whatever happens to other links: in its target `..` may come
first only, and no more often than its folder is deep. So it leads up to a folder inside and from
there down, over links of which the same holds. A check of where a link leads today would not be
enough: it leads elsewhere when another link is replaced, or when it is moved.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from penstock_pump.errors import BadPost, OutsideDirectory, RemoveFailed, unusable_name
from penstock_pump.files.target import LocalTarget, is_inside, temporary_name


def make_link(target: LocalTarget, link_target: str, folder_mode: int = 0o775) -> bool:
    """False if the link exists. A link that leads out of the directory is refused."""
    if "\0" in link_target:
        raise BadPost(f"link target {link_target[:80]!r} is not a path")
    final = target.prepare(folder_mode)
    _check_link(target.directory, target.full_path, link_target)
    if final.is_symlink() and final.readlink() == Path(link_target):
        return False
    temporary = final.with_name(temporary_name(final.name, ".", ".link"))
    temporary.unlink(missing_ok=True)
    try:
        temporary.symlink_to(link_target)
        temporary.rename(final)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _failed(f"link {final} not made", error) from error
    return True


def _check_link(directory: str | os.PathLike[str], path: str, link_target: str) -> None:
    folder, name = os.path.split(path)
    home, real = os.path.realpath(directory), os.path.realpath(folder)
    aim = os.path.realpath(f"{real}/{link_target}")
    words = [word for word in link_target.split("/") if word not in ("", ".")]
    down = [word for word in words if word != ".."]
    up = len(words) - len(down)
    deep = 0 if real == home else os.path.relpath(real, home).count("/") + 1
    if (
        link_target.startswith("/")
        or words[up:] != down
        or up > deep
        or not is_inside(real, home)
        or not is_inside(aim, home)
    ):
        raise OutsideDirectory(
            f"the link {name} in {real} to {link_target} could lead out of {home}: a target must "
            "be relative, have .. only at its beginning, and stay inside"
        )


def _links(path: str) -> Iterator[tuple[str, str]]:
    """The links at a path or below it: the relative path and the target."""
    if os.path.islink(path):  # noqa: PTH114
        yield "", os.readlink(path)  # noqa: PTH115
        return
    for folder, folders, files in os.walk(path):
        for entry in (f"{folder}/{name}" for name in (*folders, *files)):
            if os.path.islink(entry):  # noqa: PTH114
                yield entry.removeprefix(path), os.readlink(entry)  # noqa: PTH115


def make_folder(target: LocalTarget, mode: int) -> bool:
    final = target.prepare(mode)
    if final.is_dir():
        return False
    try:
        final.mkdir(mode=mode)
    except OSError as error:
        raise _failed(f"directory {final} not made", error) from error
    return True


def remove(target: LocalTarget, *, folder: bool = False) -> bool:
    """False if it does not exist. A directory must be empty."""
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
        raise _failed(f"{target.final} not removed", error) from error
    return True


def _failed(what: str, error: OSError) -> Exception:
    return error if unusable_name(error) else RemoveFailed(f"{what}: {error.strerror}")


def move(old: LocalTarget, new: LocalTarget) -> bool:
    """Renames a local file; False if there is no such file, or the new name is taken."""
    if not old.final.parent.is_dir():
        return False
    old.check()
    final = new.prepare()
    if not os.path.lexists(old.final) or os.path.lexists(final):
        return False
    for path, link_target in _links(old.full_path):
        _check_link(new.directory, new.full_path + path, link_target)
    os.rename(old.final, final)  # noqa: PTH104 - Path.rename is the same
    _remove_outward(new)  # another process may have added links meanwhile
    return True


def _remove_outward(moved: LocalTarget) -> None:
    refused: OutsideDirectory | None = None
    for path, link_target in _links(moved.full_path):
        try:
            _check_link(moved.directory, moved.full_path + path, link_target)
        except OutsideDirectory as error:
            Path(moved.full_path + path).unlink(missing_ok=True)
            refused = error
    if refused is not None:
        raise refused


def link_or_copy(old: LocalTarget, new: LocalTarget) -> bool:
    """A second name for a local file, until the removal of the first is announced."""
    if not old.final.parent.is_dir():
        return False
    old.check()
    final = new.prepare()
    if not old.final.is_file() or old.final.is_symlink() or os.path.lexists(final):
        return False
    try:
        os.link(old.final, final)
    except OSError:  # a file system without hard links
        temporary = final.with_name(temporary_name(final.name, ".", ".copy"))
        try:
            shutil.copy2(old.final, temporary)
            temporary.rename(final)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
    return True
