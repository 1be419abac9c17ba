"""Single changes to the folder of a model."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

Change = Callable[[Path], None]


def edit(file: str, **values: Any) -> Change:
    """A change of some keys of a JSON file; a key a__b is b inside a, and `...` takes a key
    away."""

    def change(folder: Path) -> None:
        content = json.loads((folder / file).read_text(encoding="utf-8"))
        for name, value in values.items():
            *way, last = name.split("__")
            place = content
            for step in way:
                place = place[step]
            if value is ...:
                place.pop(last)
            else:
                place[last] = value
        (folder / file).write_text(json.dumps(content), encoding="utf-8")

    return change


def put(file: str, content: bytes | str) -> Change:
    """A change of the content of a file."""

    def change(folder: Path) -> None:
        (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())

    return change


def in_place(file: str, kind: str) -> Change:
    """A change that puts something else in the place of a file."""

    def change(folder: Path) -> None:
        path = folder / file
        path.unlink()
        match kind:
            case "pipe":
                os.mkfifo(path)
            case "folder":
                path.mkdir()
            case "loop":
                path.symlink_to(path)
            case "device":
                path.symlink_to("/dev/zero")
            case "socket":
                here = Path.cwd()
                os.chdir(folder)  # names of sockets are short
                with socket.socket(socket.AF_UNIX) as server:
                    server.bind(file)
                os.chdir(here)
            case "sparse":
                with path.open("wb") as file_:
                    file_.truncate(1 << 40)
            case _:
                assert kind == "nothing"

    return change


def cut(file: str, share: float) -> Change:
    """A change that leaves the first part of a file."""
    return lambda folder: put(
        file, (content := (folder / file).read_bytes())[: int(share * len(content))]
    )(folder)


def weights(change_one: Callable[[dict[str, torch.Tensor]], Any]) -> Change:
    """A change of the tensors of a folder."""

    def change(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        tensors = {name: tensor.clone() for name, tensor in tensors.items()}
        change_one(tensors)
        save_file(tensors, folder / "model.safetensors")

    return change


def header(change_one: Callable[[dict[str, Any]], Any], data: int | None = None) -> Change:
    """A change of the header of a file of weights; `data` is the length of what follows
    it."""

    def change(folder: Path) -> None:
        path = folder / "model.safetensors"
        content = path.read_bytes()
        size = struct.unpack("<Q", content[:8])[0]
        values = json.loads(content[8 : 8 + size])
        change_one(values)
        written = json.dumps(values).encode()
        with path.open("wb") as file:
            file.write(struct.pack("<Q", len(written)) + written + content[8 + size :])
            if data is not None:
                file.truncate(8 + len(written) + data)

    return change


def entry(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """What sets an entry of a header."""
    return lambda values: values.__setitem__(key, value)


def filled(name: str, value: float) -> Callable[[dict[str, torch.Tensor]], object]:
    """What fills a tensor with a number."""
    return lambda tensors: tensors[name].fill_(value)
