"""One run of one engine in a process of its own: `python -m training_peers.worker SPEC.json
REPORT.json`.
"""

from __future__ import annotations

import gc
import json
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from training_peers.cases import Case, parse_case

_TRIAL_STEPS = 4  # from which the number of steps that fill --seconds is told


def measure(
    spec: dict[str, Any], case: Case, steps: int, device: torch.device, scratch: Path
) -> dict[str, Any]:
    """What the engine of the specification reports; engines are imported here, so that each process
    has only its own.
    """
    shape, warmup, workers = case.shape, spec["warmup"], spec["workers"]
    engine = spec["engine"]
    if engine == "ceiling":
        from training_peers import ceiling

        return ceiling.measure(device, spec["product"], spec["product_seconds"])
    if engine == "ours":
        from training_peers import ours

        return ours.measure(
            shape,
            case.rows,
            case.length,
            Path(spec["tokens"]),
            shape.vocabulary,
            steps,
            warmup,
            device,
        )
    if engine == "trainer":
        from training_peers import trainer

        rows = Path(spec["rows"])
        return trainer.measure(
            shape,
            case.rows,
            rows,
            steps,
            warmup,
            device,
            compiled=spec["compiled"],
            workers=workers,
            scratch=scratch,
        )
    from training_peers import plain

    attention = "eager" if engine == "transformers-eager" else "sdpa"
    bf16 = engine != "transformers-fp32"
    how = {
        "attention": attention,
        "bf16": bf16,
        "workers": workers,
        "dropout": 0.1 if engine == "transformers-dropout" else 0.0,
    }
    return plain.measure(shape, case.rows, Path(spec["rows"]), steps, warmup, device, **how)


def main() -> None:
    """Does what the specification says and writes the report."""
    spec_file, report_file = map(Path, sys.argv[1:3])
    spec = json.loads(spec_file.read_text(encoding="utf-8"))
    torch.set_num_threads(spec["threads"])
    device = torch.device(spec["device"])
    case = parse_case(spec["case"], spec["vocabulary"])
    with tempfile.TemporaryDirectory() as scratch:
        steps = spec["steps"]
        if spec["seconds"] is not None and spec["engine"] != "ceiling":
            trial = measure(spec, case, _TRIAL_STEPS, device, Path(scratch))
            steps = max(1, math.ceil(spec["seconds"] / trial["seconds"] * _TRIAL_STEPS))
            gc.collect()  # the trial's model would count as memory of the run
            if device.type == "cuda":
                torch.cuda.reset_peak_memory_stats(device)
        report = measure(spec, case, steps, device, Path(scratch))
    report["peak_memory"] = (
        torch.cuda.max_memory_allocated(device) if device.type == "cuda" else _peak_resident()
    )
    report["steps"] = steps
    report_file.write_text(json.dumps(report, indent=1), encoding="utf-8")


def _peak_resident() -> int:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:"))


if __name__ == "__main__":
    main()
