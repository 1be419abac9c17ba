"""What a model card says of sets of labels with a promise."""

from __future__ import annotations

from collections.abc import Sequence

from tasklm.console.markdown import plain
from tasklm.coverage.calibration import FILE
from tasklm.coverage.lines import HEADER, rows_of, sentences
from tasklm.coverage.measured import Measured, read_measured
from tasklm.export.record import Exported
from tasklm.export.source import Source

ANSWERS = "`tasklm predict FOLDER --coverage 0.95` answers with sets of labels, or with unknown."
KEPT = (
    f"transformers cannot answer with label sets. `{FILE}` has the calibration of the trained "
    "model; `tasklm predict MODEL --coverage 0.95` answers with sets, from the folder `model` of "
    "the run or from an export to ONNX."
)
FEWER_BITS = (
    "The promise was calibrated and measured on the trained model in fp32; the weights here have "
    "fewer bits, and their coverage was not measured."
)
WITHOUT_LINEAR = (
    "It was calibrated with the linear model of words, which the network here lacks: the promise "
    "does not hold for its outputs alone."
)


def coverage_text(source: Source, exported: Exported) -> str:
    """Promised and measured coverage as a table, and what holds for this export."""
    lines = [KEPT if exported.to == "hf" else ANSWERS]
    if exported.weights != "fp32":
        lines.append(FEWER_BITS)
    if exported.to == "hf" and exported.wide is not None:
        lines.append(WITHOUT_LINEAR)
    tasks = {} if source.run is None else read_measured(source.run)
    for name, measured in tasks.items():
        if source.own_name in ("", name):
            lines += ["", *([f"Task {plain(name)}:", ""] if name else []), _table(measured), ""]
            lines += [f"- {plain(sentence)}" for sentence in sentences(measured)]
    return "\n".join(lines)


def _table(measured: Sequence[Measured]) -> str:
    rows = [[plain(cell) for cell in row] for row in rows_of(measured)]
    lines = [HEADER, ["---"] * len(HEADER), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
