"""Durations as readable text: the one place that formats them."""

from __future__ import annotations


def duration(seconds: float, rough: bool = False) -> str:
    """A time in its two largest units, such as 3 min 5 s.

    `rough` is for estimates, whose last digits mean nothing: 35 s, 3 min, 2 h 5 min.
    """
    if rough and seconds < 57.5:
        seconds = max(5, 5 * round(seconds / 5))
    elif rough:
        seconds = 60 * round(seconds / 60)
    elif 0 < seconds < 9.95 and seconds != round(seconds):
        return f"{seconds:.1f} s"
    whole = round(max(0.0, seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return _two(whole // 60, "min", whole % 60, "s")
    return _two(whole // 3600, "h", whole % 3600 // 60, "min")


def _two(large: int, unit: str, small: int, smaller: str) -> str:
    if not small:
        return f"{large} {unit}"
    return f"{large} {unit} {small} {smaller}"
