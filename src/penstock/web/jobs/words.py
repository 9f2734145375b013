"""Jobs in words: what they are called, how long something takes, what their state looks like."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from penstock.jobs.history.records import JobRecord, JobState

#: Kind → what a person calls it, icon.
KINDS: Final = {
    "fake": ("Trial run", "hourglass_empty"),
    "build_models": ("Build of models", "model_training"),
    "predict_models": ("Prediction", "biotech"),
    "call": ("Python function", "code"),
    "spark": ("Spark job", "bolt"),
    "command": ("Command", "terminal"),
}
#: State → the class of its pill, icon.
STATES: Final = {
    JobState.WAITING: ("", "schedule"),
    JobState.RUNNING: ("busy", "autorenew"),
    JobState.RETRYING: ("warn", "replay"),
    JobState.DONE: ("good", "check"),
    JobState.FAILED: ("bad", "error_outline"),
    JobState.CANCELLED: ("", "block"),
    JobState.REFUSED: ("bad", "do_not_disturb"),
}


def kind_name(kind: str) -> str:
    return KINDS.get(kind, (kind, ""))[0]


def kind_icon(kind: str) -> str:
    return KINDS.get(kind, ("", "work_outline"))[1]


def span(seconds: float) -> str:
    """`3.2 s`, `4 min 10 s`, `2 h 5 min`: two units at most."""
    if seconds < 10:
        return f"{max(seconds, 0):.1f} s"
    whole = round(seconds)
    units = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
    parts = []
    for size, name in units:
        count, whole = divmod(whole, size)
        if count:
            parts.append(f"{count} {name}")
        elif parts:
            break
    return " ".join(parts[:2])


def ago(moment: datetime, now: datetime) -> str:
    seconds = (now - moment).total_seconds()
    return "just now" if seconds < 5 else f"{_rough(seconds)} ago"


def standing(record: JobRecord, now: datetime) -> str:
    """How far it is, in a line."""
    match record.state:
        case JobState.WAITING:
            return f"waiting for {_rough((now - record.submitted).total_seconds())}"
        case JobState.RUNNING:
            text = f"{record.progress:.0%}"
            left = (record.end - now).total_seconds() if record.end else 0.0
            return f"{text} · about {_rough(left)} left" if left > 0 else text
        case JobState.RETRYING:
            return f"attempt {record.attempts} failed; it is tried again"
        case JobState.DONE if record.start and record.end:
            return f"took {span((record.end - record.start).total_seconds())}"
        case JobState.FAILED | JobState.REFUSED:
            return _first_line(record.error or "no reason was told")
        case _:
            return ago(record.changed, now)


def _rough(seconds: float) -> str:
    for size, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 1.5 * size:
            return f"{round(seconds / size)} {name}"
    return f"{max(round(seconds), 1)} s"


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= 160 else f"{line[:157]}…"
