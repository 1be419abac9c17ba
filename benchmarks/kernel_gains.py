"""What each hand-written GPU kernel of a training step gains over PyTorch's own compiled code.

    python benchmarks/kernel_gains.py --shapes 12x768:256x128,12x512:64x128 --write

Each kernel is measured where training calls it, forward and backward, in bf16 and compiled, once
with the kernel and once with PyTorch's code in its place. The vocabulary is padded as in training:
logits of 30,522 tokens instead of 30,528 take up to twice as long, with other ratios. Times are
those of the kernels on the device, summed by the profiler, so that a busy CPU does not change them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from tasklm.encoders.base import ENCODERS
from tasklm.encoders.layers import activation, residual
from tasklm.encoders.shapes import padded_vocabulary
from tasklm.errors import RunError, TaskLMError
from tasklm.objectives.parts import prediction
from tasklm.storage.files import write_json, write_text
from tasklm.train.optim import adamw
from training_peers.activity import device_work
from training_peers.cases import MASK_RATE, Case, parse_case
from training_peers.timing import wait_for

_PAGES = Path(__file__).resolve().parents[1] / "docs" / "benchmarks"
_WARM_UP, _CALLS, _TURNS = 5, 20, 5


@dataclass(frozen=True)
class Row:
    """One kernel at one shape: microseconds of a call, and calls in a training step."""

    kernel: str
    shape: str
    ours: float
    torchs: float
    calls: int


@dataclass(frozen=True)
class Site:
    """Where training calls a kernel: a module's name for it, which None switches off."""

    module: ModuleType
    name: str
    make: Callable[[Case], Callable[[], Any]]
    calls: Callable[[Case], int]  # in a step of the encoder `bert`


def _gelu(case: Case) -> Callable[[], Any]:
    shape = case.shape
    linear = nn.Linear(shape.width, shape.feedforward).cuda()
    call = torch.compile(activation.linear_gelu, fullgraph=True, dynamic=False)
    hidden = _states(case, shape.width)
    return _both_passes(lambda: call(linear, hidden, "none"))


def _norm(case: Case) -> Callable[[], Any]:
    width = case.shape.width
    linear, norm, dropout = (
        nn.Linear(width, width).cuda(),
        nn.LayerNorm(width).cuda(),
        nn.Dropout(0),
    )
    after = nn.Linear(width, 64, bias=False).cuda()

    def layer(given: torch.Tensor, hidden: torch.Tensor) -> torch.Tensor:
        """Both readers of the normalised states, as the next layer has them."""
        states = residual.add_and_norm(linear, given, hidden, norm, dropout)
        return after(states.states).sum(-1, keepdim=True) + states.residual

    call = torch.compile(layer, fullgraph=True, dynamic=False)
    given, hidden = _states(case, width), _states(case, width)
    return _both_passes(lambda: call(given, hidden))


def _loss(case: Case) -> Callable[[], Any]:
    shape, states = case.shape, round(MASK_RATE * case.rows * case.length)
    head = prediction.TokenPrediction("bert", shape).cuda()
    tokens = nn.Embedding(shape.vocabulary, shape.width).cuda()
    call = torch.compile(head.loss, fullgraph=True, dynamic=False)
    hidden = torch.randn(states, shape.width, device="cuda", dtype=torch.bfloat16)
    hidden.requires_grad_()
    answers = torch.randint(shape.vocabulary, (states,), device="cuda")
    return _both_passes(lambda: call(hidden, tokens, answers))


def _step(case: Case) -> Callable[[], Any]:
    encoder = ENCODERS.get("bert")(case.shape).cuda()
    weights = list(encoder.parameters())
    for weight in weights:
        weight.grad = torch.randn_like(weight)
    return adamw.FusedAdamW([{"params": weights}], 1e-4).step


SITES = {
    "biased_gelu": Site(activation, "biased_gelu", _gelu, lambda case: case.shape.layers),
    "residual_norm": Site(residual, "residual_norm", _norm, lambda case: 2 * case.shape.layers),
    "token_losses": Site(prediction, "token_losses", _loss, lambda case: 1),
    "adamw_kernel": Site(adamw, "adamw_kernel", _step, lambda case: 1),
}


def _states(case: Case, width: int) -> torch.Tensor:
    states = torch.randn(case.rows, case.length, width, device="cuda", dtype=torch.bfloat16)
    return states.requires_grad_()


def _both_passes(forward: Callable[[], torch.Tensor]) -> Callable[[], None]:
    """A call that computes the outputs, and the gradients of all that they come from."""

    def call() -> None:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            outputs = forward()
        outputs.backward(torch.ones_like(outputs))

    return call


def _microseconds(call: Callable[[], Any]) -> float:
    """The device's time for a call: the median of several turns."""
    device = torch.device("cuda")
    for _ in range(_WARM_UP):
        call()
    turns = []
    for _ in range(_TURNS):
        wait_for(device)
        with profile(activities=[ProfilerActivity.CUDA]) as watching:
            for _ in range(_CALLS):
                call()
            wait_for(device)
        work = device_work(watching.events())
        turns.append(sum(one.end - one.start for one in work) / _CALLS)
    return statistics.median(turns)


def _measured(name: str, case: Case) -> Row:
    site = SITES[name]
    if (kernel := getattr(site.module, site.name)) is None:
        raise RunError(f"the kernel {name} cannot be used here: it needs a GPU and Triton")
    times = []
    for used in (kernel, None):
        torch.compiler.reset()
        torch.manual_seed(1)
        setattr(site.module, site.name, used)
        try:
            times.append(_microseconds(site.make(case)))
        finally:
            setattr(site.module, site.name, kernel)
    return Row(name, case.name, times[0], times[1], site.calls(case))


def markdown(rows: list[Row], device: str) -> str:
    """The page."""
    lines = [
        "# What each hand-written GPU kernel gains",
        "",
        f"Written by `benchmarks/kernel_gains.py` on {device}, torch {torch.__version__}.",
        "",
        "| kernel | encoder:rows × length | µs a call | PyTorch, compiled | ratio | ms saved a step |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        saved = (row.torchs - row.ours) * row.calls / 1000
        lines.append(
            f"| `{row.kernel}` | {row.shape} | {row.ours:,.0f} | {row.torchs:,.0f} "
            f"| {row.torchs / row.ours:.2f} | {saved:,.2f} |"
        )
    notes = (
        "A call is the function that training calls, forward and backward, with the matrix products"
        " inside it, which are alike on both sides; the vocabulary is padded to a multiple of 64, as"
        " in training. The last column counts the calls of one step of the encoder `bert`; `modern`"
        " uses `token_losses` and `adamw_kernel` only."
    )
    return "\n".join([*lines, "", notes, ""])


def cases_of(shapes: str, vocabulary: int) -> list[Case]:
    """The cases that --shapes names, with the vocabulary that training makes of this one."""
    return [parse_case(text, padded_vocabulary(vocabulary)) for text in shapes.split(",")]


def main() -> None:
    """Measures each kernel at each shape and prints the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", default="12x768:256x128,12x512:64x128")
    parser.add_argument("--vocabulary", type=int, default=30_522)
    parser.add_argument("--out", type=Path, help="folder for the page and its numbers")
    parser.add_argument("--write", action="store_true", help="also write the documentation's page")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise RunError("there is no GPU here, whose kernels could be measured")
    cases = cases_of(options.shapes, options.vocabulary)
    rows = []
    for name in SITES:
        rows += [_measured(name, case) for case in cases]
        print(json.dumps([asdict(row) for row in rows[-len(cases) :]]), flush=True)
    page = markdown(rows, torch.cuda.get_device_name())
    print(page)
    for folder in [*([options.out] if options.out else []), *([_PAGES] if options.write else [])]:
        write_json(folder / "kernel-gains.json", [asdict(row) for row in rows])
        write_text(folder / "kernel-gains.md", page)


if __name__ == "__main__":
    try:
        main()
    except TaskLMError as error:
        sys.exit(str(error))
