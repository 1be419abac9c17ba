"""Gives mkdocs the pages that are written from the code."""

from __future__ import annotations

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from reference_pages import reference_pages


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the reference to the pages of docs/."""
    for name, content in reference_pages().items():
        files.append(File.generated(config, name, content=content))
    return files
