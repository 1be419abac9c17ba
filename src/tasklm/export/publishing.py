"""What leaves the machine with a model: its recipe and its bill of text, with the names of files
instead of paths, and without addresses.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from tasklm.bill.lines import HEADER, rows_of, sentences
from tasklm.bill.record import Bill, bill_path, read_bill, write_bill
from tasklm.console.markdown import plain
from tasklm.corpus.licences import licence_pattern
from tasklm.recipe.schema import Recipe, from_dict
from tasklm.recipe.toml import PATH_KEYS, dump, with_path

MOST_ROWS = 20  # of the table in a model card
GIVEN = "--licence"  # who states a licence, where its pattern may be a path


def without_paths(recipe: Recipe) -> Recipe:
    """The recipe for publication: files by name, without server addresses."""
    paths: dict[str, dict[str, Any]] = {}
    for section, keys in PATH_KEYS.items():
        values = getattr(recipe, section)
        paths[section] = {key: Path(getattr(values, key)).name for key in keys}
    paths["data"]["corpus"] = [Path(item).name for item in recipe.data.corpus]
    paths["data"]["without"] = [_pattern(item) for item in recipe.data.without]
    paths["data"]["licences"] = [_licence(item) for item in recipe.data.licences]
    tasks = [with_path(item, lambda path: Path(path.name)) for item in recipe.several.tasks]
    paths["several"] = {"tasks": tasks}
    paths["distill"] = {"teachers": [Path(item).name for item in recipe.distill.teachers]}
    # addresses, and settings with keys in them
    defaults = Recipe().select
    paths["select"] = {"url": defaults.url, "master": defaults.master, "spark": []}
    return recipe.changed(hardware={"cache": ""}, **paths)


def _pattern(pattern: str) -> str:
    return pattern if licence_pattern(pattern) else Path(pattern).name


def _licence(entry: str) -> str:
    pattern, equals, licence = entry.rpartition("=")
    return f"{Path(pattern).name}{equals}{licence}"


def publish_bill(source: Path, folder: Path) -> None:
    """Writes the bill of a run or a model, if it has one, beside an export or a copy of it."""
    if bill_path(source) is not None:
        write_bill(folder, published(read_bill(source)))


def published(bill: Bill) -> Bill:
    """The bill without paths and addresses; those of other runs in it, too."""
    return Bill.from_dict(_without_places(bill.to_dict()))


def _without_places(value: Any) -> Any:
    """The values of a bill for others."""
    if isinstance(value, list):
        return [_without_places(one) for one in value]
    if not isinstance(value, dict):
        return value
    return {key: _for_others(key, one) for key, one in value.items()}


def _for_others(key: str, value: Any) -> Any:
    if not isinstance(value, str):
        return _network(value) if key == "network" else _without_places(value)
    if key in ("path", "folder"):
        return Path(value).name
    if key == "pattern":
        return _pattern(value)
    if key == "licence_from" and value.startswith(GIVEN):
        return GIVEN
    if key == "recipe":
        return dump(without_paths(from_dict(tomllib.loads(value))))
    return value


def _network(seen: dict[str, Any]) -> dict[str, Any]:
    """What was seen of the network, without the names of hosts."""
    count = sum(seen["calls"].values())
    hosts = ["a host"] * len(seen["named_by_the_recipe"])
    if count:
        seen = {**seen, "statement": f"{count:,} network calls were seen", "calls": {}}
    return {**seen, "named_by_the_recipe": hosts}


def bill_text(bill: Bill) -> str:
    """The sources of a bill as a table, and what it does not say."""
    lines = [f"| {' | '.join(HEADER)} |", "|---" * len(HEADER) + "|"]
    for row in rows_of(bill, MOST_ROWS):
        lines.append(f"| {' | '.join(plain(cell) for cell in row.cells())} |")
    listed = [f"- {plain(sentence)}" for sentence in sentences(bill)]
    return "\n".join([*lines, "", *listed, "", "All of it, with hashes, is in `bill.json`."])
