"""What a GPU did while a profiler watched: how long each kernel took, and how long it waited."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

NAME_LENGTH = 110  # of a kernel's name, in the table


@dataclass(frozen=True)
class Work:
    """One kernel or copy on the device, in microseconds since some moment."""

    name: str
    start: float
    end: float


def device_work(events: Iterable[Any]) -> list[Work]:
    """What ran on the device, of the events of torch.profiler; ranges that only bear a name are
    left out.
    """
    found = [
        event
        for event in events
        if event.device_type.name == "CUDA" and not getattr(event, "is_user_annotation", False)
    ]
    return sorted(
        (Work(one.name, one.time_range.start, one.time_range.end) for one in found),
        key=lambda work: work.start,
    )


def waits(work: list[Work]) -> list[tuple[float, str, str]]:
    """The spans in which nothing ran: how long, after which kernel, and before which."""
    found, last = [], work[0]
    for one in work[1:]:
        if one.start > last.end:
            found.append((one.start - last.end, last.name, one.name))
        last = max(
            last, one, key=lambda either: either.end
        )  # several streams: a long kernel may outlast later ones
    return found


def markdown(work: list[Work], steps: int, rows: int = 40) -> str:
    """Where the time of a step went, as tables; times are microseconds a step."""
    calls = Counter(one.name for one in work)
    spent: dict[str, float] = defaultdict(float)
    for one in work:
        spent[one.name] += one.end - one.start
    idle: dict[tuple[str, str], list[float]] = defaultdict(list)
    for span, before, after in waits(work):
        idle[before, after].append(span)
    whole, waiting = (work[-1].end - work[0].start) / steps, sum(map(sum, idle.values())) / steps
    lines = [
        (
            f"{len(work) / steps:,.0f} kernels and copies a step; "
            f"{whole:,.0f} µs a step, of which the device waits {waiting:,.0f}."
        ),
        "",
        "| µs a step | calls a step | kernel |",
        "|---|---|---|",
        *(
            f"| {spent[name] / steps:,.1f} | {calls[name] / steps:,.1f} | {name[:NAME_LENGTH]} |"
            for name in sorted(spent, key=spent.__getitem__, reverse=True)[:rows]
        ),
        "",
        "| µs waited a step | times a step | between |",
        "|---|---|---|",
    ]
    for names, spans in sorted(idle.items(), key=lambda one: -sum(one[1]))[: rows // 2]:
        between = " → ".join(name[: NAME_LENGTH // 2] for name in names)
        lines.append(f"| {sum(spans) / steps:,.1f} | {len(spans) / steps:,.1f} | {between} |")
    return "\n".join([*lines, ""])
