"""An encoder that others trained, read by transformers from a folder on the disk."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from tasklm.errors import RecipeError, RunError
from tasklm.storage.files import digest, file_digest
from tasklm.tasks.base import Unit

LONGEST = 256  # tokens of a row
BATCH = 16  # rows of a step, and of those that are read together
WEIGHTS, CONFIG = "*.safetensors", "config.json"
TOKENIZER = ("tokenizer*", "vocab*", "merges.txt", "*.model", "special_tokens_map.json")


def require_transformers() -> None:
    """Raises RecipeError, with the way out, where transformers is not installed."""
    if importlib.util.find_spec("transformers") is None:
        problem = "downloaded encoders are read by the package transformers, which is not installed"
        raise RecipeError([f"--with: {problem}: pip install transformers"])


def model_folder(source: Path) -> Path:
    """The folder with the weights: the one given, or the only one in it that has some."""
    folders = sorted({file.parent for file in source.rglob(WEIGHTS)})
    folders = [folder for folder in folders if (folder / CONFIG).is_file()]
    if source in folders:
        return source
    if len(folders) != 1:
        count = len(folders) or "no"
        problem = f"{source} has {count} folders with {CONFIG} and weights ({WEIGHTS})"
        raise RunError(
            f"{problem}. Give the folder of one downloaded model, as save_pretrained writes it: "
            "nothing is downloaded here."
        )
    return folders[0]


def files_of(source: Path) -> list[Path]:
    """The files that reading needs."""
    folder = model_folder(source)
    patterns = (WEIGHTS, CONFIG, *TOKENIZER)
    files = set(chain.from_iterable(folder.glob(pattern) for pattern in patterns))
    return sorted(file for file in files if file.is_file())


def content_of(source: Path) -> str:
    """A hash of the files that reading needs."""
    return digest([(file.name, file_digest(file)) for file in files_of(source)])


@contextmanager
def unreadable_is_clear(folder: Path) -> Iterator[None]:
    """Turns what transformers says of files that it cannot read into one line."""
    try:
        yield
    except (OSError, ValueError, KeyError, ImportError, SafetensorError) as error:
        line = str(error).partition("\n")[0]
        raise RunError(f"transformers cannot read {folder} ({line}).") from None


class HubTokeniser:
    """A tokenizer of transformers as tasks ask for tokens."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        with unreadable_is_clear(folder):
            read: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        ends = (read.cls_token_id, read.bos_token_id), (read.sep_token_id, read.eos_token_id)
        cls, sep = (next((one for one in pair if one is not None), None) for pair in ends)
        if cls is None or sep is None or read.pad_token_id is None:
            problem = f"the tokenizer of {folder} has no tokens for begin, end and padding of a row"
            raise RunError(f"{problem}. Give the folder of an encoder, such as one of BERT's kind.")
        self.read, self.cls, self.sep = read, int(cls), int(sep)
        self.pad = int(read.pad_token_id)
        self.unk = int(next(one for one in (read.unk_token_id, self.pad) if one is not None))

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text; some vocabularies tell the first of a word by a space."""
        if not texts:
            return []
        spaced = [f" {text}" for text in texts]
        rows = self.read(spaced, add_special_tokens=False, return_attention_mask=False)
        return [list(map(int, row)) for row in rows["input_ids"]]

    def spans(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Not needed by tasks whose answers are read from single places."""
        raise NotImplementedError


class SentenceModel(nn.Module):
    """The encoder of a folder; a whole row stands for itself by the mean of its last states."""

    def __init__(self, source: Path, device: torch.device) -> None:
        from transformers import AutoModel, logging

        quiet: Any = logging
        quiet.set_verbosity_error()
        quiet.disable_progress_bar()
        super().__init__()
        folder = model_folder(source)
        self.tokeniser = HubTokeniser(folder)
        with unreadable_is_clear(folder):
            self.encoder: Any = AutoModel.from_pretrained(
                folder, local_files_only=True, use_safetensors=True, dtype=torch.float32
            )
        self.to(device)

    @property
    def width(self) -> int:
        """The numbers of a state."""
        return int(self.encoder.config.hidden_size)

    @property
    def longest(self) -> int:
        """The tokens that a row has at most."""
        positions = getattr(self.encoder.config, "max_position_embeddings", None)
        return min(LONGEST, int(positions or LONGEST + 2) - 2)

    @cached_property
    def parameters_per_token(self) -> int:
        """The weights that each token passes through: all but the tables of embeddings."""
        tables = {
            id(module.weight) for module in self.modules() if isinstance(module, nn.Embedding)
        }
        return sum(one.numel() for one in self.parameters() if id(one) not in tables)

    def forward(self, units: Sequence[Unit]) -> Tensor:
        """The states (rows, places, width) of units; places that a unit lacks are any.

        The first token stands for the whole row: the mean of its states.
        """
        device = next(self.parameters()).device
        length = max(len(unit.tokens) for unit in units)
        ids = torch.full((len(units), length), self.tokeniser.pad)
        mask, segments = torch.zeros_like(ids), torch.zeros_like(ids)
        places = torch.zeros(len(units), max(len(unit.places) for unit in units), dtype=torch.int64)
        for row, unit in enumerate(units):
            ids[row, : len(unit.tokens)] = torch.tensor(unit.tokens)
            mask[row, : len(unit.tokens)] = 1
            places[row, : len(unit.places)] = torch.tensor(unit.places)
            if unit.second:
                segments[row, unit.second : len(unit.tokens)] = 1
        given = {"input_ids": ids, "attention_mask": mask}
        if getattr(self.encoder.config, "type_vocab_size", 0) > 1:
            given["token_type_ids"] = segments
        moved = {name: tensor.to(device) for name, tensor in given.items()}
        states: Tensor = self.encoder(**moved).last_hidden_state
        weights, places = moved["attention_mask"].unsqueeze(-1), places.to(device)
        means = (states * weights).sum(1) / weights.sum(1)
        own = states.gather(1, places.unsqueeze(-1).expand(-1, -1, states.shape[-1]))
        return torch.where((places == 0).unsqueeze(-1), means.unsqueeze(1), own)


def rows_by_length(units: Sequence[Unit], together: int = 1) -> list[list[int]]:
    """The numbers of all units in batches of about one length; those answered as one stay so."""
    groups = [range(first, first + together) for first in range(0, len(units), together)]
    groups.sort(key=lambda group: max(len(units[number].tokens) for number in group))
    size = max(1, BATCH // together)
    batches = [groups[first : first + size] for first in range(0, len(groups), size)]
    return [list(chain.from_iterable(batch)) for batch in batches]
