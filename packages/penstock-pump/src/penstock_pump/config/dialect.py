"""Which program a configuration was written for, v2 or sr3: their defaults differ.

Decided once for a configuration, by the first that tells: the option `dialect`; the folder (sr3's
is called `sr3`, v2's `sarra`); an option that only one of the two has. Otherwise it is sr3, the
present program.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Final

from penstock.core.errors import ConfigurationError


class Dialect(StrEnum):
    V2 = "v2"  #: defaults of Sarracenia v2: posts in v02
    SR3 = "sr3"  #: defaults of sr3: posts in v03, what no pattern matches is accepted


#: Folders that hold the configurations of one program. `sarracenia` is that of sr3's examples.
_FOLDERS: Final = {"sr3": Dialect.SR3, "sarracenia": Dialect.SR3, "sarra": Dialect.V2}


def decide_dialect(
    path: Path, setting: str | None, options: Iterable[tuple[str, frozenset[Dialect]]]
) -> tuple[Dialect, str]:
    """The dialect and the reason. `options` are those of the file, with the dialects that spell
    them so."""
    if setting is not None:
        try:
            return Dialect(setting.strip().lower()), "option dialect"
        except ValueError:
            raise ConfigurationError(f"dialect {setting!r} should be v2 or sr3") from None
    # The component's own folder may be called sarra, too.
    for folder in path.resolve().parents[1:]:
        if folder.name in _FOLDERS:
            return _FOLDERS[folder.name], f"folder {folder.name}"
    found: dict[Dialect, str] = {}
    for name, dialects in options:
        if len(dialects) == 1:
            found.setdefault(next(iter(dialects)), name)
    for dialect in (Dialect.SR3, Dialect.V2):  # sr3 also reads v2's spellings
        if dialect in found:
            return dialect, f"option {found[dialect]}"
    return Dialect.SR3, "default"
