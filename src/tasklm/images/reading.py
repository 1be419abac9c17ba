"""Finds labelled images: a folder per label, folders of splits, or an archive of arrays."""

from __future__ import annotations

from pathlib import Path

from tasklm.errors import DataError
from tasklm.images.archives import read_archive
from tasklm.images.decoding import Encoded
from tasklm.images.listing import Listed, Listing
from tasklm.recipe.data_sections import Data
from tasklm.storage.safe_reading import home_path, is_there
from tasklm.tasks.readers.folders import split_name
from tasklm.tasks.readers.image_files import ARCHIVE, SUFFIXES, is_left_behind

SPLITS = ("train", "dev", "test", "unlabelled")
LAYOUT = (
    "Use a folder with a sub-folder of PNG or JPEG files for each label, or folders train, dev and "
    "test of such folders, or an .npz file."
)


def list_images(data: Data, most: int) -> Listing:
    """The images that a recipe names, not decoded yet."""
    train = home_path(data.train)
    if not data.train:
        raise DataError("there are no training images", remedy="Give them: tasklm fit FOLDER.")
    listing = _listing(train, most)
    for name, path in (("dev", data.dev), ("test", data.test)):
        if path:
            listing.splits[name] = _split(home_path(path), name, most)
    if data.unlabelled:
        listing.splits["unlabelled"] = _loose(home_path(data.unlabelled), most)
    if "train" not in listing.splits:
        named = ", ".join(listing.splits)
        raise DataError(f"there is no training set, only {named}", file=train, remedy=LAYOUT)
    _check_labels(listing, train)
    return listing


def _listing(path: Path, most: int) -> Listing:
    """All that is in a file or folder."""
    if not is_there(path):
        raise DataError("there is no such file or folder", file=path, remedy="Check the path.")
    if path.suffix.lower() == ARCHIVE and not path.is_dir():
        return read_archive(path)
    if not path.is_dir():
        raise DataError("a single file has no labels", file=path, remedy=LAYOUT)
    splits = _split_folders(path)
    if not splits:
        return Listing({"train": _by_label(path, most)})
    listing = Listing({})
    for name, folder in splits.items():
        reads = _loose if name == "unlabelled" else _by_label
        listing.splits[name] = reads(folder, most)
    return listing


def _split_folders(path: Path) -> dict[str, Path]:
    """The folders of splits, by their names; none unless there is one for train."""
    folders = {}
    for one in sorted(path.iterdir()):
        name = one.name.lower()
        name = name if name in ("unlabelled", "unlabeled") else split_name(name)
        name = "unlabelled" if name == "unlabeled" else name
        if one.is_dir() and name in SPLITS:
            folders[name] = one
    inside = any(one.is_dir() for one in folders.get("train", path).iterdir())
    return folders if "train" in folders and inside else {}


def _split(path: Path, name: str, most: int) -> Listed:
    """The images of a split that has a file or folder of its own."""
    if path.is_dir():
        return _by_label(path, most)
    listing = _listing(path, most)
    if name in listing.splits or "train" in listing.splits:
        return listing.splits.get(name, listing.splits.get("train", Listed()))
    raise DataError(f"there are no images of {name}", file=path, remedy=LAYOUT)


def _by_label(folder: Path, most: int) -> Listed:
    """The images of a folder per label, in the order of their names."""
    if not folder.is_dir():
        raise DataError("there is no such folder", file=folder, remedy=LAYOUT)
    listed = Listed()
    for label in sorted(folder.iterdir()):
        if is_left_behind(label.name):
            continue
        if not label.is_dir():
            problem = "a file lies beside the folders of labels"
            raise DataError(problem, file=label, remedy=f"Move it away. {LAYOUT}")
        files = _image_files(label)
        listed.images += [Encoded.of_file(file, most) for file in files]
        listed.labels += [label.name] * len(files)
        if not files:
            remedy = "Delete it, or put images of that label there."
            raise DataError("the folder of a label is empty", file=label, remedy=remedy)
    if not listed.images:
        raise DataError("the folder is empty", file=folder, remedy=LAYOUT)
    return listed


def _loose(folder: Path, most: int) -> Listed:
    """Images without labels, however they lie in a folder."""
    if not folder.is_dir():
        raise DataError(
            "there is no such folder of images", file=folder, remedy="Give a folder of images."
        )
    files = _image_files(folder)
    if not files:
        raise DataError("the folder is empty", file=folder, remedy="Give a folder of images.")
    images = [Encoded.of_file(file, most) for file in files]
    return Listed(images, [""] * len(images))


def _image_files(folder: Path) -> list[Path]:
    """The images in and below a folder; raises DataError for a file that is none."""
    files = []
    for file in sorted(folder.rglob("*")):
        if file.is_dir() or any(is_left_behind(part) for part in file.relative_to(folder).parts):
            continue
        if file.suffix.lower() not in SUFFIXES:
            remedy = "Only PNG and JPEG files are read: move it away, or convert it."
            raise DataError("a file among the images is not an image", file=file, remedy=remedy)
        files.append(file)
    return files


def _check_labels(listing: Listing, path: Path) -> None:
    """Raises DataError for a single label, and for labels of dev or test that train lacks."""
    train = listing.splits["train"]
    known = set(train.labels)
    if len(known) < 2:
        label = train.labels[0] if train.labels else ""
        problem = f"all {len(train.images):,} images have the same label, {label!r}"
        raise DataError(problem, file=path, remedy=f"Add images of another label. {LAYOUT}")
    for name in ("dev", "test"):
        listed = listing.splits.get(name, Listed())
        for image, label in zip(listed.images, listed.labels, strict=True):
            if label not in known:
                raise DataError(
                    f"its label {label!r} occurs in {name} but not in train",
                    file=image.name,
                    remedy="Add training images of this label, or delete the image.",
                )
