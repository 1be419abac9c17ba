"""A process that does one run of a study, to its end or up to a step:
`python -m tasklm.studying.worker RECIPE FOLDER [UNTIL]`.

It ends when its standard input does: nobody waits for a run whose study was killed. What it says
goes into the log of its folder; on its standard output is why it failed.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TextIO

from tasklm.comparing.worker import FAILED, end_with_the_command
from tasklm.errors import TaskLMError
from tasklm.pipeline.flow import fit
from tasklm.recipe.toml import load
from tasklm.tracking import Tracker


def work(recipe: Path, folder: Path, output: TextIO, until: str = "report") -> int:
    """Trains as a recipe says, up to a step; the status of the process, with the reason if it is
    not 0.
    """
    try:
        fit(load(recipe), folder, Tracker(), until)
    except TaskLMError as error:
        print(error, file=output)
        return FAILED
    except KeyboardInterrupt:
        return 130
    return 0


def main() -> None:
    """Does the work that the command line names."""
    threading.Thread(target=end_with_the_command, daemon=True).start()
    sys.exit(work(Path(sys.argv[1]), Path(sys.argv[2]), sys.stdout, *sys.argv[3:]))


if __name__ == "__main__":
    main()
