"""The sections of a recipe about the data: [data], [kind] and [select]."""

from __future__ import annotations

from dataclasses import dataclass

from tasklm.errors import RecipeError
from tasklm.recipe.model_sections import LONGEST_ROW, MOST_LAYERS
from tasklm.recipe.parsing import key

INFLUENCE = "influence"  # the method that selects from another's candidates


@dataclass(frozen=True)
class Data:
    train: str = key(
        "",
        "labelled file (CSV, TSV, JSONL, Parquet, CoNLL, SQuAD …), one folder of text files or "
        "images per label, a folder with all splits, or an archive of images (.npz)",
    )
    dev: str = key(
        "", "development set, used to pick the best epoch and seed; empty: a share of train"
    )
    test: str = key("", "test set, scored once at the end; empty: no test score")
    more: tuple[str, ...] = key(
        (),
        "further labelled files, as tasklm update adds them: rows already in train are left out, "
        "and a share of each file is held out for dev",
        later=True,
    )
    more_dev: tuple[str, ...] = key(
        (), "further development sets; if given, none is held out of data.more", later=True
    )
    more_test: tuple[str, ...] = key((), "further test sets, such as of new classes", later=True)
    corpus: tuple[str, ...] = key((), "files, folders or globs of raw text")
    unlabelled: str = key(
        "",
        "file of unlabelled texts, in the form of the task's own, for finetune.unlabelled; empty: "
        "only the selected passages; for images: a folder of them",
    )
    share: float = key(
        1.0,
        "share of train whose labels are used; the rest counts as unlabelled text "
        "(finetune.unlabelled)",
        low=0.0001,
        high=1.0,
    )
    kind: str = key(
        "auto",
        "kind of task: classify, multilabel, regress, choice, tag, span, parse, translate or "
        "image; auto: from the layout of train",
    )
    text_column: str = key(
        "", "column with the text, or columns with the texts, separated by commas; empty: detected"
    )
    label_column: str = key(
        "",
        "column with the label (parse: columns with heads and relations, separated by a comma; "
        "translate: the target text); empty: detected",
    )
    options_column: str = key("", "choice: column with the list of options; empty: detected")
    corpus_column: str = key("", "column with the text in corpus tables; empty: detected")
    licence_column: str = key(
        "", "column with the licence of each row, in tables of text; empty: detected"
    )
    licences: tuple[str, ...] = key(
        (),
        "licences of files, for the bill of text: GLOB=LICENCE, such as 'wiki/*=CC-BY-SA-4.0'; "
        "the last match counts",
    )
    without: tuple[str, ...] = key(
        (),
        "files, folders or globs to leave out of the corpus, or licences such as "
        "'licence:CC-BY-NC*'",
    )
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
        "examples of dev or test that also occur in train: refuse to run, drop them from train, "
        "or keep them",
        choices=("refuse", "drop", "keep"),
    )


@dataclass(frozen=True)
class SeveralTasks:
    tasks: tuple[str, ...] = key(
        (),
        "tasks that one model learns together: NAME=PATH or PATH, each as for data.train, or a "
        "recipe with its own [data] section",
    )
    power: float = key(
        0.75,
        "tasks are sampled in proportion to their number of examples to this power; 1: by size, "
        "0: all equally often",
        low=0.0,
        high=1.0,
    )
    queries: str = key(
        "equal",
        "how several tasks select text: in equal shares, or with all their queries together",
        choices=("equal", "all"),
    )


@dataclass(frozen=True)
class Kind:
    """Settings of particular kinds of tasks."""

    marks: tuple[str, ...] | None = key(
        None,
        "classify: opening markers of the entities in an example, such as '<<,[['; the head reads "
        "them beside the first token; auto: the usual ones if nine of ten texts have them (not "
        "for one of several tasks); '': none",
    )
    crf: bool = key(
        False,
        "tag: use a CRF head, which learns which tags follow each other, instead of a linear one",
    )
    scheme: str = key(
        "data",
        "tag: span scheme that the model learns: the data's own, or bioes, which also marks ends; "
        "predictions are in the data's own",
        choices=("data", "bioes"),
        later=True,
    )
    stride: int = key(
        48, "span: tokens that neighbouring windows of a long text share", low=0, high=LONGEST_ROW
    )
    answer_tokens: int = key(30, "span: longest answer, in tokens", low=1, high=LONGEST_ROW)
    punctuation: bool = key(False, "parse: also score the heads of punctuation")
    decoder: str = key(
        "transformer",
        "translate: decoder; lstm: with one attention, as in cross-view training",
        choices=("transformer", "lstm"),
        later=True,
    )
    decoder_layers: int | None = key(
        None,
        "translate: layers of the decoder; auto: 2, or 1 for an lstm",
        low=1,
        high=MOST_LAYERS,
        later=True,
    )
    beam: int = key(5, "translate: beam size; 1: greedy", low=1, high=64, later=True)
    length_penalty: float = key(
        1.0,
        "translate: hypotheses are compared by log probability / length to this power",
        low=0.0,
        high=10.0,
        later=True,
    )
    written_tokens: int = key(
        256, "translate: longest text to generate, in tokens", low=1, high=LONGEST_ROW, later=True
    )


@dataclass(frozen=True)
class Select:
    method: str = key(
        "bm25",
        "how passages are selected; NAME,influence: candidates by NAME, of which the most helpful "
        "for the task are selected",
    )
    k: int | None = key(
        None,
        "passages taken per task example; auto: 5000 below 5K examples, 500 below 100K, else 50",
        low=1,
    )
    passages: int | None = key(
        None,
        "maximum passages in total, best ranks first; auto: as many as the budget can read",
        low=1,
    )
    queries: str = key(
        "text",
        "query of an example: its whole text, or RAKE key phrases",
        choices=("text", "rake"),
    )
    phrases: int = key(20, "key phrases per example when queries = rake", low=1)
    stop_words: str = key(
        "none",
        "stop words removed from queries: none, auto (by language), or languages such as 'en,de'",
    )
    stemming: str = key(
        "none",
        "stemmer for queries and passages: none, or a language such as english or russian (needs "
        "tasklm[stemming])",
    )
    index: str = key(
        "auto",
        "store the index for later runs, or build it on the fly; auto: store it if the disk has "
        "room",
        choices=("auto", "keep", "fly"),
    )
    memory: str = key("2GB", "memory limit for scoring")
    near_duplicates: float = key(
        0.8,
        ("leave out a passage this similar (Jaccard, runs of 3 words) to a better one; 0: off"),
        low=0.0,
        high=1.0,
    )
    engine: str = key(
        "local",
        "where passages are scored: here, on Apache Spark (tasklm[spark]), or by an Elasticsearch "
        "or OpenSearch server",
        choices=("local", "spark", "elastic"),
    )
    url: str = key(
        "http://127.0.0.1:9200",
        "engine = elastic: address of the server, with user:password@ if required",
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
        0.2, "influence: share of the candidates to select", low=0.0001, high=1.0
    )
    influence_on: str = key(
        "dev",
        "influence: labelled examples whose loss the passages should lower (the paper: dev)",
        choices=("dev", "train"),
    )
    influence_layers: str = key(
        "last",
        "influence: layers whose gradients are compared: last, all, embeddings, or numbers from "
        "1, such as 3,4",
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
        "influence: random maskings to average the gradient of a passage over",
        low=1,
        high=100,
    )
    influence_projection: int | None = key(
        None,
        "influence: dimensions of the random projection of gradients; 0: no projection; auto: "
        "none if the task's gradients fit into memory",
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

    @property
    def stages(self) -> tuple[str, ...]:
        """The selection methods in order: ("bm25",) or ("bm25", "influence")."""
        stages = tuple(name.strip() for name in self.method.split(","))
        if stages[0] == INFLUENCE:
            problem = (
                "influence selects among candidates; name the method that finds them: "
                "bm25,influence"
            )
            raise RecipeError([f"select.method = {self.method!r}: {problem}"])
        if stages[1:] not in ((), (INFLUENCE,)):
            problem = "only influence may follow the comma, as in bm25,influence"
            raise RecipeError([f"select.method = {self.method!r}: {problem}"])
        return stages

    @property
    def by_influence(self) -> bool:
        """Whether influence selects among the first method's candidates."""
        return INFLUENCE in self.stages
