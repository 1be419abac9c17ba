"""`tasklm`, but the second process dies in the middle of stage 1; for a test."""

from __future__ import annotations

import os
import sys

from tasklm.cli.app import main
from tasklm.train.stage1 import JointStage
from tasklm.train.steps import Step

if os.environ["RANK"] == "1":
    prepare = JointStage.prepare

    def dying(self: JointStage, step: int) -> Step:
        if step == 8:
            print("rank 1 gives up", file=sys.stderr, flush=True)
            os._exit(3)
        return prepare(self, step)

    JointStage.prepare = dying  # type: ignore[method-assign]

main()
