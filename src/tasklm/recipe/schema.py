"""The recipe: typed sections with defaults that work.

Precedence: default < recipe file < command line; nothing is read from the environment. `None` means
"auto": the budget or the data decides, and the run folder records what was decided. Sections that
change results (data, select, tokens, model, train, finetune, evaluate, budget) are apart from
`hardware`, which must not.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tasklm.errors import RecipeError
from tasklm.recipe.parsing import key, short, value_of
from tasklm.registry import nearest

OPTIMISERS = ("adamw", "lamb", "muon")
SCHEDULES = ("linear", "cosine", "constant")
FEWEST_TYPES, MOST_TYPES = 300, 500_000  # of a vocabulary
SHORTEST_ROW, LONGEST_ROW = 8, 8192  # tokens
USUAL_ROW = 128
MOST_LAYERS, MOST_WIDTH, MOST_HEADS, MOST_FEEDFORWARD = 256, 65_536, 1024, 262_144  # of an encoder
MOST_SEEDS = 100
# many more than a machine can start end in a crash of the libraries that start them
MOST_THREADS = 1024


@dataclass(frozen=True)
class Data:
    train: str = key(
        "",
        (
            "labelled file (CSV, TSV, JSONL, Parquet, CoNLL, "
            "SQuAD …), folder of text files per label, or folder of all splits"
        ),
    )
    dev: str = key("", "labelled file that chooses the model; empty: a share of train is held out")
    test: str = key("", "labelled file that is scored once, at the end; empty: no test score")
    corpus: tuple[str, ...] = key((), "files, folders or globs of raw text")
    kind: str = key(
        "auto",
        (
            "kind of task: classify, multilabel, regress, "
            "choice, tag, span or parse; auto: by the layout of train"
        ),
    )
    text_column: str = key(
        "", "column with the text, or columns with the texts, separated by commas; empty: detected"
    )
    label_column: str = key(
        "",
        (
            "column with the label (parse: with the heads and "
            "the relations, separated by a comma); empty: detected"
        ),
    )
    options_column: str = key("", "choice: column with the list of options; empty: detected")
    corpus_column: str = key("", "column with the text in corpus tables; empty: detected")
    dev_share: float = key(
        0.1, "share of train held out when there is no dev file", low=0.01, high=0.5
    )
    passage_words: int = key(
        256,
        "longest passage, in words; longer documents are split at sentence ends",
        low=16,
        high=4096,
    )
    contamination_words: int = key(
        13,
        "a passage that shares a run of this many words with dev or test is dropped",
        low=5,
        high=100,
    )
    leaks: str = key(
        "refuse",
        (
            "examples of dev or test that also stand in train: "
            "refuse to run, drop them from train, or keep them"
        ),
        choices=("refuse", "drop", "keep"),
    )


@dataclass(frozen=True)
class Kind:
    """What single kinds of tasks can be told."""

    marks: tuple[str, ...] = key(
        (),
        (
            "classify: opening marks of the things an example is about, "
            "such as '<<,[[', where the head reads beside the first token"
        ),
    )
    crf: bool = key(
        False,
        "tag: a CRF head, which learns which tags follow one another, in place of a linear one",
    )
    stride: int = key(
        48, "span: tokens that neighbouring windows of a long text share", low=0, high=LONGEST_ROW
    )
    answer_tokens: int = key(30, "span: longest answer, in tokens", low=1, high=LONGEST_ROW)
    punctuation: bool = key(False, "parse: also score the heads of punctuation")


@dataclass(frozen=True)
class Select:
    method: str = key(
        "bm25",
        (
            "how passages are chosen; NAME,influence: "
            "candidates by NAME, and of these the ones that help the task most"
        ),
    )
    k: int | None = key(
        None,
        "passages taken per task example; auto: 5000 below 5K examples, 500 below 100K, else 50",
        low=1,
    )
    passages: int | None = key(
        None, "most passages kept in all, best ranks first; auto: what the budget can read", low=1
    )
    queries: str = key(
        "text",
        "what of an example is asked: its whole text, or RAKE key phrases",
        choices=("text", "rake"),
    )
    phrases: int = key(20, "key phrases per example when queries = rake", low=1)
    stop_words: str = key(
        "none",
        "stop words removed from queries: none, auto (by language), or languages such as 'en,de'",
    )
    stemming: str = key(
        "none",
        (
            "stemmer for queries and passages: none, "
            "or a language such as english or russian (needs tasklm[stemming])"
        ),
    )
    index: str = key(
        "auto",
        (
            "write the index for later runs, "
            "or make it on the fly; auto: write it if the disk has room"
        ),
        choices=("auto", "keep", "fly"),
    )
    memory: str = key("2GB", "memory that scoring may take")
    near_duplicates: float = key(
        0.8,
        (
            "a passage this similar (Jaccard, "
            "runs of 3 words) to a better selected one is left out; 0: off"
        ),
        low=0.0,
        high=1.0,
    )
    engine: str = key(
        "local",
        (
            "where passages are scored: here, on Apache Spark "
            "(tasklm[spark]), or by an Elasticsearch or OpenSearch server"
        ),
        choices=("local", "spark", "elastic"),
    )
    url: str = key(
        "http://127.0.0.1:9200",
        "engine = elastic: address of the server, with user:password@ where it asks for them",
    )
    master: str = key(
        "local[*]", "engine = spark: the cluster, such as spark://host:7077, yarn or k8s://…"
    )
    spark: tuple[str, ...] = key(
        (), "engine = spark: its settings, such as spark.executor.memory=8g"
    )
    k1: float = key(1.2, "BM25: how fast repeated words saturate", low=0.0, high=10.0)
    b: float = key(0.75, "BM25: how much long passages are discounted", low=0.0, high=1.0)
    influence_share: float = key(
        0.2, "influence: share of the candidates that is kept", low=0.0001, high=1.0
    )
    influence_on: str = key(
        "dev",
        "influence: the labelled examples that passages are to help (the paper: dev)",
        choices=("dev", "train"),
    )
    influence_layers: str = key(
        "last",
        (
            "influence: layers whose gradients are "
            "compared: last, all, or numbers from 1 on, such as 3,4"
        ),
    )
    influence_batch: int = key(
        1, "influence: candidates that share one gradient (the paper: 4)", low=1
    )
    influence_task_batch: int = key(
        1,
        "influence: task examples that share one gradient (the paper: 1 to 16)",
        low=1,
        high=10_000,
    )
    influence_draws: int = key(
        1,
        "influence: draws of masks that the gradient of a passage is averaged over",
        low=1,
        high=100,
    )
    influence_projection: int | None = key(
        None,
        (
            "influence: rows of the random projections of a "
            "gradient; 0: none; auto: none where the task's fit into memory"
        ),
        low=0,
    )
    influence_model: str = key(
        "auto", "influence: size of the scoring model; auto: that of the model"
    )
    influence_steps: int | None = key(
        None, "influence: training steps of the scoring model; auto: 30 passes over the task", low=1
    )
    seed: int = key(
        1, "seed of random and dsir selection, and of masks and projections of influence", low=0
    )


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
        "auto: counts for bert of up to 4 layers with mlm",
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
class Evaluate:
    metric: str = key(
        "auto",
        (
            "score that chooses the model and is reported "
            "first; auto: that of the kind, macro_f1 for classes"
        ),
    )
    bootstrap: int = key(
        1000, "resamples of test examples and seeds for intervals and differences on test", low=100
    )
    confidence: float = key(0.95, "coverage of the interval", low=0.5, high=0.999)
    compare: tuple[str, ...] = key((), "ablations trained beside the model: task-only, random")
    baselines: bool = key(True, "score the majority and TF-IDF + linear baselines")
    ensemble: bool = key(
        False,
        (
            "also score all seeds together, "
            "their outputs averaged, and keep them as the folder ensemble"
        ),
    )


@dataclass(frozen=True)
class Budget:
    minutes: float | None = key(
        None, "wall time for the whole run, comparisons not counted", low=0.05
    )
    flops: float | None = key(
        None, "training FLOPs of stage 1 (of each, with train.seeds), in place of minutes", low=1e6
    )


@dataclass(frozen=True)
class Hardware:
    device: str = key("auto", "auto, cpu, cuda, cuda:1, mps …")
    threads: int | None = key(
        None, "CPU threads; auto: all cores this process may use", low=1, high=MOST_THREADS
    )
    memory: float | None = key(
        None,
        "GPU memory that this run may use, in GB, for several runs on one GPU; auto: what is free",
        low=0.1,
    )
    precision: str = key(
        "auto",
        "arithmetic of matrix products; auto: bf16 where the hardware computes in it",
        choices=("auto", "fp32", "bf16"),
    )
    compile: str = key(
        "auto",
        "compile the training steps for this machine; auto: on a GPU with bf16",
        choices=("auto", "on", "off"),
    )
    tensorboard: bool = key(
        False,
        "also write losses and speed for TensorBoard, into the run folder (needs tasklm[track])",
    )
    cache: str = key(
        "", "folder for corpora and indexes shared by runs; empty: .cache beside the run folder"
    )


@dataclass(frozen=True)
class Recipe:
    data: Data = field(default_factory=Data)
    kind: Kind = field(default_factory=Kind)
    select: Select = field(default_factory=Select)
    tokens: Tokens = field(default_factory=Tokens)
    model: Model = field(default_factory=Model)
    train: Train = field(default_factory=Train)
    finetune: Finetune = field(default_factory=Finetune)
    evaluate: Evaluate = field(default_factory=Evaluate)
    budget: Budget = field(default_factory=Budget)
    hardware: Hardware = field(default_factory=Hardware)

    def changed(self, **sections: dict[str, Any]) -> Recipe:
        """A copy with some keys of some sections replaced, checked like a recipe file."""
        merged = to_dict(self)
        for section, values in sections.items():
            merged.setdefault(section, {}).update(values)
        return from_dict(merged)


def to_dict(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """The recipe as plain sections of plain values."""
    return dataclasses.asdict(recipe)


def section_types() -> dict[str, type[Any]]:
    """Returns section name → dataclass, in order."""
    hints = typing.get_type_hints(Recipe)
    return {f.name: hints[f.name] for f in dataclasses.fields(Recipe)}


def from_dict(values: Mapping[str, Any]) -> Recipe:
    """The recipe that plain sections describe, or raises one error that lists every problem."""
    problems: list[str] = []
    sections: dict[str, Any] = {}
    known = section_types()
    for name, section in values.items():
        if name not in known:
            problems.append(f"unknown section [{name}]{nearest(name, list(known))}")
        elif not isinstance(section, Mapping):
            problems.append(f"[{name}] must be a section of keys, not {short(section)}")
        else:
            sections[name] = _section(name, known[name], section, problems)
    if problems:
        raise RecipeError(problems)
    return Recipe(**sections)


def with_overrides(
    values: Mapping[str, Any], overrides: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Returns `values` with dotted keys ('train.rho1') laid over it; the
    result is not yet checked.
    """
    merged = {
        name: dict(section) if isinstance(section, Mapping) else section
        for name, section in values.items()
    }
    problems = []
    for dotted, value in overrides.items():
        section, _, name = dotted.partition(".")
        if not name:
            problems.append(f"unknown option --{dotted}{_nearest_dotted(dotted)}")
        elif isinstance(merged.setdefault(section, {}), dict):
            merged[section][name] = value
    if problems:
        raise RecipeError(problems)
    return merged


def _nearest_dotted(word: str) -> str:
    dotted = [
        f"{s}.{f.name}" for s, cls in section_types().items() for f in dataclasses.fields(cls)
    ]
    same_key = [d for d in dotted if d.partition(".")[2] == word]
    return f" (did you mean '--{same_key[0]}'?)" if same_key else nearest(word, dotted)


def _section(name: str, cls: type[Any], values: Mapping[str, Any], problems: list[str]) -> Any:
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls)}
    kept = {}
    for entry, value in values.items():
        if entry not in fields:
            problems.append(f"unknown key {name}.{entry}{nearest(entry, list(fields))}")
            continue
        try:
            kept[entry] = value_of(value, hints[entry], fields[entry].metadata)
        except ValueError as error:
            problems.append(f"{name}.{entry} = {short(value)}: {error}")
    return cls(**kept)
