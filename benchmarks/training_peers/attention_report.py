"""Results of `benchmarks/attention.py` by device → one page of Markdown."""

from __future__ import annotations

from typing import Any

from training_peers.report import page

_COMPARED = "padded per batch"

_ABOUT = f"""\
# Padded, packed and variable-length batches

Written by `benchmarks/attention.py`. The same examples, cut after so many tokens, go through our BERT-shaped encoder forward and backward;
only how a batch is laid out differs. Tokens per second count real tokens alone, padding never; the median of the rounds, in brackets
the range. Ways take turns, round after round. "Filled" is the share of the places of all batches that hold a real token.

- **padded to the longest of all**: every row is as long as the longest example of the set.
- **padded per batch**: as long as the longest of its batch, rounded up to 8; what the others are compared with here is "{_COMPARED}".
- **padded, sorted by length**: examples of 16 batches are sorted by length first, then padded per batch.
- **packed rows**: whole examples of a batch share rows (the longest first, first fit); a mask keeps attention inside each.
- **variable-length**: all examples of a batch end to end, no padding, attention told where each begins; on a GPU only.
"""


def markdown(devices: dict[str, Any]) -> str:
    """The whole page: a section for each device, a table for each set of lengths and encoder."""
    return page(_ABOUT, devices, _case)


def _case(name: str, case: dict[str, Any]) -> str:
    about, ways = case["about"], case["ways"]
    quartiles = ", ".join(map(str, about["quartiles"]))
    lines = [
        f"### {name}",
        "",
        f"{about['date']}; {about['software']}; {about['examples']:,} "
        f"examples, {about['batch']} a batch, cut after {about['cut']} tokens; "
        f"quartiles of their lengths {quartiles}, longest {about['longest']}.",
        "",
        f"| way | real tokens/s | of {_COMPARED} | filled | memory, GB |",
        "|---|---|---|---|---|",
    ]
    lines += [
        _row(way, numbers, ways[_COMPARED]["tokens_per_second"]) for way, numbers in ways.items()
    ]
    return "\n".join([*lines, ""])


def _row(way: str, numbers: dict[str, Any], compared: float) -> str:
    speed = numbers["tokens_per_second"]
    cells = [
        way,
        f"{speed:,.0f} ({numbers['slowest']:,.0f} to {numbers['fastest']:,.0f})",
        f"{speed / compared:.2f}×",
        f"{100 * numbers['filled']:.0f} %",
        f"{numbers['memory'] / 1e9:.2f}" if numbers["memory"] else "",
    ]
    return f"| {' | '.join(cells)} |"
