"""The numbers of "Semi-Supervised Sequence Modeling with Cross-View Training" (arXiv 1809.08370) as
its author's thesis prints them: dev, a Bi-LSTM of 1024 units with GloVe vectors.
"""

from __future__ import annotations

from collections.abc import Mapping

Row = Mapping[str, float]
_COLUMNS = ("CCG", "Chunk", "NER", "FGN", "POS", "LAS")


def _row(*values: float) -> Row:
    return dict(zip(_COLUMNS, values, strict=False))


ALL_TASKS = _row(95.7, 97.4, 96.0, 86.7, 97.74, 94.4)  # Table 4.3
ONE_TASK = _row(95.4, 97.1, 95.6, 86.3, 97.71, 94.1)
VIEWS = {  # Table 4.4
    "none": _row(94.8, 95.5, 95.0, 86.0, 97.59),
    "cross-view": _row(95.6, 97.0, 95.9, 87.3, 97.66),
    "no-sides": _row(95.5, 96.8, 95.7, 87.2, 97.65),
    "no-neighbours": _row(95.3, 96.6, 95.5, 87.0, 97.62),
}
FROZEN = {  # Table 4.5
    "none": _row(94.8, 95.6, 95.0, 86.0, 97.59, 92.9),
    "views": _row(95.1, 96.6, 94.6, 83.2, 97.66, 92.5),
    "bilm": _row(94.3, 92.2, 91.3, 80.6, 97.50, 89.4),
}
