"""Evenly spread text of a corpus, read within some time, without that of dev and test."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tasklm.budget import rules
from tasklm.contestants.base import Job
from tasklm.corpus.corpus_text import CorpusText, local_text
from tasklm.corpus.decontaminate import HeldOutRuns
from tasklm.corpus.licences import RowLicences
from tasklm.corpus.passages import split_passages
from tasklm.corpus.sources import NoTextColumn, read_documents
from tasklm.corpus.streams import COMPRESSED
from tasklm.corpus.words import count_words

BYTES_PER_WORD = 6.5  # of running text
COMPRESSION = 3.0  # bytes of text in one of a compressed file
SHARE = 0.3  # of the minutes, at most, are for reading
BATCH = 512  # passages that are searched for held-out text together


def clean_passages(job: Job) -> Iterator[list[str]]:
    """Yields passages of the corpus that share no run of words with dev or test, at most as many
    words as the minutes of a job allow for counting.
    """
    if not job.recipe.data.corpus:
        return
    most = min(rules.USUAL_WORDS, int(SHARE * job.seconds * rules.WORDS_PER_SECOND))
    until = time.monotonic() + SHARE * job.seconds
    held = HeldOutRuns(job.held_out, job.recipe.data.contamination_words).table
    words = 0
    with job.tracker.progress("counting words of the corpus", most) as bar:
        for batch in _batches(_spread(local_text(job.recipe.data), most)):
            clean = batch
            if held.task.size:
                places, _ = held.find(batch)
                clean = [text for text, place in zip(batch, places, strict=True) if place < 0]
            yield clean
            count = sum(map(count_words, clean))
            words += count
            bar.advance(count)
            if words >= most or time.monotonic() > until:
                return


def _spread(text: CorpusText, most: int) -> Iterator[str]:
    """Yields the passages of evenly spread documents with about so many words together."""
    share, due = min(1.0, most / max(1.0, _words_in(text.files))), 0.0
    for number, file in enumerate(text.files):
        licences = RowLicences(text.licence_column, text.rule(number))
        try:
            for document in read_documents(file, text.column, licences=licences):
                due += share
                if due >= 1:
                    due -= 1
                    yield from split_passages(document.text, text.passage_words)
        except NoTextColumn:
            if len(text.files) == 1:
                raise
            continue  # an index beside the texts


def _words_in(files: Sequence[Path]) -> float:
    """About how many words files have, from their sizes."""
    times = (1.0, COMPRESSION)
    sizes = [path.stat().st_size * times[path.name.endswith(COMPRESSED)] for path in files]
    return sum(sizes) / BYTES_PER_WORD


def _batches(passages: Iterator[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    for passage in passages:
        batch.append(passage)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch
