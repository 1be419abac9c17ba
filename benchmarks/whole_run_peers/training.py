"""Both stages of the peer: BERT by transformers.Trainer with the flags of its documentation."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.metrics import accuracy_score, f1_score
from transformers import (
    BertForSequenceClassification,
    DataCollatorForLanguageModeling,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)

from tasklm.budget.rules import stage1_rate
from tasklm.encoders.base import Shape
from tasklm.encoders.shapes import shape_of
from tasklm.recipe.schema import Recipe
from training_peers.plain import new_model
from training_peers.text import PackedRows
from training_peers.timing import computes_in_bf16

Encoded = list[dict[str, Any]]
_PACKAGES = ("bm25s", "tokenizers", "transformers", "accelerate", "torch")
_WORKERS_ON_GPU = 4
_UNSEEN = -100  # the number of a label that train lacks: PyTorch's losses leave it out


def versions() -> str:
    """The versions of the parts."""
    return ", ".join(f"{name} {version(name)}" for name in _PACKAGES)


def device_of(recipe: Recipe) -> torch.device:
    """The device that a recipe names; auto: a GPU where there is one."""
    name = recipe.hardware.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def _arguments(recipe: Recipe, folder: Path, **given: Any) -> TrainingArguments:
    device = device_of(recipe)
    gpu = device.type == "cuda"
    return TrainingArguments(
        output_dir=str(folder),
        bf16=computes_in_bf16(device),
        optim="adamw_torch_fused",
        use_cpu=not gpu,
        dataloader_num_workers=_WORKERS_ON_GPU * gpu,
        dataloader_pin_memory=gpu,
        dataloader_persistent_workers=gpu,
        logging_nan_inf_filter=False,  # with it every step waits for the device
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        lr_scheduler_type="linear",
        max_grad_norm=1.0,
        **given,
    )


def _shape(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> Shape:
    return shape_of(recipe.model, recipe.model.size, len(tokenizer), recipe.tokens.rows)


def pretrain(recipe: Recipe, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Stage 1: masked language modelling on rows.npy; the model is left in the folder stage1."""
    settings, shape = recipe.train, _shape(recipe, tokenizer)
    steps, batch = settings.steps or 1, settings.batch or 1
    torch.manual_seed(settings.seed)
    gpu = device_of(recipe).type == "cuda"
    arguments = _arguments(
        recipe,
        folder / "trainer1",
        per_device_train_batch_size=batch,
        max_steps=steps,
        learning_rate=stage1_rate(shape.width, "adamw"),
        weight_decay=settings.weight_decay,
        warmup_steps=round(settings.warmup * steps),
        torch_compile=gpu and shutil.which("g++") is not None,
        save_strategy="no",
        eval_strategy="no",
        remove_unused_columns=False,
        seed=settings.seed,
    )
    trainer = Trainer(
        new_model(shape, "sdpa"),
        arguments,
        data_collator=DataCollatorForLanguageModeling(
            tokenizer, mlm_probability=settings.mask_rate
        ),
        train_dataset=PackedRows(folder / "rows.npy", steps * batch),
    )
    trainer.train()
    trainer.save_model(str(folder / "stage1"))


def encode(
    examples: Sequence[tuple[str, str]],
    tokenizer: PreTrainedTokenizerFast,
    labels: Sequence[str],
    length: int,
) -> Encoded:
    """The examples as [CLS] text [SEP] with the numbers of their labels; unseen ones have no loss."""
    cut = tokenizer(
        [text for text, _ in examples],
        add_special_tokens=False,
        truncation=True,
        max_length=length - 2,
    )["input_ids"]
    number = {label: place for place, label in enumerate(labels)}
    return [
        {
            "input_ids": [tokenizer.cls_token_id, *row, tokenizer.sep_token_id],
            "labels": number.get(label, _UNSEEN),
        }
        for row, (_, label) in zip(cut, examples, strict=True)
    ]


def finetune(
    recipe: Recipe,
    seed: int,
    tokenizer: PreTrainedTokenizerFast,
    data: dict[str, Encoded],
    folder: Path,
) -> Trainer:
    """Stage 2 of one seed, which keeps the epoch that is best on dev."""
    settings, metric = recipe.finetune, recipe.evaluate.metric
    torch.manual_seed(seed)
    epochs, batch = settings.epochs or 1, settings.batch or 1
    arguments = _arguments(
        recipe,
        folder / f"trainer2-{seed}",
        per_device_train_batch_size=batch,
        per_device_eval_batch_size=64,
        num_train_epochs=epochs,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        warmup_steps=round(settings.warmup * epochs * len(data["train"]) / batch),
        train_sampling_strategy="group_by_length",
        eval_strategy="epoch",
        save_strategy="best",
        save_only_model=True,
        save_total_limit=1,
        load_best_model_at_end=True,
        metric_for_best_model="score",
        greater_is_better=True,
        seed=seed,
    )
    dropout = {"hidden_dropout_prob": settings.dropout}
    dropout["attention_probs_dropout_prob"] = settings.dropout
    classes = 1 + max(row["labels"] for row in data["train"])
    trainer = Trainer(
        BertForSequenceClassification.from_pretrained(
            folder / "stage1", num_labels=classes, **dropout
        ),
        arguments,
        data_collator=DataCollatorWithPadding(tokenizer, pad_to_multiple_of=8),
        train_dataset=data["train"],
        eval_dataset=data["dev"],
        compute_metrics=lambda given: {"score": _score(metric, given)},
    )
    trainer.train()
    return trainer


def score(trainer: Trainer, examples: Encoded) -> float:
    """The score of a fine-tuned model."""
    return float(trainer.predict(examples).metrics["test_score"])


def _score(metric: str, given: Any) -> float:
    gold, answers = given.label_ids, np.argmax(given.predictions, -1)
    if metric == "accuracy":
        return float(accuracy_score(gold, answers))
    average = {"macro_f1": "macro", "micro_f1": "micro"}[metric]
    return float(f1_score(gold, answers, average=average, zero_division=0))
