"""Labelled images: folders and archives are read, split and audited."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tasklm.artifacts import Artefacts
from tasklm.errors import DataError, RecipeError
from tasklm.images.data_set import ImageData, read_images
from tasklm.images.settings import check_settings
from tasklm.pipeline.inputs import Inputs
from tasklm.recipe.schema import from_dict
from tasklm.tasks.readers.image_files import holds_images
from tasklm.tracking import Tracker
from tests.images.samples import arrays, png, shape_of, small_recipe, write_archive, write_folder


def read(train: Path, cache: Path, **sections: dict[str, Any]) -> ImageData:
    recipe = small_recipe(train, **sections)
    return read_images(recipe, Artefacts(cache), Inputs(), Tracker())


def test_a_folder_per_label_is_read_and_a_share_is_held_out(tmp_path: Path) -> None:
    data = read(write_folder(tmp_path / "shapes", 10), tmp_path / "cache")
    assert data.classes == ["blue", "green", "red"]
    assert (data.size, len(data.labelled), len(data.dev or ()), data.test) == (16, 27, 3, None)
    assert set(data.studied) == set(data.labelled)
    assert data.dev is not None and sorted(data.dev.labels) == [0, 1, 2]
    assert not set(data.dev.names) & {data.pool.names[number] for number in data.studied}


def test_folders_of_splits_are_read(tmp_path: Path) -> None:
    for seed, name in enumerate(("train", "valid", "test")):
        write_folder(tmp_path / "all" / name, 4, seed)
    loose = tmp_path / "all" / "unlabelled"
    loose.mkdir()
    loose.joinpath("x.png").write_bytes(png(shape_of("red", np.random.default_rng(9))))
    data = read(tmp_path / "all", tmp_path / "cache")
    assert (len(data.labelled), len(data.dev or ()), len(data.test or ())) == (12, 12, 12)
    assert len(data.studied) == 13
    assert data.visible_labels()[-1] == -1


def test_an_archive_of_pixels_is_read(tmp_path: Path) -> None:
    data = read(write_archive(tmp_path / "shapes.npz"), tmp_path / "cache")
    images, labels = arrays(60)
    assert np.array_equal(data.pool.pixels, images)
    assert [data.classes[number] for number in data.pool.labels] == labels.tolist()
    assert len(data.test or ()) == 30


def test_an_archive_of_files_with_sets_of_labels_is_read(tmp_path: Path) -> None:
    images, labels = arrays(30)
    files = [png(one, "JPEG") for one in images]
    numbers = np.unique(labels, return_inverse=True)[1]
    sets = np.array([[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]], np.int32)
    np.savez(
        tmp_path / "jpeg.npz",
        train_jpeg=np.frombuffer(b"".join(files), np.uint8),
        train_offsets=np.cumsum([0, *map(len, files)]),
        train_labels=numbers,
        classes=np.array(["blue", "green", "red"]),
        labelled_6=sets,
    )
    data = read(tmp_path / "jpeg.npz", tmp_path / "cache", image={"labelled": 2, "dev": False})
    assert data.labelled.tolist() == sets[1].tolist()
    assert len(data.studied) == 30 and data.dev is None
    assert np.abs(data.pool.pixels.astype(int) - images).mean() < 40
    assert (data.visible_labels() >= 0).sum() == 6
    with pytest.raises(RecipeError, match="labelled_6"):
        read(tmp_path / "jpeg.npz", tmp_path / "cache", image={"labelled": 3})


def test_a_share_of_the_labels_is_balanced_and_nested(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "shapes.npz", 90)
    some = [
        read(path, tmp_path / "cache", data={"share": share}, image={"dev": False})
        for share in (0.2, 0.5)
    ]
    assert [len(data.labelled) for data in some] == [18, 45]
    assert np.bincount(some[0].train.labels).tolist() == [6, 6, 6]
    assert set(some[0].labelled) < set(some[1].labelled)


def test_decoding_happens_once(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "shapes.npz")
    cache = Artefacts(tmp_path / "cache")
    for _ in range(2):
        read_images(small_recipe(path), cache, Inputs(), Tracker())
    assert cache.builds == 1


def test_images_in_two_splits_are_refused_or_dropped(tmp_path: Path) -> None:
    images, labels = arrays(30)
    test = {"test_images": images[:6], "test_labels": labels[:6]}
    np.savez(tmp_path / "leak.npz", train_images=images, train_labels=labels, **test)
    with pytest.raises(DataError, match="6 training images"):
        read(tmp_path / "leak.npz", tmp_path / "cache")
    dropped = read(tmp_path / "leak.npz", tmp_path / "cache", data={"leaks": "drop"})
    assert len(dropped.studied) + len(dropped.dev or ()) == 24


def test_copies_and_rare_labels_are_told(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "shapes", 8)
    same = sorted((folder / "red").glob("*.png"))[0].read_bytes()
    (folder / "blue" / "copy.png").write_bytes(same)
    data = read(folder, tmp_path / "cache")
    warnings = [one.message for one in data.findings if one.level == "warning"]
    assert any("1 with another label" in message for message in warnings)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            lambda folder: (folder / "red" / "notes.txt").write_text("x"),
            "notes.txt.*is not an image",
        ),
        (lambda folder: (folder / "red" / "cut.png").write_bytes(b"\x89PNG"), "cut.png"),
        (lambda folder: (folder / "pink").mkdir(), "pink.*empty"),
        (lambda folder: (folder / "list.csv").write_text("x"), "list.csv.*beside the folders"),
    ],
)
def test_strange_files_are_refused_by_name(tmp_path: Path, change: Any, told: str) -> None:
    folder = write_folder(tmp_path / "shapes", 3)
    change(folder)
    with pytest.raises(DataError, match=told):
        read(folder, tmp_path / "cache")


def test_one_label_or_no_image_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="folder is empty"):
        read(tmp_path / "empty", tmp_path / "cache")
    folder = write_folder(tmp_path / "shapes", 3)
    for label in ("blue", "green"):
        for file in (folder / label).iterdir():
            file.unlink()
        (folder / label).rmdir()
    with pytest.raises(DataError, match="same label, 'red'"):
        read(folder, tmp_path / "cache")
    with pytest.raises(DataError, match="no such file"):
        read(tmp_path / "lost", tmp_path / "cache")


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"train_labels": np.zeros(3)}, "3 labels for 30 images"),
        ({"train_images": np.zeros((30, 5))}, "its shape is"),
        ({"train_images": np.full((30, 8, 8), 300)}, "from 0 to 255"),
        ({"train_images": np.full((30, 8, 8), 1.5)}, "between 0 and 1"),
        ({"labelled_2": np.array([[1, 99]])}, "numbers of training images"),
    ],
)
def test_archives_that_do_not_fit_are_refused(
    tmp_path: Path, changed: dict[str, Any], told: str
) -> None:
    images, labels = arrays(30)
    np.savez(tmp_path / "odd.npz", **{"train_images": images, "train_labels": labels, **changed})
    with pytest.raises(DataError, match=told):
        read(tmp_path / "odd.npz", tmp_path / "cache")


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "odd.npz").write_bytes(b"no zip file")
    with pytest.raises(DataError, match="not an archive of NumPy arrays"):
        read(tmp_path / "odd.npz", tmp_path / "cache")
    np.savez(tmp_path / "objects.npz", train_images=np.array([{}, {}], dtype=object))
    with pytest.raises(DataError, match="objects, not numbers"):
        read(tmp_path / "objects.npz", tmp_path / "cache")
    (tmp_path / "one.png").write_bytes(png(shape_of("red", np.random.default_rng(0))))
    with pytest.raises(DataError, match="a single file has no labels"):
        read(tmp_path / "one.png", tmp_path / "cache")


def test_images_are_told_from_text(tmp_path: Path) -> None:
    assert holds_images(write_folder(tmp_path / "shapes", 2))
    texts = tmp_path / "texts" / "good"
    texts.mkdir(parents=True)
    (texts / "a.txt").write_text("a text")
    assert not holds_images(tmp_path / "texts")
    assert not holds_images(tmp_path / "lost")


def test_keys_for_text_are_refused_all_at_once() -> None:
    values = {"data": {"train": "x", "corpus": ["y"]}, "select": {"k": 5}, "train": {"steps": 3}}
    with pytest.raises(RecipeError) as error:
        check_settings(from_dict(values))
    assert len(error.value.problems) == 3
    assert "select.k" in str(error.value) and "no text to select" in str(error.value)


def test_copies_stay_in_train(tmp_path: Path) -> None:
    images, labels = arrays(30)
    np.savez(
        tmp_path / "twice.npz",
        train_images=np.tile(images, (2, 1, 1, 1)),
        train_labels=np.tile(labels, 2),
    )
    recipe = small_recipe(tmp_path / "twice.npz")
    with pytest.raises(DataError, match="too few to hold out"):
        read_images(recipe, Artefacts(tmp_path / "cache"), Inputs(), Tracker())
    whole = dataclasses.replace(recipe, image=dataclasses.replace(recipe.image, dev=False))
    data = read_images(whole, Artefacts(tmp_path / "cache"), Inputs(), Tracker())
    assert len(data.labelled) == 60
