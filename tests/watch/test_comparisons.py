"""An ablation that is made of several runs, such as a model for each task, is followed in each."""

from __future__ import annotations

from pathlib import Path

from tasklm.artifacts import Artefacts
from tasklm.storage.files import locked
from tasklm.watch.state import Watched
from tests.watch.growing_run import GrowingRun


def test_the_models_of_single_tasks_are_followed_in_their_own_folders(tmp_path: Path) -> None:
    run = GrowingRun(tmp_path / "first", compare=("single",))
    one, other = (GrowingRun(run.folder / "compare" / "single" / name) for name in ("RTE", "SST"))

    def train(folder: Path) -> None:
        other.point("stage 1", 20, lm=5.0)
        with other.tracker.progress("stage 1", 40) as bar:
            bar.at(20)
            states.append(Watched(run.folder).state())

    states: list[dict[str, object]] = []
    with locked(run.folder):
        one.point("stage 1", 10, lm=3.0)
        Artefacts(other.folder).build("stage1", "key", train)
    (state,) = states
    assert state["doing"] == "single/SST"
    flow = {step["name"]: step["state"] for step in state["flow"]}  # type: ignore[attr-defined]
    assert flow["compare"] == "now"
    curves = [(group["of"], group["title"]) for group in state["curves"]]  # type: ignore[attr-defined]
    assert curves == [("single/SST", "stage 1"), ("single/RTE", "stage 1")]
