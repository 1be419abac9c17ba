"""Several processes that train one model, as `torchrun` starts them.

Every process prepares the same whole batch and takes its own rows; gradients are summed. The losses
are divided by the targets of the whole batch, so that the result is that of one process. Everything
except training happens once, in the first process, while the others wait.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from tasklm.errors import TrainingError

# how long the others wait while the first selects and tokenizes
PATIENCE = datetime.timedelta(days=7)
BUCKET = 1 << 25  # bytes of gradients sent together


class Ranks:
    """This process among those that train together; the default is one alone."""

    def __init__(self, rank: int = 0, count: int = 1) -> None:
        self._rank, self._count, self._by_itself = rank, count, False

    @property
    def rank(self) -> int:
        """The number of this process."""
        return 0 if self._by_itself else self._rank

    @property
    def count(self) -> int:
        """The number of processes, 1 while this one acts alone."""
        return 1 if self._by_itself else self._count

    @property
    def total(self) -> int:
        """The number of processes, even while this one acts alone."""
        return self._count

    @property
    def first(self) -> bool:
        """Whether this process does the work that happens once."""
        return self._rank == 0

    @contextmanager
    def by_itself(self) -> Iterator[None]:
        """Lets this process act alone while the others wait."""
        before, self._by_itself = self._by_itself, True
        try:
            yield
        finally:
            self._by_itself = before

    def wait(self) -> None:
        """Waits until all processes have reached this point."""
        if self.count > 1:
            with _clear_errors():
                dist.barrier(group=_control())

    def sum_gradients(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Sums the gradients over the processes, in buckets that are sent while others fill."""
        if self.count == 1:
            return
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        with _clear_errors():
            travelling = [
                (bucket, flat, dist.all_reduce(flat, async_op=True))
                for bucket, flat in _buckets(gradients)
            ]
            for bucket, flat, work in travelling:
                work.wait()
                parts = torch.split(flat, [gradient.numel() for gradient in bucket])
                pairs = zip(parts, bucket, strict=True)
                torch._foreach_copy_(bucket, [part.view_as(gradient) for part, gradient in pairs])

    def of_first(self, number: int) -> int:
        """The number that the first process gives."""
        if self.count == 1:
            return number
        summed = torch.tensor(number * self.first)  # 0 in the others
        with _clear_errors():
            dist.all_reduce(summed, group=_control())
        return int(summed)

    def give(self, tensors: Iterable[Tensor]) -> None:
        """Copies the tensors of the first process to all others."""
        if self.count > 1:
            with _clear_errors(), torch.no_grad():
                for tensor in tensors:
                    dist.broadcast(tensor, 0)

    def sum(self, values: Tensor) -> Tensor:
        """The sum of a tensor over the processes."""
        if self.count > 1:
            with _clear_errors():
                dist.all_reduce(values)
        return values


ALONE = Ranks()


@contextmanager
def _clear_errors() -> Iterator[None]:
    """Turns the errors of a broken connection into a message with the remedy."""
    try:
        yield
    except RuntimeError as error:
        raise TrainingError(
            "another process of this training has ended; its own message says why. Run the same "
            "command again, with as many processes as you like: it continues from the last "
            "checkpoint."
        ) from error


def _buckets(gradients: list[Tensor]) -> Iterable[tuple[list[Tensor], Tensor]]:
    bucket: list[Tensor] = []
    filled = 0
    for gradient in gradients:
        bucket.append(gradient)
        filled += gradient.numel() * gradient.element_size()
        if filled >= BUCKET:
            yield bucket, torch.cat([part.flatten() for part in bucket])
            bucket, filled = [], 0
    if bucket:
        yield bucket, torch.cat([part.flatten() for part in bucket])


_groups: dict[str, dist.ProcessGroup] = {}


def _control() -> dist.ProcessGroup | None:
    """The group for waiting: on the CPU, where a long wait costs nothing."""
    if "control" not in _groups:
        _groups["control"] = dist.new_group(backend="gloo", timeout=PATIENCE)
    return _groups["control"]


def first_of_all() -> bool:
    """Whether this process is the one that prints, before any connection is made."""
    return os.environ.get("RANK", "0") == "0"


def processes_started() -> int:
    """How many processes `torchrun` started to train together, 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def join(device: torch.device) -> Ranks:
    """This process's rank, after connecting with the others that `torchrun` started."""
    if processes_started() == 1:
        return ALONE
    if not dist.is_initialized():
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=PATIENCE)
    return Ranks(dist.get_rank(), dist.get_world_size())
