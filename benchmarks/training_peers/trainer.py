"""transformers.Trainer with the flags that its documentation recommends for speed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import Trainer, TrainerCallback, TrainingArguments

from tasklm.encoders.base import Shape
from training_peers.plain import DECAY, RATE, collator, new_model
from training_peers.text import PackedRows
from training_peers.timing import StepTimer, computes_in_bf16


class _Timing(TrainerCallback):
    """Tells the timer of every step."""

    def __init__(self, timer: StepTimer) -> None:
        self.timer = timer

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.timer.step()


class _LossKeeper(Trainer):
    """A Trainer that keeps the loss of every step on the device; it is read at the end."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.losses: list[torch.Tensor] = []

    def training_step(self, *arguments: Any, **named: Any) -> torch.Tensor:
        loss: torch.Tensor = super().training_step(*arguments, **named)
        self.losses.append(loss)
        return loss


def measure(
    shape: Shape,
    rows: int,
    file: Path,
    steps: int,
    warmup: int,
    device: torch.device,
    *,
    compiled: bool,
    workers: int,
    scratch: Path,
) -> dict[str, Any]:
    """The time of `steps` steps after `warmup` steps, compilation among these."""
    flags: dict[str, Any] = {
        "bf16": computes_in_bf16(device),
        "torch_compile": compiled and (device.type == "cuda" or shutil.which("g++") is not None),
        "optim": "adamw_torch_fused",
        "use_cpu": device.type == "cpu",
        "dataloader_num_workers": workers,
        "dataloader_pin_memory": device.type == "cuda",
        "dataloader_persistent_workers": workers > 0,
        "logging_nan_inf_filter": False,  # with it every step waits for the device
    }
    arguments = TrainingArguments(
        output_dir=str(scratch),
        per_device_train_batch_size=rows,
        max_steps=warmup + steps,
        learning_rate=RATE,
        weight_decay=DECAY,
        lr_scheduler_type="linear",
        max_grad_norm=1.0,
        logging_strategy="no",
        save_strategy="no",
        eval_strategy="no",
        report_to="none",
        disable_tqdm=True,
        remove_unused_columns=False,
        seed=1,
        **flags,
    )
    timer = StepTimer(warmup, steps, device)
    data = PackedRows(file, (warmup + steps) * rows)
    trainer = _LossKeeper(
        new_model(shape, "sdpa"),
        arguments,
        data_collator=collator(shape.vocabulary),
        train_dataset=data,
        callbacks=[_Timing(timer)],
    )
    trainer.train()
    return {
        "seconds": timer.seconds,
        "tokens": steps * rows * data.rows.shape[1],
        "first_loss": float(trainer.losses[0]),
        "last_loss": float(trainer.losses[-1]),
        "version": f"transformers {transformers.__version__} Trainer",
        "settings": "sdpa attention, "
        + ", ".join(f"{name}={value}" for name, value in flags.items()),
    }
