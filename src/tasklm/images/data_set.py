"""The images of a run, decoded once and kept beside the runs, in splits and with hidden labels."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasklm.artifacts import Artefacts
from tasklm.errors import DataError, RecipeError
from tasklm.images.decoding import Encoded, Pixels, decode_all, side_lengths
from tasklm.images.listing import Listing
from tasklm.images.reading import list_images
from tasklm.pipeline.inputs import Inputs
from tasklm.recipe.image import LARGEST, SMALLEST
from tasklm.recipe.schema import Recipe
from tasklm.storage.checksums import damage_is_clear, load_array
from tasklm.storage.files import digest, read_json, write_json
from tasklm.storage.safe_reading import home_path
from tasklm.tasks.examples import Finding
from tasklm.tracking import Tracker

USUAL_SIZE, MOST_OWN, LEAST_OWN = 32, 64, 16  # sides that images are brought to
FEW = 5  # images of a label
UNKNOWN = -1  # label of an image without one
ALIKE_SHOWN = 3
VERSION = "images 1"

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Pictures:
    """Decoded images (images, size, size, 3), the numbers of their labels, and their names."""

    pixels: Pixels
    labels: Numbers
    names: list[str]

    def __len__(self) -> int:
        return len(self.pixels)

    def some(self, numbers: Numbers) -> Pictures:
        """Those with these numbers."""
        names = [self.names[number] for number in numbers]
        return Pictures(self.pixels[numbers], self.labels[numbers], names)


@dataclass
class ImageData:
    """The images of a run: `pool` has all that training may read, with their own labels."""

    classes: list[str]
    size: int
    pool: Pictures
    labelled: Numbers  # numbers in the pool of the images whose labels are used
    studied: Numbers  # … of those that are read without labels
    dev: Pictures | None
    test: Pictures | None
    key: str
    notes: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def train(self) -> Pictures:
        """The labelled images."""
        return self.pool.some(self.labelled)

    def visible_labels(self) -> Numbers:
        """The labels that training sees, for the whole pool; −1 where one is hidden."""
        labels = np.full(len(self.pool), UNKNOWN, np.int64)
        labels[self.labelled] = self.pool.labels[self.labelled]
        return labels

    @property
    def held_out(self) -> dict[str, Pictures]:
        """dev and test, where there are any."""
        parts = {"dev": self.dev, "test": self.test}
        return {name: part for name, part in parts.items() if part is not None and len(part)}


def read_images(recipe: Recipe, cache: Artefacts, inputs: Inputs, tracker: Tracker) -> ImageData:
    """The images of a recipe; decoded ones are kept in the cache."""
    data = recipe.data
    paths = [home_path(name) for name in (data.train, data.dev, data.test, data.unlabelled) if name]
    listing = list_images(data, recipe.image.most_bytes)
    contents = [inputs.content(path) for path in paths]
    roles = [bool(data.dev), bool(data.test), bool(data.unlabelled)]
    key = digest([VERSION, contents, roles, recipe.image.size])

    def build(folder: Path) -> None:
        _decode(folder, listing, recipe.image.size, tracker)

    folder = cache.build(f"images-{key}", key, build)
    with damage_is_clear(folder / "images.json"):
        about = read_json(folder / "images.json")
    parts = {name: _pictures(folder, name, about) for name in about["splits"]}
    return _split_up(recipe, parts, about, listing.labelled, key)


def _decode(folder: Path, listing: Listing, size: int | None, tracker: Tracker) -> None:
    """Writes the pixels of all splits, and what describes them."""
    total = sum(len(listed.images) for listed in listing.splits.values())
    every: list[Encoded] = []
    for listed in listing.splits.values():
        every += listed.images
    with tracker.progress("reading the sizes of the images"):
        sides = Counter(side_lengths(one.read(), one.name) for one in every)
    side = size or _usual_size(sides)
    classes = sorted(set(listing.splits["train"].labels))
    number = {label: place for place, label in enumerate(classes)}
    with tracker.progress("decoding the images", total) as bar:
        for name, listed in listing.splits.items():
            np.save(folder / f"{name}.npy", decode_all(listed.images, side, bar.advance))
            labels = [number.get(label, UNKNOWN) for label in listed.labels]
            np.save(folder / f"{name}-labels.npy", np.array(labels, np.int64))
            write_json(folder / f"{name}-names.json", [one.name for one in listed.images])
    usual = [[*pair, count] for pair, count in sides.most_common(3)]
    about = {"classes": classes, "size": side, "sides": usual, "kinds_of_sides": len(sides)}
    write_json(folder / "images.json", {**about, "splits": list(listing.splits)})


def _usual_size(sides: Counter[tuple[int, int]]) -> int:
    """The side of all images if they are squares of one size, else 32."""
    if len(sides) > 1:
        return USUAL_SIZE
    ((width, height),) = sides
    if width != height or width > MOST_OWN:
        return USUAL_SIZE
    return width if width >= SMALLEST else LEAST_OWN


def _pictures(folder: Path, name: str, about: dict[str, Any]) -> Pictures:
    pixels = load_array(folder / f"{name}.npy", np.uint8, dimensions=4)
    labels = load_array(folder / f"{name}-labels.npy", np.int64)
    with damage_is_clear(folder / f"{name}-names.json"):
        names = [str(one) for one in read_json(folder / f"{name}-names.json")]
    assert pixels.shape[1] == about["size"] and len(pixels) == len(labels) == len(names)
    return Pictures(pixels, labels, names)


def _split_up(
    recipe: Recipe,
    parts: dict[str, Pictures],
    about: dict[str, Any],
    sets: dict[str, Numbers],
    key: str,
) -> ImageData:
    """The splits, with labels hidden and dev held out as the recipe says."""
    train, dev, test = parts["train"], parts.get("dev"), parts.get("test")
    notes = [_size_note(about)]
    inside, leaked = _without_leaks(recipe, train, dev, test)
    if leaked:
        notes.append(f"train: {leaked:,} images left out because they also occur in dev or test")
    labelled = _labelled(recipe, train, inside, sets, notes)
    held: Numbers = np.zeros(0, np.int64)
    if dev is None and recipe.image.dev:
        held = _held_out(train, labelled, recipe.data.dev_share, recipe.data.train)
        dev = train.some(held)
        labelled = np.setdiff1d(labelled, held)
        notes.append(f"dev: {len(held):,} images held out of train")
    studied = np.setdiff1d(inside, held)
    pool = train
    if "unlabelled" in parts:
        extra = parts["unlabelled"]
        pixels = np.concatenate([train.pixels, extra.pixels])
        labels = np.concatenate([train.labels, extra.labels])
        pool = Pictures(pixels, labels, [*train.names, *extra.names])
        studied = np.concatenate([studied, np.arange(len(train), len(pool))])
        notes.append(f"data.unlabelled: {len(extra):,} images")
    image = recipe.image
    chosen = [
        recipe.data.share,
        recipe.data.dev_share,
        recipe.data.leaks,
        image.labelled,
        image.dev,
    ]
    whole = ImageData(
        about["classes"],
        about["size"],
        pool,
        labelled,
        studied,
        dev,
        test,
        digest([key, chosen]),
        notes,
    )
    whole.findings = audited(whole)
    return whole


def _size_note(about: dict[str, Any]) -> str:
    sides = ", ".join(f"{width} × {height}" for width, height, _ in about["sides"])
    size = about["size"]
    if [about["size"]] * 2 == about["sides"][0][:2] and about["kinds_of_sides"] == 1:
        return f"images of {size} × {size} pixels"
    more = " …" if about["kinds_of_sides"] > len(about["sides"]) else ""
    return f"images of {sides}{more} pixels are resized to {size} × {size} (image.size)"


def _labelled(
    recipe: Recipe, train: Pictures, inside: Numbers, sets: dict[str, Numbers], notes: list[str]
) -> Numbers:
    """The images whose labels are used."""
    chosen, labelled = recipe.image.labelled, inside
    if chosen is not None:
        name, every = next(iter(sets.items()), ("", np.zeros((0, 0), np.int64)))
        if len(sets) > 1 or chosen > len(every):
            there = ", ".join(f"{one} ({len(sets[one])})" for one in sets) or "none"
            problem = f"the data lists these sets of labelled images: {there}"
            way_out = "leave it out, or use data.share"
            raise RecipeError([f"image.labelled = {chosen}: {problem}; {way_out}"])
        labelled = np.intersect1d(every[chosen - 1], inside)
        notes.append(f"labels: those of {name}, set {chosen}")
    if recipe.data.share < 1.0:
        labelled = _share(train, labelled, recipe.data.share)
    if len(labelled) < len(inside):
        notes.append(f"the labels of {len(labelled):,} of {len(inside):,} images are used")
    lacking = set(train.labels.tolist()) - set(train.labels[labelled].tolist())
    if lacking:
        problem = f"{len(lacking)} labels have no image left whose label is used"
        raise DataError(problem, file=recipe.data.train, remedy="Use more labels: data.share.")
    return labelled


def _ranked(pictures: Pictures, numbers: Numbers) -> list[int]:
    """Some images in the order of the hashes of their pixels, whatever order files have."""
    return sorted(numbers.tolist(), key=lambda number: _hash(pictures.pixels[number]))


def _hash(pixels: Pixels) -> bytes:
    return hashlib.blake2b(pixels.tobytes(), digest_size=16).digest()


def _share(train: Pictures, numbers: Numbers, share: float) -> Numbers:
    """The same share of the images of each class, and at least one."""
    ranked = np.array(_ranked(train, numbers), np.int64)
    chosen = []
    for label in np.unique(train.labels[ranked]):
        own = ranked[train.labels[ranked] == label]
        chosen.append(own[: max(1, round(share * len(own)))])
    return np.sort(np.concatenate(chosen))


def _held_out(train: Pictures, labelled: Numbers, share: float, file: str) -> Numbers:
    """A share of the images of each class that has two or more; copies stay together in train."""
    hashes = Counter(_hash(train.pixels[number]) for number in labelled)
    alone = [number for number in labelled if hashes[_hash(train.pixels[number])] == 1]
    ranked = np.array(_ranked(train, np.array(alone, np.int64)), np.int64)
    held = []
    for label in np.unique(train.labels[ranked]) if len(ranked) else []:
        own = ranked[train.labels[ranked] == label]
        count = max(round(share * len(own)), int(len(own) >= 4))
        held.append(own[-count:] if 0 < count < len(own) else own[:0])
    chosen = np.concatenate(held) if held else np.zeros(0, np.int64)
    if not len(chosen):
        problem = f"{len(labelled)} labelled images are too few to hold out {share:.0%} as dev"
        way_out = "Add images, give a dev set (--dev), or --image.dev false."
        raise DataError(problem, file=file, remedy=way_out)
    return np.sort(chosen)


def _without_leaks(
    recipe: Recipe, train: Pictures, dev: Pictures | None, test: Pictures | None
) -> tuple[Numbers, int]:
    """The training images that training may read, and how many others occur in dev or test."""
    later = set()
    for part in (dev, test):
        if part is not None and recipe.data.leaks != "keep":
            later |= {_hash(one) for one in part.pixels}
    everything = np.arange(len(train))
    if not later:
        return everything, 0
    leaks = [number for number in everything if _hash(train.pixels[number]) in later]
    if leaks and recipe.data.leaks == "refuse":
        problem = f"the image also occurs in dev or test, as {len(leaks):,} training images do"
        remedy = "Leave these out of train with --data.leaks drop (or keep them)."
        raise DataError(problem, file=train.names[leaks[0]], remedy=remedy)
    return np.setdiff1d(everything, leaks), len(leaks)


def audited(data: ImageData) -> list[Finding]:
    """What `tasklm check` says of images."""
    counts = Counter(data.train.labels.tolist())
    sizes = [f"train {len(data.labelled):,}"]
    sizes += [f"{name} {len(part):,}" for name, part in data.held_out.items()]
    if hidden := len(data.studied) - len(data.labelled):
        sizes.append(f"without labels {hidden:,}")
    ordered = counts.most_common()
    listed = ", ".join(f"{data.classes[number]} {count:,}" for number, count in ordered[:10])
    findings = [
        Finding("ok", "labels", f"{len(ordered)} labels: {listed}; images: {', '.join(sizes)}."),
        Finding("ok", "size", f"{data.notes[0]}."),
    ]
    if ordered[0][1] >= 10 * ordered[-1][1]:
        ratio = f"{ordered[0][1] / ordered[-1][1]:.0f}"
        most, least = data.classes[ordered[0][0]], data.classes[ordered[-1][0]]
        problem = f"{most!r} has {ratio} times as many training images as {least!r}"
        way_out = 'Prefer evaluate.metric = "macro_f1", or add images of the rare labels'
        findings.append(Finding("warning", "imbalance", f"{problem}. {way_out}."))
    if few := [data.classes[number] for number, count in ordered if count < FEW]:
        problem = f"{len(few)} labels have fewer than {FEW} images: {', '.join(few[:10])}"
        findings.append(Finding("warning", "rare labels", f"{problem}. Add images of them."))
    return [*findings, *_copies(data)]


def _copies(data: ImageData) -> list[Finding]:
    """A finding about training images that are the same, or have several labels."""
    labels: dict[bytes, set[int]] = {}
    copies, places = list[tuple[int, int]](), dict[bytes, int]()
    for number in data.labelled.tolist():
        mark = _hash(data.pool.pixels[number])
        if mark in labels:
            copies.append((places[mark], number))
        labels.setdefault(mark, set()).add(int(data.pool.labels[number]))
        places.setdefault(mark, number)
    if not copies:
        return [Finding("ok", "copies", "no training image occurs twice.")]
    odd = sum(len(own) > 1 for own in labels.values())
    names = [data.pool.names[other] for _, other in copies[:ALIKE_SHOWN]]
    message = f"{len(copies):,} training images are copies of others, {odd:,} with another label."
    return [Finding("warning", "copies", f"{message} Delete them, or keep one.", tuple(names))]


assert SMALLEST <= LEAST_OWN <= MOST_OWN <= LARGEST
