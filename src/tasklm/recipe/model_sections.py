"""The sections of a recipe about the model and its training: [tokens], [model], [train] and
[finetune].
"""

from __future__ import annotations

from dataclasses import dataclass

from tasklm.recipe.parsing import key
from tasklm.recipe.raw_text import RawText

OPTIMISERS = ("adamw", "lamb", "muon", "sgd")
SCHEDULES = ("linear", "cosine", "constant", "root")
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
        None,
        "size of the vocabulary; auto: by the amount of text",
        low=FEWEST_TYPES,
        high=MOST_TYPES,
    )
    lowercase: bool | None = key(
        None, "lowercase the text first; auto: yes, except for tag, parse and translate"
    )
    length: int | None = key(
        None,
        "maximum sequence length, in tokens; auto: 64, 128 or 256 (on a GPU up to 512), so "
        "that 19 of 20 texts of train fit",
        low=SHORTEST_ROW,
        high=LONGEST_ROW,
    )
    external_length: int | None = key(
        None,
        "maximum sequence length of selected text, in tokens; auto: tokens.length, its maximum",
        low=SHORTEST_ROW,
        later=True,
    )

    @property
    def rows(self) -> int:
        """Tokens per row: as given, or the default if no data has been read yet."""
        return self.length or USUAL_ROW

    @property
    def external_rows(self) -> int:
        """Tokens per row of selected text."""
        return self.external_length or self.rows

    @property
    def folds_case(self) -> bool:
        """Whether text is lowercased: as given, or the default if no data has been read yet."""
        return self.lowercase is not False


@dataclass(frozen=True)
class Model:
    encoder: str = key(
        "auto",
        "encoder architecture: bert (the papers'), modern, albert (few weights), "
        "or bilstm (recurrent); auto: bert up to 4 layers, modern beyond",
    )
    size: str = key(
        "auto", "tiny, mini, small, medium, base or large; auto: what the budget can train"
    )
    layers: int | None = key(
        None, "number of layers, instead of the size's (bilstm: 2)", low=1, high=MOST_LAYERS
    )
    width: int | None = key(None, "hidden width, instead of the size's", low=8, high=MOST_WIDTH)
    heads: int | None = key(None, "attention heads, instead of the size's", low=1, high=MOST_HEADS)
    feedforward: int | None = key(
        None,
        "inner width of the feed-forward layer (bilstm: cells of the first layer, each direction), "
        "instead of the size's",
        low=8,
        high=MOST_FEEDFORWARD,
    )
    embedding: int | None = key(
        None, "embedding width, instead of the encoder's own", low=8, high=MOST_WIDTH
    )


@dataclass(frozen=True)
class Moments:
    """The hyperparameters of the optimisers, in both stages."""

    beta1: float = key(0.9, "adamw, lamb: decay of the mean gradient", low=0.0, high=0.9999)
    beta2: float | None = key(
        None,
        ("adamw, lamb: decay of the mean squared gradient; auto: adamw 0.98, lamb 0.999"),
        low=0.0,
        high=0.99999,
    )
    epsilon: float = key(
        1e-6, "adamw, lamb: added to the root of the mean squared gradient", low=0.0, high=1.0
    )
    momentum: float = key(0.95, "muon: decay of the mean gradient", low=0.0, high=0.9999)
    sgd_momentum: float = key(
        0.9,
        "sgd: momentum, the share of the last update in the next",
        low=0.0,
        high=0.9999,
        later=True,
    )


@dataclass(frozen=True)
class Train(Moments):
    objective: str = key("mlm", "self-supervised objective")
    start: str = key(
        "",
        "starting point of stage 1: a run, its fine-tuned model (RUN/model) or a Hugging "
        "Face checkpoint; empty: random weights",
    )
    embeddings: str = key(
        "auto",
        "initial token embeddings of stage 1: random, or from co-occurrence counts of tokens in "
        "its text; auto: counts for bert of up to 4 layers with mlm, replace-mlm, electra or "
        "electric, and for bilstm with mlm or bilm",
        choices=("auto", "random", "counts"),
    )
    attention: str = key(
        "auto",
        "initial attention of stage 1: random, or two heads of the first layers on neighbouring "
        "tokens (bert); auto: neighbours for bert of up to 4 layers with mlm",
        choices=("auto", "random", "neighbours"),
    )
    rho1: int | None = key(
        None,
        "external batches per internal batch; 0: "
        "task data only; auto: about 10 passes over the task",
        low=0,
    )
    rho2: float = key(
        20.0, "weight of the self-supervised loss on task text, relative to the task loss", low=0.0
    )
    internal_pass: str = key(
        "two",
        "passes of the encoder over task text; two: with masks for the self-supervised loss and "
        "without for the task's; one: with masks for both, as in the authors' code (mlm)",
        choices=("two", "one"),
        later=True,
    )
    steps: int | None = key(None, "optimiser steps of stage 1; auto: from the budget", low=0)
    batch: int | None = key(
        None, "rows per step; an example with several options takes one row per option", low=1
    )
    accumulate: int | None = key(
        None,
        "micro-batches per step; without dropout they do not change the result; auto: by GPU "
        "memory",
        low=1,
    )
    optimiser: str = key(
        "muon",
        "optimiser; muon: for the layers' matrices, with adamw for the rest",
        choices=OPTIMISERS,
    )
    learning_rate: float | None = key(
        None,
        "peak learning rate; auto: by width, with muon 2e-3 up to 256 (the papers: 1e-4 at 768, "
        "adamw); with sgd 0.5",
        low=0.0,
        high=1.0,
    )
    schedule: str = key(
        "linear",
        "decay of the learning rate after the warm-up; constant: only at the end; root: divided "
        "by 1 + 0.005 · √step",
        choices=SCHEDULES,
    )
    warmup: float = key(
        0.06, "warm-up: share of the steps in which the learning rate rises", low=0.0, high=0.99
    )
    decay: float = key(
        0.2,
        "schedule = constant: share of the steps in which the rate falls at the end",
        low=0.01,
        high=1.0,
    )
    anneal: float = key(
        0.0,
        "share of the steps, at the end, that read only the best fifth of the selected text while "
        "the rate falls from its peak to 0; replaces schedule and decay; 0: off",
        low=0.0,
        high=1.0,
        later=True,
    )
    weight_decay: float = key(0.01, "weight decay of matrices", low=0.0)
    decay_cautious: bool = key(
        False,
        "adamw, muon: weights decay only where the step also moves them towards 0",
        later=True,
    )
    clip: float = key(1.0, "largest gradient norm; 0: no clipping", low=0.0)
    dropout: float = key(
        0.0,
        "dropout rate of stage 1; text that is read only a few times needs none",
        low=0.0,
        high=0.9,
    )
    mask_rate: float = key(0.15, "share of tokens to predict", low=0.01, high=0.9)
    mask_rate_last: float | None = key(
        None,
        "mlm: mask rate at the last step, reached linearly from mask_rate; auto: the same at all "
        "steps",
        low=0.01,
        high=0.9,
        later=True,
    )
    held_out: int | None = key(
        None,
        "selected passages that stage 1 never reads, to measure its loss on (mlm, permutation, "
        "bilm, two-tower); at most 2 % of them; auto: 500 if there are 10,000 or more, else none",
        low=0,
        later=True,
    )
    hide: str = key(
        "bert",
        "replacement of these tokens; bert: 80 % [MASK], 10 % random, 10 % unchanged; mask: "
        "always [MASK]",
        choices=("bert", "mask"),
    )
    whole_words: bool = key(False, "mlm: mask all tokens of a word or none")
    next_sentence: bool = key(
        False,
        "mlm: also predict whether the second part of a passage follows the first, as in BERT",
    )
    generator: float = key(
        0.25, "electra: width of the generator, as a share of the encoder's", low=0.05, high=1.0
    )
    temperature: float = key(
        1.0, "electra: temperature of the generator's samples (ALE: 0.8)", low=0.05, high=10.0
    )
    judgement: float = key(
        50.0, "electra: weight of the discriminator's loss relative to the generator's", low=0.0
    )
    towers: str = key(
        "shared",
        "two-tower: networks that read left to right and right to left; shared: the encoder "
        "itself; own: two more of its shape (Clark's thesis), only for scoring texts",
        choices=("shared", "own"),
        later=True,
    )
    average: float = key(
        0.0,
        "decay of a moving average of the weights, which is saved instead of them; 0: off",
        low=0.0,
        high=0.99999,
    )
    non_finite: str = key(
        "skip",
        "when the loss is not finite: skip the step, go back to the last checkpoint at half the "
        "learning rate, or stop",
        choices=("skip", "back", "stop"),
    )
    checkpoint_seconds: float = key(60.0, "time between checkpoints", low=0.0)
    keep: int = key(
        2, "checkpoints to keep during training; at least two, in case the last is damaged", low=1
    )
    seed: int = key(
        1,
        "seed of initial weights, order, masks and dropout; of several trainings, the first one's",
        low=0,
    )
    seeds: int = key(
        1,
        "independent trainings of stage 1, each fine-tuned finetune.seeds times; telling a better "
        "method from luck takes 3 or more",
        low=1,
        high=MOST_SEEDS,
    )


@dataclass(frozen=True)
class Finetune(Moments, RawText):
    epochs: int | None = key(
        None,
        "passes over the training examples; the best on dev is kept; auto: 3 to 30 by the number "
        "of examples (several tasks: their mean), fewer if time is short; 0: the linear model "
        "alone, or stage 1 if there is none (finetune.wide)",
        low=0,
    )
    batch: int | None = key(
        None,
        "rows per step; auto: 32 examples, but 8 if up to 4 layers learn from fewer than 2,000 "
        "examples",
        low=1,
    )
    learning_rate: float | None = key(
        None,
        "peak learning rate; auto: by width, 3e-4 at 256 (the papers: 2e-5 at 768), with bilstm "
        "2e-3 at 512; sgd: 0.5",
        low=0.0,
        high=1.0,
    )
    optimiser: str = key("adamw", "optimiser", choices=OPTIMISERS)
    layer_decay: float = key(
        1.0,
        "learning rate of each layer as a share of the layer above it (ELECTRA: 0.8)",
        low=0.1,
        high=1.0,
    )
    schedule: str = key(
        "linear",
        "decay of the learning rate after the warm-up; root: divided by 1 + 0.005 · √step",
        choices=SCHEDULES,
    )
    warmup: float = key(
        0.1, "warm-up: share of the steps in which the learning rate rises", low=0.0, high=0.99
    )
    average: float = key(
        0.0,
        "decay of a moving average of the weights, which is scored and saved instead; 0: off",
        low=0.0,
        high=0.99999,
    )
    weight_decay: float = key(0.0, "weight decay of matrices", low=0.0)
    clip: float = key(1.0, "largest gradient norm; 0: no clipping", low=0.0)
    dropout: float = key(0.1, "dropout rate of stage 2", low=0.0, high=0.9)
    freeze: bool = key(
        False,
        "freeze the encoder after stage 1: only the head learns, from features with dropout",
        later=True,
    )
    soup: bool = key(
        False,
        "start all seeds with the same head, and use the mean of their weights if it is better on "
        "dev than each of them",
        later=True,
    )
    label_smoothing: float = key(
        0.0,
        "share of each label that is spread over all classes (classify, tag, translate)",
        low=0.0,
        high=0.9,
        later=True,
    )
    rdrop: float = key(
        0.0,
        "R-Drop: read each batch twice with different dropout; weight of the divergence between "
        "the outputs (classify, multilabel, choice, tag, translate); 0: off",
        low=0.0,
        high=100.0,
        later=True,
    )
    score_every: int = key(1, "epochs between two scores on dev", low=1, later=True)
    scored_examples: int = key(
        0,
        "training examples to score whenever dev is, for the learning curve",
        low=0,
        later=True,
    )
    wide: bool = key(
        True,
        "add the outputs of a linear model of words to the network's (classify, multilabel, "
        "regress, choice, tag)",
    )
    word_vectors: bool = key(
        True,
        "let that linear model also use word vectors from the corpus, if that is better (not for "
        "pairs and choices)",
    )
    seeds: int | None = key(
        None,
        "fine-tuning runs per training of stage 1; scores are their mean ± sd, the model is the "
        "best on dev; auto: 3, but 1 if time is short",
        low=1,
        high=MOST_SEEDS,
    )
