"""The rounds of the cases → one page of Markdown."""

from __future__ import annotations

from typing import Any

from tasklm.evaluate.scores import flops_text, metric_name
from tasklm.pipeline.timeline import FLOW

Case = dict[str, Any]  # "about" and "rounds", each with a run of both sides
Side = dict[str, Any]  # a run of one of them
_TITLES = {
    "demo": "The demo",
    "acl_arc": "ACL-ARC, citation intents",
    "chemprot": "ChemProt, relations, on a GPU",
}
_BOTH = ("tasklm", "peer")
_SMALL = 0.05  # seconds of a step that is not worth a row
_REST = "outside these"
_ABOUT = f"""\
# A whole run beside well-known parts

Written by `benchmarks/whole_run.py`. The time of `tasklm run` by step, beside the same work put
together from libraries that many use: pyarrow reads the texts, bm25s selects passages with the
training texts as queries, `tokenizers` learns a WordPiece vocabulary, and `transformers.Trainer`
trains BertForMaskedLM and then, from its weights, BertForSequenceClassification.

- **Alike**: the files, k, the number of passages, the size of the vocabulary, the layers and the
  width, steps × rows × tokens of stage 1 (masks on 15 % of the tokens), epochs and seeds of stage 2
  with a score on dev after each epoch, of which the best is kept. tasklm runs without ablations
  (`--compare`) and without a wide part (`--finetune.wide false`).
- **Not alike**: tasklm also looks for leaks, duplicates and texts of dev and test in the corpus,
  learns from labels in every fifth step of stage 1 (with a second pass of the encoder), begins with
  counts and neighbours, trains with Muon and keeps attention inside each passage of a row. It
  scores cheap baselines and intervals and writes analyses, a report, a bill of text and checksums.
  The peer does none of that; it trains with AdamW, and its model of language predicts all tokens of
  a row, of which the masked ones count, as the library has it; tasklm predicts these alone. Its
  bm25s uses NumPy, the library's default, with one thread, and numba with several.
- **Time**: tasklm's is the clock that each run keeps (`clock.json`), the peer's runs from its first
  line, before libraries are imported. What is before and after is the row *{_REST}*. Both sides are
  processes that take turns, with as many threads on the same cores and empty folders; the run that
  was shortest as a whole counts, in each of the two measures by itself. CPU seconds are of all
  threads and processes; they tell more where other work shares the machine, and say little of what
  a GPU does. Those of tasklm's steps are read when its clock changes. Its compiled kernels were on
  the disk, as they are after a first run.
- **FLOPs** are those that tasklm's run counts, of all seeds. **Scores** are for orientation: rates
  were not tuned on either side, and so few steps teach little.
"""


def markdown(cases: dict[str, Case]) -> str:
    """The whole page, in the order of the titles."""
    return "\n".join([_ABOUT, *(section(name, cases[name]) for name in _TITLES if name in cases)])


def shortest(case: Case, measure: str) -> dict[str, Side]:
    """The run of each side that took least: `measure` is "wall" or "cpu"."""
    return {
        side: min((one[side] for one in case["rounds"]), key=lambda run: float(run[measure]))
        for side in _BOTH
    }


def ratio(case: Case, measure: str) -> float:
    """How many times as long as tasklm the peer took."""
    runs = shortest(case, measure)
    return float(runs["peer"][measure] / runs["tasklm"][measure])


def section(name: str, case: Case) -> str:
    """A case: its table and what was run."""
    wall, cpu = shortest(case, "wall"), shortest(case, "cpu")
    flops = wall["tasklm"]["flops"]
    lines = [
        f"## {_TITLES[name]}",
        "",
        "| step | tasklm, s | peer, s | tasklm, CPU s | peer, CPU s | FLOPs of tasklm |",
        "|---|---|---|---|---|---|",
    ]
    for step in FLOW:
        times = [_time(wall[side], step, "seconds") for side in _BOTH]
        times += [_time(cpu[side], step, "cpu") for side in _BOTH]
        if max(times) >= _SMALL:
            lines.append(_row(step, times, flops.get(step, 0.0)))
    rest = [_outside(wall[side], "seconds", "wall") for side in _BOTH]
    rest += [_outside(cpu[side], "cpu", "cpu") for side in _BOTH]
    lines.append(_row(_REST, rest, 0.0))
    whole = [wall[side]["wall"] for side in _BOTH] + [cpu[side]["cpu"] for side in _BOTH]
    lines.append(_row("**all**", whole, sum(flops.values())))
    shared = [_shared(wall, side, "seconds") for side in _BOTH]
    shared += [_shared(cpu, side, "cpu") for side in _BOTH]
    lines.append(_row("the steps that both have", shared, sum(flops.values())))
    lines += ["", _ratios(whole, shared), "", *_notes(case, wall)]
    return "\n".join([*lines, ""])


def _time(run: Side, step: str, what: str) -> float:
    return float(run["steps"].get(step, {}).get(what, 0.0))


def _outside(run: Side, what: str, measure: str) -> float:
    """What a command took beside the steps of its clock."""
    return max(0.0, run[measure] - sum(_time(run, step, what) for step in run["steps"]))


def _shared(runs: dict[str, Side], side: str, what: str) -> float:
    """The time of a side in the steps that the peer has."""
    return sum(_time(runs[side], step, what) for step in runs["peer"]["steps"])


def _row(step: str, times: list[float], flops: float) -> str:
    cells = [f"{time:.1f}" if time >= _SMALL else "–" for time in times]
    return f"| {step} | {' | '.join(cells)} | {flops_text(flops) if flops else ''} |"


def _ratios(whole: list[float], shared: list[float]) -> str:
    """The peer's time by tasklm's, in words."""
    words = [
        f"{times[1] / times[0]:.2f} by the clock and {times[3] / times[2]:.2f} of the processor"
        for times in (whole, shared)
    ]
    return (
        f"The peer's time divided by tasklm's: **{words[0]}** for everything; "
        f"{words[1]} for the steps that both have."
    )


def _notes(case: Case, wall: dict[str, Side]) -> list[str]:
    about = case["about"]
    loads = ", ".join(f"{one[side]['load']:.1f}" for one in case["rounds"] for side in _BOTH)
    settings = " ".join(f"--{key} {value}" for key, value in about["settings"].items())
    metric = metric_name(about["metric"])
    scores = [
        f"{side} {100 * wall[side]['dev']:.1f} dev, {100 * wall[side]['test']:.1f} test"
        for side in _BOTH
    ]
    passages = " and ".join(f"{wall[side]['passages']:,}" for side in _BOTH)
    return [
        f"- {metric} × 100, mean of the seeds: {'; '.join(scores)}.",
        f"- Passages selected: {passages}.",
        f"- {about['date']}; {about['machine']}; CPU threads: {about['threads']}; "
        f"{about['software']}; rounds: {len(case['rounds'])}.",
        f"- The machine's load average at the start of each run, in turns: {loads}. "
        "What is above the own threads is other work.",
        f"- `{settings}`.",
        f"- The peer: {wall['peer']['versions']}.",
    ]
