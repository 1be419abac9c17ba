"""tasklm's own training loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from tasklm.encoders.base import Shape


def measure(
    shape: Shape, rows: int, length: int, tokens: Path | None, vocabulary: int, steps: int, warmup: int, device: torch.device
) -> dict[str, Any]:
    """Returns the time of `steps` steps after `warmup` steps, on the token shards of the folder `tokens`.

    The keys are those of the peers: seconds, tokens, first_loss, last_loss, version, settings.
    """
    raise NotImplementedError("the adapter of tasklm's loop is not written yet")
