"""The run folders: those that score candidates, shared by all rows that can, and one per row and
seed of stage 1 that trains.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from objective_runs.folders import write_recipe
from selection_runs.settings import BM25, INFLUENCE, RANDOM, Setting
from tasklm.artifacts import Artefacts
from tasklm.errors import RecipeError
from tasklm.recipe.schema import Recipe, from_dict, to_dict, with_overrides
from tasklm.recipe.toml import absolute
from tasklm.storage.files import digest, read_json, require_file, write_json
from tasklm.tokens.tokenizer import Vocabulary

FOUND = (
    "decontaminated",
    "ranking",
    "candidates",
    "candidate-tokens",
)  # artefacts that no row changes
SCORED = (*FOUND, "scoring-model", "influence")
GIVEN = {
    RANDOM: ("decontaminated",),
    BM25: ("decontaminated", "ranking"),
    INFLUENCE: SCORED,
}  # what a row's runs are given of them
_DECIDED = {
    "select.method",
    "select.passages",
    "select.influence_share",
    "train.steps",
    "train.seed",
    "budget.flops",
    "budget.minutes",
    "finetune.seeds",
    "evaluate.metric",
}


@dataclass(frozen=True)
class Shared:
    """What the rows of all ablations of a task have in common."""

    recipe: Recipe  # BM25 + influence, with the seed 1
    folder: Path  # of the run that found the candidates
    candidates: int
    content: str  # which the candidates are, as a digest

    def kept(self) -> int:
        """How many passages are selected where the share is not varied: as
        many as influence keeps.
        """
        return max(1, round(self.recipe.select.influence_share * self.candidates))


def base_recipe(
    files: dict[str, Path],
    corpus: list[str],
    flops: float,
    decided: dict[str, Any],
    more: dict[str, Any],
) -> Recipe:
    """The recipe that all rows share; `decided` and `more`, which --set gave, hold dotted keys."""
    if taken := sorted(_DECIDED & set(more)):
        raise RecipeError(
            [
                (
                    f"--set {name}: this benchmark decides it; "
                    f"it has an option of its own or follows from others"
                )
                for name in taken
            ]
        )
    values: dict[str, Any] = {
        f"data.{split}": str(require_file(path, f"Name another with --{split}.").resolve())
        for split, path in files.items()
    }
    values |= {
        "data.corpus": corpus,
        "budget.flops": flops,
        "select.method": "bm25,influence",
        "model.size": "tiny",
    }
    values |= {"evaluate.baselines": False, **decided}
    return absolute(from_dict(with_overrides({}, {**values, **more})))


def scoring_recipe(recipe: Recipe, setting: Setting, seed: int) -> Recipe:
    """The recipe by which candidates are scored for a row; what is chosen of them afterwards does
    not matter to it.
    """
    keys = {name: value for name, value in setting.keys.items() if name != "influence_share"}
    return recipe.changed(select=keys, train={"seed": seed})


def row_recipe(shared: Shared, setting: Setting, seed: int, threads: int) -> Recipe:
    """The recipe of a row's run: the seed is that of the scoring model, of random draws and of
    stage 1.
    """
    select: dict[str, Any] = dict(setting.keys)
    if setting.method != INFLUENCE:
        select |= {"method": setting.method, "passages": shared.kept()}
    if setting.method == RANDOM:
        select |= {"seed": seed}
    changed = shared.recipe.changed(select=select, train={"seed": seed})
    return dataclasses.replace(
        changed, hardware=dataclasses.replace(changed.hardware, threads=threads)
    )


def scoring_name(recipe: Recipe) -> str:
    """The name of the folder that scores by this recipe."""
    return f"scored-{_key(recipe)}"


def model_key(recipe: Recipe) -> str:
    """What tells scoring models apart inside an ablation."""
    return digest([recipe.train.seed, recipe.select.influence_steps])


def _key(recipe: Recipe) -> str:
    return digest(
        {section: values for section, values in to_dict(recipe).items() if section != "hardware"}
    )


def start_folder(folder: Path, recipe: Recipe, giver: Path | None, names: Sequence[str]) -> None:
    """Makes a run folder with links to some artefacts of another; what an earlier command did there
    is continued.
    """
    artefacts = Artefacts(folder)
    for file in ("done.json", "scores.json"):
        (folder / file).unlink(missing_ok=True)
    for name in names if giver is not None else ():
        assert giver is not None
        if artefacts.key(name) != Artefacts(giver).key(name):
            linking = folder / f"{name}.linking"  # under its own name an artefact is complete
            for old in (linking, folder / name):
                shutil.rmtree(old, ignore_errors=True)
            shutil.copytree(giver / name, linking, copy_function=os.link)
            linking.rename(folder / name)
    write_recipe(folder, recipe)


def shared_of(folder: Path, recipe: Recipe) -> Shared:
    """What the first run that scored has found."""
    path = folder / "candidates" / "selected.parquet"
    return Shared(recipe, folder, pq.read_metadata(path).num_rows, content_of(path))


def content_of(selected: Path) -> str:
    """A digest of which passages were selected, in whatever order the corpus has them."""
    return digest(sorted(pq.read_table(selected, columns=["id"])["id"].to_pylist()))


def is_done(folder: Path, recipe: Recipe, content: str = "") -> bool:
    """Whether the folder holds what this very recipe leads to, with these candidates."""
    done = folder / "done.json"
    return done.exists() and read_json(done)["key"] == digest([_key(recipe), content])


def mark_done(
    folder: Path, recipe: Recipe, content: str = "", about: dict[str, Any] | None = None
) -> None:
    """Notes that the run is complete, and on which machine beside how many others."""
    write_json(folder / "done.json", {"key": digest([_key(recipe), content]), "about": about or {}})


def found_in(folder: Path, method: str) -> dict[str, Any]:
    """What a complete run found: scores over the seeds of fine-tuning, what was selected, and what
    both cost.
    """
    artefacts, stage1 = Artefacts(folder), read_json(folder / "stage1" / "summary.json")
    (ours,) = (row for row in read_json(folder / "scores.json")["rows"] if row["kind"] == "ours")
    summaries = ("scoring-model", "influence") if method == INFLUENCE else ()
    scoring = sum(float(read_json(folder / part / "summary.json")["flops"]) for part in summaries)
    ways = {
        RANDOM: (),
        BM25: ("ranking",),
        INFLUENCE: ("candidates", "candidate-tokens", "scoring-model", "influence"),
    }
    return {
        "dev": ours["dev"],
        "test": ours["test"],
        "selection": {
            "passages": ours["selected_passages"],
            "tokens": ours["selected_tokens"],
            "vocabulary": len(Vocabulary.load(folder / "tokens" / "tokenizer.json")),
            "flops": scoring,
            "seconds": sum(artefacts.seconds(part) for part in (*ways[method], "selected")),
        },
        "stage1": {
            name: stage1[name]
            for name in ("steps", "rho1", "batch", "tokens", "seconds", "flops", "skipped_steps")
        },
        "stage2": {"flops": ours["flops_exact"] - stage1["flops"] - scoring},
        "parameters": ours["parameters"],
        "about": read_json(folder / "done.json")["about"],
    }
