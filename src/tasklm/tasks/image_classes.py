"""What a model of images answers: one of some classes, judged like those of texts.

It is no kind that the flow of text knows, so it is not registered: images have a flow of their own.
"""

from __future__ import annotations

from tasklm.recipe.image import IMAGE
from tasklm.tasks.classify import Classify


class ImageClasses(Classify):
    """One class for each image; labels are strings in alphabetical order."""

    kind = IMAGE
    metrics = ("accuracy", *(name for name in Classify.metrics if name != "accuracy"))
