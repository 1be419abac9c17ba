"""From minutes or FLOPs to settings: size, K, passages, batch, steps. For the cost of an encoder
see budget/costs.py. Each rule comes with its reason. Everything is arithmetic: speeds are measured
elsewhere and passed in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

DEFAULT_MINUTES = 20.0
# Tokens a weight of the layers should see. Hoffmann et al. (arXiv 2203.15556) find 20 for next-word
# models; at equal time the dev splits of ACL-ARC, SciERC and ChemProt preferred models of twice the
# size. Models that begin with counts of their text do with a quarter of that: benchmarks/log.md
# has the sizes and budgets that were compared.
TOKENS_PER_PARAMETER, TOKENS_PER_COUNTED_PARAMETER = 8, 2
# repeating text up to about 4 times is as good as new text (Muennighoff et al., arXiv 2305.16264)
EPOCHS_OVER_SELECTION = 4
TASK_EPOCHS = 10  # passes over the task in stage 1: the papers' settings lie between 10 and 250
TOKENS_PER_WORD = 1.4  # subwords per word, for planning before there is a vocabulary
SHORTEST_LENGTH, LONGEST_ON_CPU, LONGEST_ON_GPU = (
    64,
    256,
    512,
)  # tokens of a row that follow from the texts
TOKENS_PER_RARE_WORD = (
    1.6  # the same of a special domain or a small language, whose words are cut into more parts
)
# Text that two cores read, clean, index and search in a second; and the most of the time left that
# this may take. The last of these steps, from the index on, takes SEARCH_SHARE of it.
BYTES_PER_SECOND, COMPRESSION, READING_SHARE, SEARCH_SHARE = 5e6, 3, 0.3, 0.4
# Words whose neighbours one core counts in a second, the share of a budget for that; words that are
# worth it, that are counted where no minutes are given, and at most.
WORDS_PER_SECOND, VECTORS_SHARE = 4e5, 0.07
LEAST_WORDS, USUAL_WORDS, MOST_WORDS = 2_000_000, 8_000_000, 32_000_000
END_SHARE, END_SECONDS = 0.04, 10.0  # of a budget, for scores and the report …
# … and the passes forward, by number of examples, that the pictures and explanations in it take
EXPLAINED = 2000
LEAST_TRAINING = 15.0  # seconds left, with which to measure speeds and to train a network
STAGE1_SHARE = 0.6  # of the time left before selection, by which the size of a model is chosen
# of the time left after tokenizing, for fine-tuning with all seeds that are usual …
STAGE2_SHARE = 0.3
STAGE2_MOST = 0.6  # … or with one, which gets its epochs before stage 1 gets text
# of the speed of a matrix product, what compiled training reaches at the width of BERT-base
CEILING_SHARE, CEILING_WIDTH = 0.5, 768
USUAL_SEEDS = 3  # fine-tunings of a training
LEAST_STEPS = 30  # of either stage: a budget that buys fewer does without
STEPS_WANTED = 3000  # few large steps learn less than many small ones at a small budget
FEW_STEPS = 1000  # of stage 1, a third of those wanted: in fewer, a language is hardly learnt
SMALLEST_BATCH, LARGEST_BATCH = 16, 256  # sequences per step of stage 1 that a budget chooses
FINETUNE_STEPS = (
    1500  # optimiser steps of stage 2 where the number of epochs is auto, at the papers' batch
)
SGD_RATE = 0.5  # peak learning rate of plain gradient descent
PAPERS_BATCH = 32  # examples per step of stage 2
FEW_EXAMPLES, FEW_PER_STEP = (
    2000,
    8,
)  # with fewer, small models learn more from small steps: 4 points of dev macro-F1 on ACL-ARC
# A decoder learns from scratch in stage 2: examples per step, and steps where neither epochs nor
# minutes are given, as a small Transformer on Multi30k (arXiv 2105.14462)
WRITING_BATCH, WRITING_STEPS = 64, 8000
WRITING_SHARE = 0.9  # of the time left, at most, for that
WRITING_RATE = 2e-3  # its peak learning rate up to width 256


@dataclass(frozen=True)
class Plan:
    """The decisions of a run before selection, with readable reasons."""

    size: str
    k: int
    passages: int | None
    batch: int
    seconds: float | None
    flops: float | None
    reasons: tuple[str, ...]
    reach: str = "text"  # of budget.scope: what of it the time left pays for

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Plan:
        """The plan that `to_dict` gave."""
        return cls(**{**values, "reasons": tuple(values["reasons"])})


def seconds_to_read(plain: int, compressed: int) -> float:
    """Seconds for reading and searching some bytes of text on an idle machine."""
    return (plain + COMPRESSION * compressed) / BYTES_PER_SECOND


def words_for_vectors(minutes: float | None) -> int:
    """Words of a corpus to count word vectors in; 0 if the minutes are too few."""
    if minutes is None:
        return USUAL_WORDS
    words = int(60 * minutes * VECTORS_SHARE * WORDS_PER_SECOND)
    return min(MOST_WORDS, words) if words >= LEAST_WORDS else 0


def row_length(words: Sequence[int], most: int) -> int:
    """Tokens per row, a power of two up to `most`, so that 19 of 20 texts of these lengths fit."""
    usual = sorted(words)[int(0.95 * (len(words) - 1))] if words else 0
    length = SHORTEST_LENGTH
    while length < most and TOKENS_PER_RARE_WORD * usual + 2 > length:
        length *= 2
    return length


def default_k(examples: int) -> int:
    """K by the rule of TLM: many examples need few passages each."""
    if examples > 100_000:
        return 50
    return 500 if examples >= 5_000 else 5_000


def tokens_per_parameter(counted: bool) -> int:
    """How many tokens a weight of the layers should see; fewer for a model that starts from counts
    of its text.
    """
    return TOKENS_PER_COUNTED_PARAMETER if counted else TOKENS_PER_PARAMETER


def choose_size(
    sizes: list[str], enough: Callable[[str], float], tokens_read: Callable[[str], float]
) -> tuple[str, float]:
    """The largest size that the budget trains on enough tokens, and how many tokens that is.

    `enough(size)` is how many a size should read and `tokens_read(size)` how many the budget reads
    at it; sizes come smallest first. If even the smallest reads too few, it is taken anyway. A size
    is measured only if the one before it reads enough for it: larger ones read fewer.
    """
    best, read = sizes[0], tokens_read(sizes[0])
    for size in sizes[1:]:
        if read < enough(size):
            break
        tokens = tokens_read(size)
        if tokens < enough(size):
            break
        best, read = size, tokens
    return best, read


def batch_for(tokens: float, length: int) -> int:
    """A power of two of sequences, within bounds, that leaves about STEPS_WANTED steps."""
    wanted = tokens / (length * STEPS_WANTED)
    batch = SMALLEST_BATCH
    while batch * 2 <= min(LARGEST_BATCH, wanted * 1.5):
        batch *= 2
    return batch


def passages_for(tokens: float, words_per_passage: float) -> int:
    """How many passages the budget reads about EPOCHS_OVER_SELECTION times."""
    return max(
        200, int(tokens / EPOCHS_OVER_SELECTION / (TOKENS_PER_WORD * max(1.0, words_per_passage)))
    )


def rho1_for(steps: int, batch: int, examples: int) -> int:
    """External batches per internal one, so that stage 1 passes about TASK_EPOCHS times over the
    task.
    """
    internal = max(1.0, TASK_EPOCHS * examples / batch)
    return max(1, min(999, round(steps / internal) - 1))


def steps_for_flops(
    flops: float, internal: float, external: float, rho1: int | None, batch: int, examples: int
) -> tuple[int, int]:
    """The steps that spend the FLOPs, and ρ1; the FLOPs of an internal and of an external step are
    given.

    An open ρ1 follows from the steps, and the steps from ρ1: the smallest ρ1 that is no smaller
    than its own steps ask for.
    """

    def steps_at(share: int) -> int:
        return max(1, round(flops * (share + 1) / (internal + share * external)))

    if not external:
        return max(1, round(flops / internal)), 0
    if rho1 is None:
        rho1 = 1
        while rho1 < rho1_for(steps_at(rho1), batch, examples):
            rho1 += 1
    return steps_at(rho1), rho1


def epochs_for(examples: int, batch: int) -> int:
    """Passes over the task in stage 2, between 3 and 30: about FINETUNE_STEPS steps, more with
    smaller batches by the square root.
    """
    steps = FINETUNE_STEPS * math.sqrt(PAPERS_BATCH / batch)
    return max(3, min(30, round(steps * batch / max(1, examples))))


def writing_epochs(examples: int, batch: int) -> int:
    """Passes over the task in stage 2 for a decoder, between 5 and 100: WRITING_STEPS steps."""
    return max(5, min(100, round(WRITING_STEPS * batch / max(1, examples))))


def tunings_for(
    epochs: int,
    epoch_seconds: float,
    seconds: float,
    seeds: int | None,
    most: float = STAGE2_MOST,
) -> tuple[int, int]:
    """Seeds and epochs of stage 2 in the seconds left: one seed gets all its epochs before others
    are added.
    """
    if seeds is None:
        seeds = USUAL_SEEDS if USUAL_SEEDS * epochs * epoch_seconds <= STAGE2_SHARE * seconds else 1
    return seeds, max(1, min(epochs, int(most * seconds / (seeds * epoch_seconds))))


def stage2_batch(examples: int, shallow: bool) -> int:
    """Examples per step of stage 2: the papers' number, or few if a model of few layers has few
    examples.
    """
    return FEW_PER_STEP if shallow and examples < FEW_EXAMPLES else PAPERS_BATCH


def stage1_rate(width: int, optimiser: str) -> float:
    """The peak learning rate of stage 1.

    Muon: 2e-3 up to width 256, then falling with its root (1.2e-3 at 768).
    SGD: 0.5 (arXiv 1809.08370).
    Others: 2e-3 up to width 192, then falling with it (5e-4 at 768).
    """
    if optimiser == "sgd":
        return SGD_RATE
    return 2e-3 * min(1.0, math.sqrt(256 / width) if optimiser == "muon" else 192 / width)


def writing_rate(width: int, optimiser: str = "adamw") -> float:
    """The peak learning rate of stage 2 with a decoder: 2e-3 up to width 256, then falling with its
    root; SGD: 0.5.
    """
    if optimiser == "sgd":
        return SGD_RATE
    return WRITING_RATE * min(1.0, math.sqrt(256 / width))


def stage2_rate(width: int, optimiser: str = "adamw", recurrent: bool = False) -> float:
    """The peak learning rate of stage 2: 3e-4 at width 256, falling with the width; SGD: 0.5.

    Higher than the papers' 2e-5 at width 768, which is for models trained a hundred times longer;
    tried on the dev splits of ACL-ARC and SciERC with models of a few minutes.

    Recurrent: 4e-3 up to width 128, then falling with its root. At width 64 the dev score of
    CoNLL-2000 with 5 % of its labels rises up to there; Dozat and Manning (arXiv 1611.01734) have
    2e-3 with Adam at width 400.
    """
    if optimiser == "sgd":
        return SGD_RATE
    if recurrent:
        return 4e-3 * min(1.0, math.sqrt(128 / width))
    return min(5e-4, 3e-4 * 256 / width)
