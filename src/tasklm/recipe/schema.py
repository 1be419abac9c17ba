"""The recipe: typed sections with defaults that work.

Precedence: default < recipe file < command line; nothing is read from the environment. `None` means
"auto": the budget or the data decides, and the run folder records what was decided. The sections
change results, except for `hardware`, which must not.
"""

from __future__ import annotations

import dataclasses
import functools
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tasklm.errors import RecipeError
from tasklm.recipe.data_sections import Data, Kind, Select, SeveralTasks
from tasklm.recipe.image import Image
from tasklm.recipe.model_sections import Finetune, Model, Tokens, Train
from tasklm.recipe.parsing import key, short, value_of
from tasklm.recipe.teaching import Distill
from tasklm.registry import nearest

# far more than a machine can start would crash the threading libraries
MOST_THREADS = 1024


@dataclass(frozen=True)
class Evaluate:
    metric: str = key(
        "auto",
        "metric that picks the model and is reported first; auto: the kind's own, macro_f1 for "
        "classes",
    )
    bootstrap: int = key(
        1000, "resamples of test examples and seeds for intervals and differences on test", low=100
    )
    confidence: float = key(0.95, "coverage of the interval", low=0.5, high=0.999)
    compare: tuple[str, ...] = key(
        (), "ablations to train for comparison: task-only, random, no-teacher, supervised, single"
    )
    baselines: bool = key(True, "score the majority and TF-IDF + linear baselines")
    ensemble: bool = key(
        False,
        ("also score the average of all seeds, and save it in the folder ensemble"),
    )


@dataclass(frozen=True)
class Budget:
    minutes: float | None = key(
        None, "wall-clock minutes for the whole run, without ablations", low=0.05
    )
    flops: float | None = key(
        None,
        "training FLOPs of stage 1 (of each one with train.seeds), instead of minutes",
        low=1e6,
    )


@dataclass(frozen=True)
class Hardware:
    device: str = key("auto", "auto, cpu, cuda, cuda:1, mps …")
    threads: int | None = key(
        None, "CPU threads; auto: all cores this process may use", low=1, high=MOST_THREADS
    )
    memory: float | None = key(
        None,
        "GPU memory limit of this run, in GB, for several runs on one GPU; auto: all that is free",
        low=0.1,
    )
    precision: str = key(
        "auto",
        "precision of matrix products; auto: bf16 if the hardware supports it",
        choices=("auto", "fp32", "bf16"),
    )
    compile: str = key(
        "auto",
        "compile the training steps for this machine; auto: on a GPU with bf16, except for bilstm",
        choices=("auto", "on", "off"),
    )
    tensorboard: bool = key(
        False,
        "also write losses and speed for TensorBoard into the run folder (needs tasklm[track])",
    )
    cache: str = key(
        "", "folder for corpora and indexes shared by runs; empty: .cache beside the run folder"
    )
    shared: str = key(
        "",
        "folder where runs share finished steps, such as selection and stage 1, through links to "
        "the same files; empty: none",
    )


@dataclass(frozen=True)
class Recipe:
    data: Data = field(default_factory=Data)
    several: SeveralTasks = field(default_factory=SeveralTasks)
    kind: Kind = field(default_factory=Kind)
    image: Image = field(default_factory=Image)
    select: Select = field(default_factory=Select)
    tokens: Tokens = field(default_factory=Tokens)
    model: Model = field(default_factory=Model)
    train: Train = field(default_factory=Train)
    finetune: Finetune = field(default_factory=Finetune)
    distill: Distill = field(default_factory=Distill)
    evaluate: Evaluate = field(default_factory=Evaluate)
    budget: Budget = field(default_factory=Budget)
    hardware: Hardware = field(default_factory=Hardware)

    @property
    def uses_corpus(self) -> bool:
        """Whether stage 1 reads corpus text in addition to the task's own."""
        return self.train.rho1 != 0

    def changed(self, **sections: dict[str, Any]) -> Recipe:
        """A copy with some keys of some sections replaced, checked like a recipe file."""
        merged = to_dict(self)
        for section, values in sections.items():
            merged.setdefault(section, {}).update(values)
        return from_dict(merged)


def to_dict(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """The recipe as plain sections of plain values."""
    return dataclasses.asdict(recipe)


@functools.cache
def section_types() -> Mapping[str, type[Any]]:
    """Section name → dataclass, in order."""
    hints = typing.get_type_hints(Recipe)
    return {f.name: hints[f.name] for f in dataclasses.fields(Recipe)}


@functools.cache
def _types_of_keys(section: str) -> Mapping[str, Any]:
    """Key → type."""
    return typing.get_type_hints(section_types()[section])


def from_dict(values: Mapping[str, Any]) -> Recipe:
    """The recipe described by plain sections; raises one error that lists every problem."""
    problems: list[str] = []
    sections: dict[str, Any] = {}
    known = section_types()
    for name, section in values.items():
        if name not in known:
            problems.append(f"unknown section [{name}]{nearest(name, list(known))}")
        elif not isinstance(section, Mapping):
            problems.append(f"[{name}] must be a section with keys, not {short(section)}")
        else:
            sections[name] = _section(name, known[name], section, problems)
    if problems:
        raise RecipeError(problems)
    return Recipe(**sections)


def with_overrides(
    values: Mapping[str, Any], overrides: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """`values` overridden by dotted keys ('train.rho1'); the result is not yet checked."""
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
    dotted: list[str] = []
    for section, cls in section_types().items():
        dotted += [f"{section}.{field.name}" for field in dataclasses.fields(cls)]
    same_key = [d for d in dotted if d.partition(".")[2] == word]
    return f" (did you mean '--{same_key[0]}'?)" if same_key else nearest(word, dotted)


def _section(name: str, cls: type[Any], values: Mapping[str, Any], problems: list[str]) -> Any:
    hints = _types_of_keys(name)
    fields = {f.name: f for f in dataclasses.fields(cls)}
    checked = {}
    for entry, value in values.items():
        if entry not in fields:
            problems.append(f"unknown key {name}.{entry}{nearest(entry, list(fields))}")
            continue
        try:
            checked[entry] = value_of(value, hints[entry], fields[entry].metadata)
        except ValueError as error:
            problems.append(f"{name}.{entry} = {short(value)}: {error}")
    return cls(**checked)
