"""What is done to files that need no fetching: links, folders, removals, moves."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from penstock.pump.errors import OutsideDirectory, RemoveFailed
from penstock.pump.landing.target import Target


def make_link(target: Target, pointing: str) -> bool:
    """Whether there was anything to do. A link that points out of the directory is refused."""
    final = target.prepare()
    aim = os.path.realpath(final.parent / pointing)
    home = os.path.realpath(target.directory)
    if Path(pointing).is_absolute() or (aim != home and not aim.startswith(home + "/")):
        raise OutsideDirectory(f"the link {final} would point to {pointing}, outside {home}")
    if final.is_symlink() and final.readlink() == Path(pointing):
        return False
    draft = final.with_name(f".{final.name}.link")
    draft.unlink(missing_ok=True)
    try:
        draft.symlink_to(pointing)
        draft.rename(final)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise RemoveFailed(f"no link {final}: {error.strerror}") from error
    return True


def make_folder(target: Target, mode: int) -> bool:
    final = target.prepare()
    if final.is_dir():
        return False
    try:
        final.mkdir(mode=mode)
    except OSError as error:
        raise RemoveFailed(f"no directory {final}: {error.strerror}") from error
    return True


def remove(target: Target, *, folder: bool = False) -> bool:
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
        raise RemoveFailed(f"{target.final} stays: {error.strerror}") from error
    return True


def move(old: Target, new: Target) -> bool:
    """Give a file we hold its new name. Whether we hold it, and nothing has that name."""
    if not old.final.parent.is_dir():
        return False
    old.check()
    final = new.prepare()
    if not os.path.lexists(old.final) or os.path.lexists(final):
        return False
    os.rename(old.final, final)  # noqa: PTH104 - Path.rename is the same
    return True


def link_or_copy(old: Target, new: Target) -> bool:
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
        draft = final.with_name(f".{final.name}.copy")
        shutil.copy2(old.final, draft)
        draft.rename(final)
    return True
