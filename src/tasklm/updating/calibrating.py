"""Sets of labels of an updated model: calibrated on dev with its own answers."""

from __future__ import annotations

from tasklm.coverage.calibration import Calibration, content_of_model, write_calibrations
from tasklm.run_folder import MODEL
from tasklm.storage.files import read_json
from tasklm.updating.before_after import AFTER, Answers
from tasklm.updating.work import Work


def keep_calibration(work: Work, answers: Answers) -> None:
    """Writes coverage.json into the model of an update, if its kind has sets."""
    sets, splits = work.grounds.task.sets, work.grounds.splits
    if sets is None:
        return
    model = work.folder / MODEL
    content = content_of_model(read_json(model / "config.json"))
    own = Calibration.of(sets, splits.train, splits.dev, answers.of(AFTER, "dev"))
    write_calibrations(model, content, {"": own})
