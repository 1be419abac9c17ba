"""transformers in a plain loop, as the public code of TLM (arXiv 2111.04130) trains: DataLoader,
collator, AdamW, linear schedule.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models
from torch.utils.data import DataLoader
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    PreTrainedTokenizerFast,
    get_scheduler,
)

from tasklm.encoders.base import Shape
from tasklm.tokens.tokenizer import CLS, MASK, PAD, SEP, SPECIALS, UNK
from training_peers.cases import MASK_RATE
from training_peers.text import PackedRows
from training_peers.timing import StepTimer, computes_in_bf16

RATE, DECAY = 1e-4, 0.01
_NOT_DECAYED = ("bias", "LayerNorm.weight")


def new_model(shape: Shape, attention: str, dropout: float = 0.0) -> BertForMaskedLM:
    """Returns BERT with a prediction head, from random weights."""
    config = BertConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.feedforward,
        max_position_embeddings=shape.positions,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        pad_token_id=SPECIALS.index(PAD),
    )
    return BertForMaskedLM._from_config(config, attn_implementation=attention)


def collator(vocabulary: int) -> DataCollatorForLanguageModeling:
    """The library's masking, with a tokenizer that only knows how many tokens there are and which
    are special.
    """
    tokens = [*SPECIALS, *(f"token{number}" for number in range(len(SPECIALS), vocabulary))]
    words = Tokenizer(
        models.WordPiece({token: number for number, token in enumerate(tokens)}, unk_token=UNK)
    )
    marks = {
        "pad_token": PAD,
        "unk_token": UNK,
        "cls_token": CLS,
        "sep_token": SEP,
        "mask_token": MASK,
    }
    return DataCollatorForLanguageModeling(
        PreTrainedTokenizerFast(tokenizer_object=words, **marks), mlm_probability=MASK_RATE
    )


def measure(
    shape: Shape,
    rows: int,
    file: Path,
    steps: int,
    warmup: int,
    device: torch.device,
    *,
    attention: str,
    bf16: bool,
    workers: int,
    dropout: float = 0.0,
) -> dict[str, Any]:
    """The time of `steps` steps after `warmup` steps."""
    torch.manual_seed(1)
    bf16 = bf16 and computes_in_bf16(device)
    model = new_model(shape, attention, dropout).to(device).train()
    optimiser = torch.optim.AdamW(_groups(model), lr=RATE)
    schedule = get_scheduler(
        "linear", optimiser, num_warmup_steps=0, num_training_steps=warmup + steps
    )
    data = PackedRows(file, (warmup + steps) * rows)
    loader = DataLoader(
        data,
        batch_size=rows,
        shuffle=True,
        collate_fn=collator(shape.vocabulary),
        num_workers=workers,
        pin_memory=device.type == "cuda",
    )
    timer, losses = StepTimer(warmup, steps, device), []
    for batch in loader:
        batch = {name: value.to(device, non_blocking=True) for name, value in batch.items()}
        with torch.autocast(device.type, dtype=torch.bfloat16) if bf16 else nullcontext():
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        optimiser.zero_grad()
        losses.append(loss.detach())
        timer.step()
    return {
        "seconds": timer.seconds,
        "tokens": steps * rows * data.rows.shape[1],
        "first_loss": float(losses[0]),
        "last_loss": float(losses[-1]),
        "version": f"transformers {transformers.__version__}",
        "settings": (
            f"{attention} attention, "
            f"{'bf16 autocast' if bf16 else 'fp32'}, AdamW (foreach), {workers} DataLoader workers"
        ),
    }


def _groups(model: torch.nn.Module) -> list[dict[str, Any]]:
    """The weights as the library's example scripts group them: biases and norms are not decayed."""
    named = list(model.named_parameters())
    spared = [weight for name, weight in named if name.endswith(_NOT_DECAYED)]
    decayed = [weight for name, weight in named if not name.endswith(_NOT_DECAYED)]
    return [{"params": decayed, "weight_decay": DECAY}, {"params": spared, "weight_decay": 0.0}]
