"""A question and a text → the span of the text that answers it, or that none does.

The start of an answer and its end given the start are predicted together and decoded with a beam,
as in "XLNet" (arXiv 1906.08237) and "ELECTRA" (arXiv 2003.10555). The end's score is a product of
two short vectors, so that the head outputs one row of numbers per position:

    start | bias | begin (32) | finish (32)        end(e | s) = finish(e) · begin(s) / √32 + bias(e)

Two more vectors, of which the network knows nothing, are those of the wide part: their product is
added to the end's score.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tasklm.errors import RecipeError
from tasklm.recipe.data_sections import Data, Kind
from tasklm.recipe.model_sections import LONGEST_ROW
from tasklm.registry import nearest
from tasklm.tasks.answer_sets import SETLESS_SPANS
from tasklm.tasks.answer_windows import (
    Window,
    answer_tokens,
    gold_answers,
    trimmed,
    window_starts,
    window_targets,
)
from tasklm.tasks.base import (
    NONE,
    TASKS,
    Answer,
    Elsewhere,
    Floats,
    Label,
    LabelsAlone,
    Metric,
    Tokeniser,
    Unit,
)
from tasklm.tasks.baselines.answer_fitting import fit_spans
from tasklm.tasks.baselines.best_sentence import best_sentence, sentences, word_weights
from tasklm.tasks.baselines.wide import Wide, labels_by
from tasklm.tasks.baselines.wide_fitting import FittedWide
from tasklm.tasks.examples import Example, Finding, Splits
from tasklm.tasks.heads.answer_search import BEAM, Kept, best_answers, best_threshold
from tasklm.tasks.heads.soft_answers import HIDDEN, end_scores
from tasklm.tasks.heads.wide_answers import POINTS
from tasklm.tasks.metrics import answer_metric
from tasklm.tasks.readers.columns import needs_columns
from tasklm.tasks.readers.squad import Gold, first_place, read_questions
from tasklm.tasks.rivals import Unranked
from tasklm.tasks.saved import number_in, truth_in, whole_in
from tasklm.tasks.text_lessons import TaughtSpans

if TYPE_CHECKING:
    from torch import Tensor, nn

LONGEST_QUESTION = 64  # tokens, as in BERT's program for SQuAD; half of a row where that is less
FAULTY_SHARE = 0.1  # of training questions whose answer is not in the text: beyond it, an error
_SHOWN = 3


@dataclass
class GoldTexts:
    """A metric of answer texts; a gold answer is a text, several, or several with their places."""

    inner: Metric
    name: str

    def statistics(
        self, gold: Sequence[Gold | Sequence[str] | str], predicted: Sequence[str]
    ) -> Floats:
        """The contribution of each example to the sums."""
        return self.inner.statistics([_texts_of(answers) for answers in gold], predicted)

    def value(self, sums: Floats) -> Floats:
        """The score for sums of statistics."""
        return self.inner.value(sums)


@TASKS.register("span")
class Span(LabelsAlone, Unranked, TaughtSpans):
    """Extractive question answering.

    Gold labels are lists of (answer, its start), predicted ones texts; "": no answer.
    """

    kind: ClassVar[str] = "span"
    classifies, pairs, cased = False, True, False
    reads_vectors = False
    unranked = "an answer in a text has no runner-up of known probability"
    sets, setless = None, SETLESS_SPANS
    labels_alone = "raw text has no questions"
    metrics: tuple[str, ...] = ("answer_f1", "exact_match")
    packs: bool = False
    wide_width = POINTS  # of a word

    def __init__(
        self, stride: int, answer_tokens: int, unanswerable: bool, threshold: float = 0.0
    ) -> None:
        """`unanswerable`: training questions without an answer occur, and an answer is then given
        only where its score exceeds that of "no answer" by more than `threshold`.
        """
        self.stride, self.answer_tokens = stride, answer_tokens
        self.unanswerable, self.threshold = unanswerable, threshold
        self.labels: list[str] = []
        self.together = 1

    @property
    def elsewhere(self) -> Elsewhere | None:
        """None: answers are searched for."""
        return None

    @classmethod
    def read(cls, path: Path, data: Data, labelled: bool = True) -> tuple[list[Example], list[str]]:
        """The questions of SQuAD's JSON or of a table, and notes."""
        return read_questions(path, data, labelled)

    @classmethod
    def from_examples(cls, train: Sequence[Example], settings: Kind) -> Span:
        """The task; a question without an answer in train makes "no answer" possible."""
        unanswerable = any(not example.label for example in train)
        return cls(settings.stride, settings.answer_tokens, unanswerable)

    def example_of(self, text: str) -> Example:
        """Raises: a text alone is not a question."""
        raise needs_columns("question and context")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Span:
        """The task that `to_dict` described."""
        stride = whole_in(values, "stride", 0, LONGEST_ROW)
        answer_tokens = whole_in(values, "answer_tokens", 1, LONGEST_ROW)
        return cls(
            stride, answer_tokens, truth_in(values, "unanswerable"), number_in(values, "threshold")
        )

    def to_dict(self) -> dict[str, Any]:
        """The kind, its settings and the threshold."""
        return {
            "kind": self.kind,
            "stride": self.stride,
            "answer_tokens": self.answer_tokens,
            "unanswerable": self.unanswerable,
            "threshold": self.threshold,
        }

    def audit(self, splits: Splits) -> list[Finding]:
        """The number of questions without an answer, and answers that are not in their texts."""
        return [
            _answerable(splits, self.unanswerable),
            *(_faults(name, part) for name, part in splits.named().items()),
        ]

    def classes(self, label: Any) -> list[str]:
        """Empty: this kind has no classes."""
        return []

    def encode(self, examples: Sequence[Example], tokeniser: Tokeniser, length: int) -> list[Unit]:
        """Returns [CLS] question [SEP] window of the text [SEP] for every window. Places: [CLS] and
        the tokens of the text.

        Neighbouring windows share `stride` tokens, but at most half a window. Targets are marks of
        the start and of the end; both stand at [CLS] where the window does not hold the whole
        answer. An answer that is nowhere in its text has no targets: nothing is learnt.
        """
        units: list[Unit] = []
        questions = tokeniser.encode([example.texts[0] for example in examples])
        context, spans = "", np.zeros((0, 2), np.int32)
        tokens: list[int] = []
        for number, (example, question) in enumerate(zip(examples, questions, strict=True)):
            question = question[: min(LONGEST_QUESTION, (length - 3) // 2)]
            if example.texts[1] != context:  # several questions in a row may be on one text
                context = example.texts[1]
                tokens, characters = tokeniser.spans(context)
                spans = np.array(characters, np.int32).reshape(-1, 2)
            answer = None
            if example.label:
                answer = answer_tokens(gold_answers(example.label, context), spans)
            second = len(question) + 2
            room = length - 1 - second
            for begin in window_starts(len(tokens), room, min(self.stride, room // 2)):
                window = tokens[begin : begin + room]
                targets = None
                if example.label is not None:
                    targets = window_targets(answer, bool(example.label), begin, len(window))
                row = [tokeniser.cls, *question, tokeniser.sep, *window, tokeniser.sep]
                places = [0, *range(second, second + len(window))]
                of_row = np.concatenate([np.zeros((1, 2), np.int32), spans[begin : begin + room]])
                units.append(
                    Window(row, places, targets, second, number, spans=of_row, text=context)
                )
        return units

    def head(self, width: int, dropout: float, normed: bool = False) -> nn.Module:
        """A fresh head; it gives for each place a start score, an end bias, and vectors of RANK
        numbers for start and end.
        """
        from tasklm.tasks.heads.answer_head import AnswerHead

        return AnswerHead(width, dropout)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """The sum over rows of the cross-entropies of the gold start, and of the gold end given the
        gold start.
        """
        outputs = outputs.float()
        padding = targets[..., 0] == NONE
        starts, ends = (targets == 1).float().unbind(-1)
        start_logs = outputs[..., 0].masked_fill(padding, HIDDEN).log_softmax(-1)
        end_logs = end_scores(outputs, starts).masked_fill(padding, HIDDEN).log_softmax(-1)
        return -(starts * start_logs).sum() - (ends * end_logs).sum()

    def count(self, targets: Tensor) -> int:
        """The number of rows with targets."""
        return int((targets[..., 0] == 1).sum())

    def keep(self, outputs: Floats) -> Kept:
        """The score of "no answer" and the best answers of a window, from a beam of starts."""
        return best_answers(np.asarray(outputs, np.float64), BEAM, self.answer_tokens)

    def tuned(
        self, examples: Sequence[Example], units: Sequence[Unit], predictions: Sequence[Any]
    ) -> Span:
        """The task with the threshold of best F1, if there are questions without an answer."""
        if not self.unanswerable:
            return self
        best_ones = [
            self._best(example, windows)
            for example, windows in zip(
                examples, _by_example(len(examples), units, predictions), strict=True
            )
        ]
        texts = [
            example.texts[1][begin:end]
            for example, (begin, end, _, _) in zip(examples, best_ones, strict=True)
        ]
        gold = [example.label for example in examples]
        score = self.metric(self.metrics[0])
        given = score.statistics(gold, texts)
        held_back = score.statistics(gold, [""] * len(examples))
        differences = np.array([best - none for _, _, best, none in best_ones])
        threshold = best_threshold(score, differences, given, held_back)
        return Span(self.stride, self.answer_tokens, self.unanswerable, threshold)

    def answers(
        self, examples: Sequence[Example], units: Sequence[Unit], predictions: Sequence[Any]
    ) -> list[Answer]:
        """The best answer over the windows of each question; "score": its probability there."""
        given = []
        windows_of = _by_example(len(examples), units, predictions)
        for example, windows in zip(examples, windows_of, strict=True):
            begin, end, score, none = self._best(example, windows)
            above = not self.unanswerable or score - none > self.threshold
            answerable = bool(above and score > -math.inf)
            if not answerable:
                begin, end, score = 0, 0, none
            given.append(
                {
                    "answer": example.texts[1][begin:end],
                    "begin": begin,
                    "end": end,
                    "score": math.exp(score),
                    "answerable": answerable,
                }
            )
        return given

    def label_of(self, answer: Answer) -> str:
        """The text of the answer, "" for none."""
        return str(answer["answer"])

    def metric(self, name: str) -> Metric:
        """The named metric, for gold answers with places."""
        if name not in self.metrics:
            known = f"{', '.join(self.metrics)}{nearest(name, list(self.metrics))}"
            raise RecipeError([f"evaluate.metric = {name!r}: the metrics of kind span are {known}"])
        return GoldTexts(answer_metric(name), name)

    def baselines(
        self,
        train: Sequence[Example],
        held: Mapping[str, Sequence[Example]],
        metric: str,
        wide: Wide | None = None,
    ) -> dict[str, dict[str, list[Label]]]:
        """Three baselines: the sentence that shares most with the question, "majority" (no answer
        if most have none, else the first sentence), and the linear model of the wide part.
        """
        weights = word_weights(train)
        silent = sum(not example.label for example in train) * 2 > len(train)
        predictions: dict[str, dict[str, list[Label]]] = {
            "majority": {
                name: ["" if silent else next(sentences(example.texts[1]), "") for example in part]
                for name, part in held.items()
            },
            "best sentence": {
                name: [best_sentence(example, weights) for example in part]
                for name, part in held.items()
            },
        }
        if wide is not None:
            predictions["words in common + linear"] = labels_by(wide, self, held)
        return predictions

    def fit_wide(
        self, train: Sequence[Example], dev: Sequence[Example], metric: str, vectors: Any = None
    ) -> FittedWide | None:
        """Fits a linear model of the words of answers and of what they share with the question."""
        return fit_spans(train)

    def _best(
        self, example: Example, windows: Sequence[tuple[Window, Kept]]
    ) -> tuple[int, int, float, float]:
        """The best answer as (begin, end, score) in characters, with a score of minus infinity if
        there is none, and the lowest score of "no answer": every window except the one with the
        answer predicts none.
        """
        none = min(score for _, (score, _) in windows)
        ranked = []
        for unit, (_, candidates) in windows:
            ranked += [(unit, candidate) for candidate in candidates]
        ranked.sort(key=lambda entry: -entry[1][2])
        context = example.texts[1]
        for unit, (first, last, score) in ranked:
            begin, end = trimmed(context, int(unit.spans[first, 0]), int(unit.spans[last, 1]))
            if begin < end:
                return begin, end, score, none
        return 0, 0, -math.inf, none


def _texts_of(answers: Gold | Sequence[str] | str) -> list[str]:
    """The texts of gold answers in any of their forms."""
    if isinstance(answers, str):
        return [answers]
    return [answer if isinstance(answer, str) else answer[0] for answer in answers]


def _by_example(
    count: int, units: Sequence[Unit], predictions: Sequence[Any]
) -> list[list[tuple[Window, Kept]]]:
    windows: list[list[tuple[Window, Kept]]] = [[] for _ in range(count)]
    for unit, some in zip(units, predictions, strict=True):
        assert isinstance(unit, Window)  # `encode` makes no others
        windows[unit.example].append((unit, some))
    return windows


def _answerable(splits: Splits, unanswerable: bool) -> Finding:
    silent = {
        name: sum(not example.label for example in part) for name, part in splits.named().items()
    }
    counts = ", ".join(
        f"{count:,} of {len(splits.named()[name]):,} in {name}" for name, count in silent.items()
    )
    message = f"questions without an answer: {counts}."
    if not unanswerable and any(silent.values()):
        message += (
            " Train has none, so every question will get an answer: add such questions to train."
        )
        brief = "only train has no questions without an answer: add some to it"
        return Finding("warning", "answerability", message, brief=brief)
    return Finding("ok", "answerability", message)


def _faults(name: str, part: Sequence[Example]) -> Finding:
    faulty = [example for example in part if example.label and first_place(example.label) is None]
    if not faulty:
        return Finding("ok", f"answers in {name}", "every answer occurs in its text.")
    level, use = "warning", "They can hardly be answered correctly"
    if name == "train":
        use = "The model learns nothing from them"
        if len(faulty) > FAULTY_SHARE * len(part):
            level = "error"
    message = (
        f"{len(faulty):,} of {len(part):,} questions have an answer that is not in their text. "
        f"{use}: correct them, or delete them."
    )
    examples = tuple(
        f"{one.file}, line {one.line}: {one.texts[0][:80]!r}: {one.label[0][0][:80]!r}"
        for one in faulty[:_SHOWN]
    )
    brief = f"{len(faulty):,} answers of {name} are not in their text: correct or delete them"
    return Finding(level, f"answers in {name}", message, examples, brief)
