"""Questions about texts of several scripts."""

from __future__ import annotations

from typing import Any

from tasklm.recipe.model_sections import Tokens
from tasklm.tasks.examples import Example
from tasklm.tasks.span import Span
from tasklm.tokens.tokenizer import Vocabulary, train_vocabulary

TEXTS = [
    "Die Größe des Café beträgt übrigens zwölf Meter. Marie Curie wohnte dort, sagt man.",
    "北京是中国的首都。上海很大，人口众多。",
    "I 😀 love 👩‍👩‍👧 pizza 🍕, and the naïve façade of Ångström's house costs $3.50!",
    "cafe\u0301 and ﬁne wine \u00a0 with  odd   spaces\tand tabs",
]
QUESTION = "Wer wohnte in dem Café? 谁 😀"


def vocabulary(kind: str = "wordpiece") -> Vocabulary:
    return train_vocabulary([TEXTS * 3 + [QUESTION] * 3], Tokens(kind=kind), 400)


def example(context: str, label: Any, question: str = QUESTION) -> Example:
    return Example((question, context), label, "some.json", 1)


def task(**changed: Any) -> Span:
    return Span(**{"stride": 4, "answer_tokens": 30, "unanswerable": True, **changed})
