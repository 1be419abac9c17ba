"""The benchmark of training: its text, its sums by hand, its page, and a small run of the peers."""

from __future__ import annotations

import importlib
import json
import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tasklm.errors import DataError, RunError
from tasklm.tokens.shards import Shards
from tasklm.tokens.tokenizer import SPECIALS

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
CLS, SEP, PAD = (SPECIALS.index(mark) for mark in ("[CLS]", "[SEP]", "[PAD]"))


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return lambda name: importlib.import_module(f"training_peers.{name}")


def run(tokens: int, seconds: float, memory: int = 10**9) -> dict[str, Any]:
    """The report of a run."""
    return {
        "tokens": tokens,
        "seconds": seconds,
        "peak_memory": memory,
        "steps": 7,
        "first_loss": 9.5,
        "last_loss": 7.25,
        "version": "version 1",
        "settings": "as it comes",
    }


def case(engines: dict[str, Any]) -> dict[str, Any]:
    """The results of a case."""
    about = {
        "date": "2026-01-01",
        "software": "torch 2",
        "threads": 1,
        "vocabulary": 1000,
        "text": "some text",
        "padding": 0.01,
    }
    return {"about": about, "engines": engines}


def measured() -> dict[str, Any]:
    """A case in which eager attention is the faster peer and the Trainer is missing."""
    ceiling = [
        {"tflops": 0.5, "version": "torch 2", "settings": "bf16"},
        {"tflops": 2.0, "version": "torch 2", "settings": "bf16"},
    ]
    return case(
        {
            "ours": {"runs": [run(9000, 1.0), run(9000, 1.5), run(9000, 0.5)]},
            "transformers": {"runs": [run(2000, 1.0)]},
            "transformers-eager": {"runs": [run(3000, 1.0), run(6000, 1.0, memory=3 * 10**9)]},
            "trainer": {"runs": [], "failed": "ImportError: no accelerate"},
            "ceiling": {"runs": ceiling},
        }
    )


def test_a_shape_is_a_name_or_layers_and_width(module: Any) -> None:
    parse = module("cases").parse_case
    base, narrow = parse("base:256x128", 30_522), parse("3x192:32x64", 500)
    assert (base.shape.layers, base.shape.width, base.shape.heads, base.shape.feedforward) == (
        12,
        768,
        12,
        3072,
    )
    assert (base.rows, base.length, base.shape.vocabulary) == (256, 128, 30_522)
    assert (
        narrow.shape.layers,
        narrow.shape.width,
        narrow.shape.heads,
        narrow.rows,
        narrow.length,
    ) == (3, 192, 3, 32, 64)
    for wrong in ("huge:1x1", "base", "2x100:8x128", "2x64:8x513", "2x64:0x128"):
        with pytest.raises(RunError, match=wrong):
            parse(wrong, 500)


def test_made_up_text_has_passages_of_the_lengths_said_and_falls_off_by_rank(
    module: Any, tmp_path: Path
) -> None:
    text = module("text")
    text.make_shards(tmp_path, 400_000, 300, seed=1)
    shards = Shards.open(tmp_path)
    assert shards.lengths.min() == text.SHORTEST and shards.lengths.max() == text.LONGEST
    counts = np.bincount(shards.tokens, minlength=300)
    assert not counts[: len(SPECIALS)].any() and len(counts) == 300
    expected = (1 / (np.arange(295) + 2.7)) / (1 / (np.arange(295) + 2.7)).sum()
    np.testing.assert_allclose(counts[5:15] / counts.sum(), expected[:10], rtol=0.03)


def test_rows_are_marked_pieces_of_passages(module: Any, tmp_path: Path) -> None:
    text = module("text")
    text.make_shards(tmp_path, 8000, 400, seed=2)
    padding = text.pack_rows(tmp_path, 48, 400, 1, tmp_path / "rows.npy")
    rows = np.load(tmp_path / "rows.npy")
    assert rows.shape[1] == 48 and padding == pytest.approx((rows == PAD).mean())
    whole = " ".join(map(str, Shards.open(tmp_path).tokens))
    for row in rows[::20]:
        marks = [number for number in row if number in (CLS, SEP)]
        assert marks == [CLS, SEP] * (len(marks) // 2) and row[0] == CLS
        piece = row[1 : list(row).index(SEP)]
        assert f" {' '.join(map(str, piece))} " in f" {whole} "
    data = text.PackedRows(tmp_path / "rows.npy", len(rows) + 3)
    assert (
        len(data) == len(rows) + 3
        and torch.equal(data[len(rows) + 2], data[2])
        and data[0].dtype == torch.int64
    )
    with pytest.raises(DataError, match="--vocabulary"):
        text.pack_rows(tmp_path, 48, 100, 1, tmp_path / "rows.npy")


def test_the_clock_runs_from_the_last_warm_up_step_to_the_last_step(
    module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    timing = module("timing")
    now = iter([100.0, 103.5, 999.0])
    monkeypatch.setattr(timing.time, "perf_counter", lambda: next(now))
    timer = timing.StepTimer(warmup=2, steps=3, device=torch.device("cpu"))
    seconds = []
    for _ in range(5):
        timer.step()
        seconds.append(timer.seconds)
    assert seconds == [0, 0, 0, 0, 3.5]


def test_the_summary_is_the_one_by_hand(module: Any) -> None:
    found = module("report").summary("2x64:8x32", measured())
    assert found["ours"]["tokens_per_second"] == 9000
    assert (found["ours"]["slowest"], found["ours"]["fastest"]) == (6000, 18_000)
    assert [engine for engine in found if found[engine]["reference"]] == ["transformers-eager"]
    assert (
        found["transformers-eager"]["tokens_per_second"] == 4500
        and found["transformers-eager"]["memory"] == 3 * 10**9
    )
    assert found["ours"]["ratio"] == 2.0 and found["transformers"]["ratio"] == pytest.approx(
        2000 / 4500
    )
    # a layer: four products with 64×64, two with 64×256, scores and mixing over 32 tokens; 1350 of
    # 9000 tokens are predicted
    layer = 2 * (4 * 64 * 64 + 2 * 64 * 256 + 2 * 32 * 64)
    unread = 2 * (64 * 64 + 2 * 64 * 256)  # of the last layer, for tokens that are not
    flops = 3 * (9000 * 2 * layer - 7650 * unread + 1350 * 2 * (64 * 64 + 64 * 1000))
    assert found["ours"]["tflops"] == pytest.approx(flops / 1e12)
    assert found["ours"]["of_ceiling"] == pytest.approx(flops / 1e12 / 2.0)
    assert "trainer" not in found and "ceiling" not in found


def test_the_page_says_what_is_missing_and_keeps_devices_apart(module: Any, tmp_path: Path) -> None:
    report = module("report")
    only_fp32 = case({"transformers-fp32": {"runs": [run(100, 1.0)]}})
    old = {
        "A GPU": {"2x64:8x32": only_fp32, "base:8x32": only_fp32},
        "A CPU": {"2x64:8x32": only_fp32},
    }
    devices = report.merged(old, {"A GPU": {"2x64:8x32": measured()}})
    assert list(devices) == ["A GPU", "A CPU"] and set(devices["A GPU"]) == {
        "2x64:8x32",
        "base:8x32",
    }
    for number, part in enumerate((old, {"A GPU": {"2x64:8x32": measured()}})):
        (tmp_path / f"{number}.json").write_text(json.dumps({"devices": part}), encoding="utf-8")
    assert report.read_results([tmp_path / "0.json", tmp_path / "1.json"]) == devices
    with pytest.raises(DataError, match="--merge"):
        report.read_results([tmp_path / "2.json"])
    page = report.markdown(devices)
    gpu, cpu = page.split("## A GPU")[1].split("## A CPU")
    assert "| trainer | not available (ImportError: no accelerate) |" in gpu
    assert "| ours | 9,000 (6,000 to 18,000) | 2.00× |" in gpu and "| 9.50 → 7.25 |" in gpu
    assert (
        "| transformers-eager | 4,500 (3,000 to 6,000) | 1.00× (reference) |" in gpu
        and "best 2 TFLOP/s" in gpu
    )
    assert "### 12 layers of width 768, 8 rows of 32 tokens" in gpu
    assert (
        "| transformers-fp32 | 100 (100 to 100) | 1.00× (reference) |" in cpu and "ours" not in cpu
    )


def test_the_peer_has_the_weights_of_ours_and_never_masks_special_tokens(module: Any) -> None:
    pytest.importorskip("transformers")
    plain = module("plain")
    shape = module("cases").parse_case("2x64:8x32", 300).shape
    weights = sum(weight.numel() for weight in plain.new_model(shape, "sdpa").parameters())
    layers = 2 * (4 * (64 * 64 + 64) + (64 * 256 + 256) + (256 * 64 + 64) + 4 * 64)
    assert weights == (300 + 512 + 2) * 64 + 2 * 64 + layers + (64 * 64 + 64 + 2 * 64 + 300)
    torch.manual_seed(0)
    rows = torch.randint(0, 300, (400, 128))
    batch = plain.collator(300)(list(rows.clone()))
    special, picked = rows < len(SPECIALS), batch["labels"] != -100
    assert not (picked & special).any() and torch.equal(batch["labels"][picked], rows[picked])
    assert float(picked[~special].float().mean()) == pytest.approx(0.15, abs=0.01)
    assert float(
        (batch["input_ids"][picked] == SPECIALS.index("[MASK]")).float().mean()
    ) == pytest.approx(0.8, abs=0.02)


def test_a_quick_run_measures_the_peers(
    module: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The workers run in this process, which has the libraries loaded already."""
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    worker, training = module("worker"), importlib.import_module("training")

    def here(spec: dict[str, Any], scratch: Path, limit: float) -> dict[str, Any]:
        (scratch / "spec.json").write_text(json.dumps(spec), encoding="utf-8")
        monkeypatch.setattr(
            sys, "argv", ["worker", str(scratch / "spec.json"), str(scratch / "report.json")]
        )
        worker.main()
        report: dict[str, Any] = json.loads((scratch / "report.json").read_text(encoding="utf-8"))
        return report

    monkeypatch.setattr(training, "run_engine", here)
    arguments = [
        "--quick",
        "--device",
        "cpu",
        "--threads",
        str(torch.get_num_threads()),
        "--work",
        str(tmp_path),
    ]
    monkeypatch.setattr(
        sys, "argv", ["training.py", *arguments, "--engines", "transformers-eager,trainer"]
    )
    training.main()
    (cases,) = json.loads((tmp_path / "training.json").read_text(encoding="utf-8"))[
        "devices"
    ].values()
    engines = cases["1x64:4x32"]["engines"]
    assert list(engines) == ["transformers-eager", "trainer"]
    for (done,) in (one["runs"] for one in engines.values()):
        assert done["tokens"] == 2 * 4 * 32 and done["steps"] == 2 and done["seconds"] > 0
        assert (
            done["first_loss"] == pytest.approx(math.log(500), abs=0.6)
            and done["first_loss"] != done["last_loss"]
        )
    assert "eager attention" in engines["transformers-eager"]["runs"][0]["settings"]
    assert "torch_compile=False" in engines["trainer"]["runs"][0]["settings"]


def test_engines_are_processes(tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(BENCHMARKS / "training.py"),
        "--quick",
        "--device",
        "cpu",
        "--work",
        str(tmp_path),
    ]
    done = subprocess.run(
        [*command, "--engines", "ceiling"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (cases,) = json.loads((tmp_path / "training.json").read_text(encoding="utf-8"))[
        "devices"
    ].values()
    (ceiling,) = cases["1x64:4x32"]["engines"]["ceiling"]["runs"]
    assert ceiling["tflops"] > 0 and "256³ product" in done.stdout


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("echo first >&2; echo 'ImportError: no library' >&2; exit 1", "ImportError: no library"),
        ("exec sleep 9", "more than"),
    ],
)
def test_a_failure_is_told(
    module: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str, said: str
) -> None:
    running = module("running")
    (tmp_path / "python").write_text(f"#!/bin/sh\n{program}\n", encoding="utf-8")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(running.Failed, match=said):
        running.run_engine({"threads": 1}, tmp_path, limit=0.5)


def test_the_time_of_a_step_is_that_of_kernels_and_of_waiting(module: Any) -> None:
    activity = module("activity")

    def event(
        name: str, start: float, end: float, device: str = "CUDA", named: bool = False
    ) -> Any:
        about = {
            "device_type": SimpleNamespace(name=device),
            "is_user_annotation": named,
            "name": name,
        }
        return SimpleNamespace(time_range=SimpleNamespace(start=start, end=end), **about)

    events = [
        event("matmul", 10, 30),
        event("copy", 12, 14),
        event("add", 34, 36),
        event("matmul", 36, 56),
    ]
    events += [event("step", 0, 99, named=True), event("launch", 0, 5, device="CPU")]
    work = activity.device_work(reversed(events))
    assert [one.name for one in work] == ["matmul", "copy", "add", "matmul"]
    assert activity.waits(work) == [
        (4, "matmul", "add")
    ]  # while the copy's end is followed by the product on another stream
    page = activity.markdown(work, steps=2)
    assert "2 kernels and copies a step; 23 µs a step, of which the device waits 2." in page
    assert "| 20.0 | 1.0 | matmul |" in page and "| 2.0 | 0.5 | matmul → add |" in page
