"""The training cost of a model, compared with the costs that papers report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tasklm.console.durations import duration
from tasklm.evaluate.scores import Scores, flops_text
from tasklm.report.bar_tables import bars
from tasklm.report.page import Html, clipped, joined, soft

TLM, ISS = "TLM, table 2", "ISS, table 3"
SOURCES = (
    "TLM: NLP From Scratch Without Large-Scale Pretraining, arXiv 2111.04130. "
    "ISS: Farewell to Aimless Large-scale Pretraining: "
    "Influential Subset Selection for Language Model, arXiv 2305.12816."
)
PUBLISHED = [  # training FLOPs as 6 × parameters × tokens, and the table that reports them
    ("RoBERTa-large", 4.36e21, TLM),
    ("RoBERTa-base", 1.54e21, TLM),
    ("BERT-large", 9.07e19, TLM),
    ("TLM large", 7.59e19, TLM),
    ("BERT-base", 2.79e19, TLM),
    ("TLM medium", 8.30e18, TLM),
    ("ISS large", 8.30e18, ISS),
    ("ISS medium", 4.15e18, ISS),
    ("TLM small", 2.74e18, TLM),
    ("ISS small", 1.82e18, ISS),
]
BERT_BASE = 2.79e19


def cost(scores: Scores | None, start: str = "") -> Html:
    """The training cost compared with published models; `start` is the checkpoint that it continued
    from.
    """
    if scores is None or scores.ours is None or scores.ours.flops_6nd <= 0:
        return Html("")
    ours = scores.ours
    remark = f"BERT-base's pretraining cost {bert_base_times(ours.flops_6nd)}."
    if start:
        remark = f"This run continued from {clipped(start, 60)}, whose own training is not counted."
    if ours.flops_exact > 0:
        remark += f" Counted exactly, this run took {flops_text(ours.flops_exact)}."
    return joined([cost_bars([(ours.name, ours.flops_6nd)]), soft(remark)])


def time_bars(timeline: Mapping[str, float]) -> Html:
    """The seconds of each step of the run."""
    if not timeline:
        return Html("")
    rows = [(step, seconds, duration(seconds)) for step, seconds in timeline.items()]
    total = f"{duration(sum(timeline.values()))} in all, interruptions left out."
    return joined([bars(rows), soft(total)])


def cost_bars(own: Sequence[tuple[str, float]]) -> Html:
    """Training FLOPs of some models and the published ones, largest first, on a log scale."""
    entries = [*PUBLISHED, *((name, flops, "") for name, flops in own)]
    entries.sort(key=lambda entry: -entry[1])
    rows = [(name, flops, flops_text(flops)) for name, flops, _ in entries]
    here = [number for number, (_, _, source) in enumerate(entries) if not source]
    notes = [source or "this page" for _, _, source in entries]
    about = (
        "Training FLOPs as 6 × parameters × tokens, on a logarithmic scale: "
        "pretraining for BERT and RoBERTa, all of the training for the others "
        "(TLM's are means over eight tasks). "
        f"The last column names the table that reports the number. {SOURCES}"
    )
    return joined([bars(rows, log=True, strong=here, notes=notes), soft(about)])


def bert_base_times(flops: float) -> str:
    """How many times more BERT-base's pretraining cost."""
    ratio = BERT_BASE / flops
    number = f"{ratio:,.0f}" if ratio >= 10 else f"{ratio:.2g}"
    for size, name in ((1e9, "billion"), (1e6, "million")):
        if ratio >= size:
            number = f"{ratio / size:,.0f} {name}"
            break
    return f"{number} times as much"
