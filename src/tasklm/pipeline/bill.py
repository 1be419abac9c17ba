"""The bill of text of a finished run: what its files gave, and what of that the model has read."""

from __future__ import annotations

import hashlib
import os
import platform
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import torch

import tasklm
from tasklm.bill.network import sessions_in, summary
from tasklm.bill.record import BILL, CACHE, Bill, LabelledData, TextFile, bill_beside, write_bill
from tasklm.corpus.corpus_text import licence_of
from tasklm.export.publishing import published
from tasklm.pipeline.bill_examples import about_file, files_without_labels, labelled_data
from tasklm.pipeline.bill_parts import Readings, text_files
from tasklm.pipeline.context import Trained
from tasklm.pipeline.report import decided
from tasklm.pipeline.teacher_models import teachers_of
from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import absolute, dump, without_login, without_password
from tasklm.run_folder import (
    COMPARE,
    ENSEMBLE,
    MANIFEST,
    MODEL,
    UPDATES,
    number_of_update,
    stage1_name,
)
from tasklm.storage.checksums import content_of, damage_is_clear, files_in
from tasklm.storage.files import ARTEFACT, file_sha256, read_json
from tasklm.train.reading import read_reading
from tasklm.train.start import OfCheckpoint, starting_weights, title_of

LIBRARIES = (
    "torch",
    "numpy",
    "numba",
    "scipy",
    "scikit-learn",
    "safetensors",
    "tokenizers",
    "pyarrow",
)
WEIGHTS = (".safetensors", ".npy")  # files of a model that hold what was learnt

Source = TypeVar("Source", TextFile, LabelledData)


def keep_bill(trained: Trained) -> None:
    """Writes the bill of a run whose model is in model/; there too, without the places of files."""
    run = trained.run
    if not run.machine.ranks.first or number_of_update(run.folder):
        return  # the bill of an updated model is that of its update
    with run.tracker.progress("writing the bill of text"):
        bill = bill_of(trained)
        write_bill(run.folder, bill)
        write_bill(run.artefacts.path(MODEL), published(bill))
        if "ensemble" in bill.model:
            write_bill(run.artefacts.path(ENSEMBLE), published(bill))


def bill_of(trained: Trained) -> Bill:
    """The bill of a run whose model is in model/."""
    run, recipe = trained.run, trained.run.recipe
    model = _model(trained)
    names = [stage1_name(number) for number in range(1, trained.trainings + 1)]
    readings = Readings(
        [read_reading(run.artefacts.path(name)) for name in names], model["training"]
    )
    corpus, labelled = text_files(trained, readings), labelled_data(trained, readings)
    read_text = sum(part.tokens_read for file in corpus for part in file.parts)
    read_labelled = sum(part.tokens_read for data in labelled for part in data.parts)
    total = read_text + read_labelled
    store, selected = trained.corpus, trained.parts.external
    return Bill(
        run=run.folder.resolve().name,
        tasklm=tasklm.__version__,
        made_with=_made_with(trained),
        recipe=dump(without_password(absolute(decided(trained)))),
        model=model,
        totals={
            "tokens_read": total,
            "tokens_read_of_text": read_text,
            "tokens_read_of_examples": read_labelled,
            "passages": 0 if store is None else len(store.store),
            "selected": 0 if selected is None else len(selected),
            "held_out": len(trained.parts.held_out),
        },
        selection={"method": recipe.select.method, "engine": recipe.select.engine},
        corpus=[_with_shares(file, total) for file in corpus],
        labelled=[_with_shares(data, total) for data in labelled],
        others=_others(trained),
        left_out=[] if store is None else [asdict(one) for one in store.text.left_out],
        teachers=_teachers(recipe),
        start=_start(recipe),
        network=summary(sessions_in(run.folder), _named_hosts(trained), run.machine.ranks.total),
        artefacts=_artefacts(trained),
    )


def _with_shares(source: Source, total: int) -> Source:
    """The source with the share of each part in all tokens read."""
    parts: Any = [
        replace(part, share=part.tokens_read / total if total else 0.0) for part in source.parts
    ]
    return replace(source, parts=parts)


def _made_with(trained: Trained) -> dict[str, Any]:
    """The versions of what made the model, and the machine."""
    run = trained.run
    libraries = {name: version(name) for name in LIBRARIES}
    about: dict[str, Any] = {**read_json(run.folder / MANIFEST), "libraries": libraries}
    about["system"] = f"{platform.system()} {platform.release()}"
    if run.machine.device.type == "cuda":
        about["device_name"] = torch.cuda.get_device_name(run.machine.device)
    return about


def _model(trained: Trained) -> dict[str, Any]:
    """What is in model/ and, where there is one, in ensemble/."""
    folder = trained.run.artefacts.path(MODEL)
    with damage_is_clear(folder / "config.json"):
        about = read_json(folder / "config.json")["about"]
    training = int(about.get("stage1", 1))
    seeds = about.get("averaged") or [about["seed"]]
    kind = "network"
    if about.get("linear"):
        kind = "linear"
    elif about.get("averaged"):
        kind = "averaged network"
    own = [seed for seed in trained.seeds if seed.stage1 == training and seed.stage2 in seeds]
    model: dict[str, Any] = {
        "kind": kind,
        "training": training,
        "seeds": seeds,
        "stage2_epochs": {str(one.stage2): int(one.summary()["best_epoch"]) for one in own},
        **_weights(folder),
    }
    if trained.run.recipe.evaluate.ensemble and len(trained.seeds) > 1:
        model["ensemble"] = _weights(trained.run.artefacts.path(ENSEMBLE))
    return model


def _weights(folder: Path) -> dict[str, Any]:
    """The hashes of a model's files, and one of all that was learnt."""
    files = {
        path.relative_to(folder).as_posix(): file_sha256(path)
        for path in files_in(folder, leave_out=(ARTEFACT, BILL))
    }
    learnt = [f"{name} {files[name]}\n" for name in sorted(files) if name.endswith(WEIGHTS)]
    return {"files": files, "sha256": hashlib.sha256("".join(learnt).encode()).hexdigest()}


def _others(trained: Trained) -> list[dict[str, Any]]:
    """Further files: a given vocabulary, and text without labels."""
    run, texts = trained.run, files_without_labels(trained)
    given: dict[str, str] = {}
    if run.recipe.tokens.kind == "file" and not run.recipe.train.start:
        given["vocabulary"] = run.recipe.tokens.file
    if run.recipe.data.unlabelled and trained.parts.raw is not None:
        given["text without labels"] = run.recipe.data.unlabelled
    others = []
    for role, path in given.items():
        licence, by = licence_of(path, "", run.recipe.data)
        about: dict[str, Any] = {"role": role, "licence": licence, "licence_from": by}
        for file in run.inputs.of(Path(path)):
            others.append({**about, **about_file(file), "texts": texts[file.path]})
    return others


def _teachers(recipe: Recipe) -> list[dict[str, Any]]:
    """The models that taught this one, with their own bills."""
    return [
        {
            "title": teacher.run.name,
            "folder": str(teacher.folder.absolute()),
            **_weights(teacher.folder),
            "bill": bill_beside(teacher.folder),
        }
        for teacher in teachers_of(recipe.distill.teachers)
    ]


def _start(recipe: Recipe) -> dict[str, Any] | None:
    """What training started from, with its bill if it has one."""
    if not recipe.train.start:
        return None
    start = starting_weights(Path(recipe.train.start))
    published = isinstance(start, OfCheckpoint)
    return {
        "title": title_of(start.folder),
        "folder": str(start.folder),
        "published": published,  # what such a checkpoint has read is not known here
        **_weights(start.folder),
        "bill": None if published else bill_beside(start.folder),
    }


def _named_hosts(trained: Trained) -> list[str]:
    """The hosts that the recipe names, and the one that processes meet at."""
    recipe, hosts = trained.run.recipe, []
    if recipe.data.corpus and recipe.select.engine == "elastic":
        hosts.append(urlsplit(without_login(recipe.select.url)).netloc)
    if recipe.data.corpus and recipe.select.engine == "spark":
        hosts.append(recipe.select.master)
    hosts += [path for path in recipe.data.corpus if "://" in path]
    if trained.run.machine.ranks.total > 1:
        hosts.append(f"{os.environ.get('MASTER_ADDR', '')}:{os.environ.get('MASTER_PORT', '')}")
    return list(dict.fromkeys(hosts))


def _artefacts(trained: Trained) -> dict[str, str]:
    """The contents of the run's artefacts, and of the corpus."""
    run = trained.run
    folders = {
        record.parent.relative_to(run.folder).as_posix(): record.parent
        for record in sorted(run.folder.rglob(ARTEFACT))
    }
    others = (COMPARE, UPDATES, "insights", "baselines")  # the model does not come from them
    contents = {
        name: content_of(folder)
        for name, folder in folders.items()
        if name.partition("/")[0] not in others and not name.endswith(".partial")
    }
    if trained.corpus is not None:
        contents[f"{CACHE}/{trained.corpus.artefact}"] = content_of(trained.corpus.store.folder)
    return contents
