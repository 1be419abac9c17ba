"""The keys of stage 2 about text without labels."""

from __future__ import annotations

from dataclasses import dataclass

from tasklm.recipe.parsing import key

NO_STUDENT = "none"
CROSS_VIEW = "cross-view"  # the student whose keys are about modules
VAT = "vat"  # the student that adversarial noise disturbs
TEXT_DROPOUT = 0.2  # as in the code of arXiv 1809.08370
# where text without labels comes from: labels that data.share hides, data.unlabelled, selected text
HIDDEN, FILE, PASSAGES = "hidden", "file", "passages"
SOURCES = (HIDDEN, FILE, PASSAGES)


@dataclass(frozen=True)
class RawText:
    """How stage 2 learns from text without labels."""

    unlabelled: str = key(
        NO_STUDENT,
        "what learns from unlabelled text: cross-view (modules that see a part of it), "
        "word-dropout, vat (adversarial noise), or none; for images: cross-view, vat, "
        "cross-view,vat or none",
        later=True,
    )
    unlabelled_dropout: float | None = key(
        None,
        ("dropout rate of stage 2 on unlabelled text; auto: 0.2, with vat as on labelled examples"),
        low=0.0,
        high=0.9,
        later=True,
    )
    unlabelled_after: float | None = key(
        None,
        "share of the planned epochs of stage 2 before unlabelled text is read; auto: 0.5 for "
        "translate, 0 for other kinds",
        low=0.0,
        high=1.0,
        later=True,
    )
    unlabelled_texts: int = key(
        50_000,
        "maximum number of unlabelled texts; those of the best passages first",
        low=1,
        later=True,
    )
    unlabelled_from: tuple[str, ...] = key(
        (),
        "sources of unlabelled text, comma-separated: hidden (labels that data.share leaves out), "
        "file (data.unlabelled), passages; empty: all available",
        later=True,
    )
    unlabelled_tasks: str = key(
        "all",
        "unlabelled = cross-view with several tasks: the tasks whose modules learn from a batch",
        choices=("all", "one"),
        later=True,
    )
    views: tuple[str, ...] = key(
        (),
        "unlabelled = cross-view: modules to train, comma-separated, such as "
        "full,forward,backward; empty: all of the kind",
        later=True,
    )
    word_dropout: float = key(
        0.1, "unlabelled = word-dropout: share of the words to hide", low=0.0, high=1.0, later=True
    )
    vat_norm: float | None = key(
        None,
        "unlabelled = vat: norm of the noise of a text; auto: 1.0 for parse, 0.5 for others",
        low=0.0,
        later=True,
    )

    @property
    def has_student(self) -> bool:
        """Whether stage 2 reads text without labels."""
        return self.unlabelled != NO_STUDENT

    def dropout_on_text(self, labelled: float) -> float:
        """The dropout rate on text without labels; `labelled` is that on labelled examples.

        Adversarial noise would else teach a model to answer all alike that has less dropout than
        with labels, and still be right about these.
        """
        if self.unlabelled_dropout is not None:
            return self.unlabelled_dropout
        return labelled if self.unlabelled == VAT else TEXT_DROPOUT
