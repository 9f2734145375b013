"""Settings read as the values that the rest of the pump works with."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.core.errors import ConfigurationError
from penstock.pump.components.naming import heard_exchange
from penstock.pump.config.settings import Component, PumpSettings
from penstock.pump.flow.hearing import Binding
from penstock.pump.landing.draft import Manners
from penstock.pump.placement import Placement
from penstock.pump.posts.v02 import Dialect
from penstock.pump.selection import Clause, Selection
from penstock.pump.transports.file_rule import FileRule


def bindings(settings: PumpSettings) -> list[Binding]:
    if settings.bindings:
        return [
            Binding(each.exchange, each.topic_prefix or prefix, each.subtopic)
            for each in settings.bindings
            for prefix in ([each.topic_prefix] if each.topic_prefix else settings.topic_prefix)
        ]
    exchange = heard_exchange(settings)
    return [
        Binding(exchange, prefix, subtopic)
        for prefix in settings.topic_prefix
        for subtopic in settings.subtopic
    ]


def selection(settings: PumpSettings) -> Selection:
    own = Placement(
        settings.directory, settings.mirror, settings.strip, settings.flatten, settings.filename
    )
    clauses = []
    for rule in settings.select:
        pattern = rule.accept or rule.reject
        if pattern is None or (rule.accept and rule.reject):
            raise ConfigurationError("a rule of `select` is either an accept or a reject")
        placement = Placement(
            own.directory if rule.directory is None else rule.directory,
            own.mirror if rule.mirror is None else rule.mirror,
            own.strip if rule.strip is None else rule.strip,
            own.flatten if rule.flatten is None else rule.flatten,
            own.filename if rule.filename is None else rule.filename,
        )
        clauses.append(Clause(rule.accept is not None, pattern, placement))
    return Selection(clauses, settings.accept_unmatched, own)


def variables(settings: PumpSettings) -> dict[str, str]:
    found = {**os.environ, **settings.variables}
    if settings.base_dir is not None:
        found["BD"] = str(settings.base_dir)
    if settings.post_base_dir is not None:
        found["PBD"] = str(settings.post_base_dir)
    return found


def manners(settings: PumpSettings) -> Manners:
    return Manners(
        keep_mode=settings.preserve_mode,
        keep_times=settings.preserve_time,
        mode=settings.default_mode,
        folder_mode=settings.default_dir_mode or 0o775,
        durable=settings.durable,
    )


def file_rule(settings: PumpSettings) -> FileRule:
    """A sender's base directory holds what it is to send."""
    listed = list(settings.file_directories)
    if settings.component is Component.SENDER and settings.base_dir is not None:
        listed.append(settings.base_dir)
    return FileRule(tuple(Path(os.path.abspath(each)) for each in listed))  # noqa: PTH100


def dialect(settings: PumpSettings) -> Dialect:
    return Dialect(settings.name_in_topic, settings.newline, settings.exact_names)


def base_url(settings: PumpSettings) -> str:
    """A prefix ends with a slash, so that nobody takes it for the file itself."""
    url = settings.post_base_url
    if url is None:
        raise ConfigurationError(f"{settings.component} needs post_base_url: where files are had")
    return url if url == "file:" or url.endswith("/") else url + "/"


def base_dir(settings: PumpSettings) -> Path:
    return settings.post_base_dir or settings.base_dir or Path(settings.directory)


def needs_post_broker(settings: PumpSettings) -> bool:
    return settings.post_broker is not None or settings.component is Component.SARRA
