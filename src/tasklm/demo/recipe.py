"""The demo as a recipe: the embedded data set, built when it is not there, and with settings that
take minutes on two cores.
"""

from __future__ import annotations

import json
from pathlib import Path

from tasklm.demo.dataset import build
from tasklm.demo.harvest import versions
from tasklm.recipe.schema import Recipe
from tasklm.recipe.toml import load
from tasklm.tracking import Tracker

SETTINGS = Path(__file__).with_name("demo.toml")


def demo_recipe(folder: Path, tracker: Tracker) -> Recipe:
    """The recipe of the demo on the data in `folder`, which is built unless it is there for the
    same versions.
    """
    if not _is_built(folder):
        tracker.say("the data is the documentation of the installed packages", "demo")
        with tracker.progress("building the data, about a minute"):
            build(folder)
    about = json.loads((folder / "ABOUT.json").read_text(encoding="utf-8"))
    tracker.say(about["task"], "task")
    paths = {f"data.{name}": str(folder / f"{name}.jsonl") for name in ("train", "dev", "test")}
    return load(SETTINGS, {**paths, "data.corpus": [str(folder / "corpus.jsonl.zst")]})


def _is_built(folder: Path) -> bool:
    about = folder / "ABOUT.json"  # written last
    if not about.exists():
        return False
    try:
        return bool(json.loads(about.read_text(encoding="utf-8"))["versions"] == versions())
    except (ValueError, KeyError):
        return False
