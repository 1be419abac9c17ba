"""The sections of a recipe that say what is trained and how: [tokens], [model], [train] and
[finetune].
"""

from __future__ import annotations

from dataclasses import dataclass

from tasklm.recipe.parsing import key

OPTIMISERS = ("adamw", "lamb", "muon")
SCHEDULES = ("linear", "cosine", "constant")
FEWEST_TYPES, MOST_TYPES = 300, 500_000  # of a vocabulary
SHORTEST_ROW, LONGEST_ROW = 8, 8192  # tokens
USUAL_ROW = 128
MOST_LAYERS, MOST_WIDTH, MOST_HEADS, MOST_FEEDFORWARD = 256, 65_536, 1024, 262_144  # of an encoder
MOST_SEEDS = 100


@dataclass(frozen=True)
class Tokens:
    kind: str = key("wordpiece", "subword model", choices=("wordpiece", "bpe", "unigram", "file"))
    file: str = key("", "existing tokenizer.json, when kind = file")
    vocabulary: int | None = key(
        None, "subword types; auto: by the amount of text", low=FEWEST_TYPES, high=MOST_TYPES
    )
    lowercase: bool | None = key(
        None, "fold case before splitting; auto: not where words are tagged or parsed"
    )
    length: int | None = key(
        None,
        (
            "longest sequence, in tokens; auto: 64, "
            "128 or 256 (on a GPU up to 512), what 19 of 20 texts of train fit into"
        ),
        low=SHORTEST_ROW,
        high=LONGEST_ROW,
    )

    @property
    def rows(self) -> int:
        """Tokens of a row: as given, or the usual number where no data were looked at yet."""
        return self.length or USUAL_ROW

    @property
    def folds_case(self) -> bool:
        """Whether capitals are read as small letters: as given, or the usual where no data were
        looked at yet.
        """
        return self.lowercase is not False


@dataclass(frozen=True)
class Model:
    encoder: str = key(
        "auto",
        (
            "encoder architecture: bert (the papers'), modern, "
            "or albert (few weights); auto: bert up to 4 layers, modern beyond"
        ),
    )
    size: str = key(
        "auto", "tiny, mini, small, medium, base or large; auto: what the budget can train"
    )
    layers: int | None = key(
        None, "number of layers, in place of the size's", low=1, high=MOST_LAYERS
    )
    width: int | None = key(None, "hidden width, in place of the size's", low=8, high=MOST_WIDTH)
    heads: int | None = key(None, "attention heads, in place of the size's", low=1, high=MOST_HEADS)
    feedforward: int | None = key(
        None,
        "inner width of the feed-forward layer, in place of the size's",
        low=8,
        high=MOST_FEEDFORWARD,
    )
    embedding: int | None = key(
        None, "embedding width, in place of the encoder's own", low=8, high=MOST_WIDTH
    )


@dataclass(frozen=True)
class Moments:
    """The numbers of the optimisers, of either stage."""

    beta1: float = key(
        0.9, "adamw, lamb: share of the mean gradient that a step keeps", low=0.0, high=0.9999
    )
    beta2: float | None = key(
        None,
        (
            "adamw, lamb: share of the mean squared gradient "
            "that a step keeps; auto: adamw 0.98, lamb 0.999"
        ),
        low=0.0,
        high=0.99999,
    )
    epsilon: float = key(
        1e-6, "adamw, lamb: added to the root of the mean squared gradient", low=0.0, high=1.0
    )
    momentum: float = key(
        0.95, "muon: share of the mean gradient that a step keeps", low=0.0, high=0.9999
    )


@dataclass(frozen=True)
class Train(Moments):
    objective: str = key("mlm", "self-supervised objective")
    start: str = key(
        "",
        (
            "what stage 1 goes on from: a run, its fine-tuned model "
            "(RUN/model) or a Hugging Face checkpoint; empty: random weights"
        ),
    )
    embeddings: str = key(
        "auto",
        "token embeddings that stage 1 begins with: random, "
        "or from counts of which tokens stand near one another in its text; "
        "auto: counts for bert of up to 4 layers with mlm, electra or electric",
        choices=("auto", "random", "counts"),
    )
    attention: str = key(
        "auto",
        "attention that stage 1 begins with: random, "
        "or two heads of the first layers on neighbouring tokens (bert); "
        "auto: neighbours for bert of up to 4 layers with mlm",
        choices=("auto", "random", "neighbours"),
    )
    rho1: int | None = key(
        None,
        (
            "external batches per internal batch; 0: "
            "task data only; auto: about 10 passes over the task"
        ),
        low=0,
    )
    rho2: float = key(
        20.0, "weight of the self-supervised loss on task text, beside the task loss", low=0.0
    )
    steps: int | None = key(None, "optimiser steps of stage 1; auto: from the budget", low=0)
    batch: int | None = key(
        None, "rows per step; an example of several options takes a row for each", low=1
    )
    accumulate: int | None = key(
        None,
        (
            "micro-batches per step; without dropout the "
            "result does not depend on it; auto: by the GPU's memory"
        ),
        low=1,
    )
    optimiser: str = key(
        "muon",
        "rule that moves the weights; muon: for the matrices of the layers, beside adamw",
        choices=OPTIMISERS,
    )
    learning_rate: float | None = key(
        None,
        (
            "peak learning rate; auto: by width, "
            "with muon 2e-3 up to 256 (the papers: 1e-4 at 768, adamw)"
        ),
        low=0.0,
        high=1.0,
    )
    schedule: str = key(
        "linear",
        "how the learning rate falls after the warm-up; constant: only at the end",
        choices=SCHEDULES,
    )
    warmup: float = key(
        0.06, "share of the steps in which the learning rate rises", low=0.0, high=0.99
    )
    decay: float = key(
        0.2,
        "schedule = constant: share of the steps in which the rate falls at the end",
        low=0.01,
        high=1.0,
    )
    weight_decay: float = key(0.01, "weight decay of matrices", low=0.0)
    clip: float = key(1.0, "largest gradient norm; 0: no clipping", low=0.0)
    dropout: float = key(
        0.0, "dropout rate of stage 1; text that is read a few times needs none", low=0.0, high=0.9
    )
    mask_rate: float = key(0.15, "share of tokens to predict", low=0.01, high=0.9)
    hide: str = key(
        "bert",
        (
            "what stands in their place; bert: "
            "80 % [MASK], 10 % random, 10 % kept; mask: always [MASK]"
        ),
        choices=("bert", "mask"),
    )
    whole_words: bool = key(False, "mlm: hide all tokens of a word or none")
    next_sentence: bool = key(
        False, "mlm: also tell whether the second part of a passage follows the first, as BERT did"
    )
    generator: float = key(
        0.25, "electra: width of the generator, as a share of the encoder's", low=0.05, high=1.0
    )
    temperature: float = key(
        1.0, "electra: temperature of the generator's samples (ALE: 0.8)", low=0.05, high=10.0
    )
    judgement: float = key(
        50.0, "electra: weight of the discriminator's loss beside the generator's", low=0.0
    )
    average: float = key(
        0.0,
        "decay of a moving average of the weights, which is then kept in their place; 0: off",
        low=0.0,
        high=0.99999,
    )
    non_finite: str = key(
        "skip",
        (
            "a loss that is not a finite number: skip the step, "
            "go back to the last checkpoint at half the rate, or stop"
        ),
        choices=("skip", "back", "stop"),
    )
    checkpoint_seconds: float = key(60.0, "time between checkpoints", low=0.0)
    keep: int = key(
        2, "checkpoints kept while training; two at least, in case the last is damaged", low=1
    )
    seed: int = key(
        1,
        "seed of initial weights, order, masks and dropout; of several trainings that of the first",
        low=0,
    )
    seeds: int = key(
        1,
        (
            "independent trainings of stage 1, "
            "each fine-tuned finetune.seeds times; 3 or more tell a better method from luck"
        ),
        low=1,
        high=MOST_SEEDS,
    )


@dataclass(frozen=True)
class Finetune(Moments):
    epochs: int | None = key(
        None,
        (
            "passes over the training examples, the best on dev is kept; "
            "auto: 3 to 30 by their number, fewer where the minutes are few"
        ),
        low=1,
    )
    batch: int | None = key(
        None,
        (
            "rows per step; auto: those of 32 examples, "
            "but of 8 where up to 4 layers learn from fewer than 2,000 examples"
        ),
        low=1,
    )
    learning_rate: float | None = key(
        None,
        "peak learning rate; auto: by width, 3e-4 at 256 (the papers: 2e-5 at 768)",
        low=0.0,
        high=1.0,
    )
    optimiser: str = key("adamw", "rule that moves the weights", choices=OPTIMISERS)
    layer_decay: float = key(
        1.0,
        "each layer learns at this share of the rate of the layer above it (ELECTRA: 0.8)",
        low=0.1,
        high=1.0,
    )
    schedule: str = key(
        "linear", "how the learning rate falls after the warm-up", choices=SCHEDULES
    )
    warmup: float = key(
        0.1, "share of the steps in which the learning rate rises", low=0.0, high=0.99
    )
    average: float = key(
        0.0,
        "decay of a moving average of the weights, which is then scored and kept; 0: off",
        low=0.0,
        high=0.99999,
    )
    weight_decay: float = key(0.0, "weight decay of matrices", low=0.0)
    clip: float = key(1.0, "largest gradient norm; 0: no clipping", low=0.0)
    dropout: float = key(0.1, "dropout rate of stage 2", low=0.0, high=0.9)
    wide: bool = key(
        True,
        (
            "add what a linear model of words says to the "
            "network's outputs (classify, multilabel, regress, choice, tag)"
        ),
    )
    word_vectors: bool = key(
        True,
        (
            "let that linear model also read word vectors of the "
            "corpus, where that is better (not for pairs and choices)"
        ),
    )
    seeds: int | None = key(
        None,
        "fine-tuning runs of each training of stage 1; "
        "scores are their mean ± sd, the model is the best on dev; "
        "auto: 3, but 1 where the minutes are few",
        low=1,
        high=MOST_SEEDS,
    )


@dataclass(frozen=True)
class Distill:
    teachers: tuple[str, ...] = key(
        (),
        (
            "run folders whose models (the ensemble, where a run has one) teach stage 2 "
            "beside the labels; several are averaged"
        ),
    )
    labels: float | None = key(
        None,
        (
            "weight of the labels, the teachers have the rest; "
            "auto: rises from 0 to 1 as training goes on (teacher annealing)"
        ),
        low=0.0,
        high=1.0,
    )
