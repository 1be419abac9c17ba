from __future__ import annotations

from pathlib import Path

from tasklm.artifacts import Artefacts
from tasklm.pipeline.evaluation import seconds_of
from tasklm.storage.files import write_json


def test_the_time_of_a_killed_training_is_not_lost(tmp_path: Path) -> None:
    artefacts = Artefacts(tmp_path)
    artefacts.build(
        "stage1", "key", lambda folder: write_json(folder / "summary.json", {"seconds": 1120.9})
    )
    assert artefacts.seconds("stage1") < 60 and seconds_of(artefacts, "stage1") == 1120.9
    artefacts.build("tokens", "key", lambda folder: None)
    assert (
        seconds_of(artefacts, "tokens") == artefacts.seconds("tokens")
        and seconds_of(artefacts, "selected") == 0.0
    )
