"""The parts to run: the broker, and those of all installed packages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from typing import Final

from penstock.cli.up.extension import BROKER, Extension, UpOptions
from penstock.cli.up.supervisor import Part

GROUP: Final = "penstock.up"


@dataclass(frozen=True, slots=True)
class Plan:
    parts: list[Part]  #: in the order of their dependencies
    extensions: Sequence[Extension]

    @property
    def left_out(self) -> dict[str, str]:
        """Parts that cannot run on this machine, with reasons."""
        return {
            part: why for extension in self.extensions for part, why in extension.left_out.items()
        }


def installed_extensions(options: UpOptions) -> list[Extension]:
    found = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    return [entry.load()(options) for entry in found]


def plan(options: UpOptions) -> Plan:
    broker = Part(BROKER, lambda _: [*options.command("broker"), *options.broker])
    extensions = installed_extensions(options)
    return Plan(_ordered([broker, *(p for each in extensions for p in each.parts)]), extensions)


def _ordered(parts: list[Part]) -> list[Part]:
    """By dependencies; those that are not among the parts run elsewhere."""
    known = {part.name for part in parts}
    waiting = [replace(part, needs=[n for n in part.needs if n in known]) for part in parts]
    ordered: list[Part] = []
    while waiting:
        done = {part.name for part in ordered}
        part = next((each for each in waiting if done.issuperset(each.needs)), waiting[0])
        waiting.remove(part)
        ordered.append(part)
    return ordered
