"""Small files of the formats of tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa


def jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def dataset(
    folder: Path, rows: list[dict[str, Any]], features: dict[str, Any], files: int = 1
) -> Path:
    """Writes what `Dataset.save_to_disk` writes."""
    folder.mkdir(parents=True)
    names = [f"data-{number:05}-of-{files:05}.arrow" for number in range(files)]
    for number, name in enumerate(names):
        table = pa.Table.from_pylist(rows[number::files])
        with pa.ipc.new_stream(str(folder / name), table.schema) as stream:
            stream.write_table(table, max_chunksize=2)
    (folder / "dataset_info.json").write_text(
        json.dumps({"features": features, "description": ""}), encoding="utf-8"
    )
    (folder / "state.json").write_text(
        json.dumps({"_data_files": [{"filename": name} for name in names]}), encoding="utf-8"
    )
    return folder


CLASSES = {"names": ["no", "yes"], "_type": "ClassLabel"}
TEXT = {"dtype": "string", "_type": "Value"}
SPAN = {"question": "Who?", "context": "Ann lives."}
