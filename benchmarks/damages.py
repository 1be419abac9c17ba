"""Every file of a finished run is damaged, and the same command given again.

    python benchmarks/damages.py --work /tmp/damages
    python benchmarks/damages.py --work /tmp/damages --together    # one file of each folder at a time
    python benchmarks/damages.py --work /tmp/damages --only model/ --kinds flipped
    python benchmarks/damages.py --work /tmp/damages --only run/stage --trainings 2    # stage1-2, stage2-2

After that every file of its model is damaged, and a text predicted.

A damage is right when the run ends with the same results, having made again what was damaged, or in
an error whose advice, followed to the letter, leads there. It exits with 1 where any is silent, a
traceback, a crash or a hang. `--without-checksums` takes these out first, as in runs of earlier
versions: damages may then be silent, and must still not end in a traceback or crash.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from arguments import some_of
from durability.commands import Outcome, run, warm_up
from durability.harm import HARMS, harmed
from durability.results import LOGS, differences, results_of
from durability.small_run import fit_command, write_data
from tasklm.pipeline.file_check import check_files

RIGHT = ("rebuilt", "harmless", "clear error", "told by check --files")
TEXT = "the cat likes cold water"


class Place:
    """A finished run, and a copy of it to harm."""

    def __init__(self, work: Path, trainings: int) -> None:
        shutil.rmtree(work, ignore_errors=True)
        self.data, self.trainings = write_data(work / "data"), trainings
        self.whole, self.copy = work / "whole", work / "harmed"
        warm_up(fit_command(self.data, self.whole / "run", trainings))
        self.results = results_of(self.whole)
        self.answer = run(["predict", str(self.whole / "run" / "model"), TEXT]).output

    @property
    def command(self) -> list[str]:
        """The command that made the run, for the copy."""
        return fit_command(self.data, self.copy / "run", self.trainings)

    def names(self) -> list[str]:
        """The files of the run and of what it shares with others, but for locks."""
        files = sorted(
            path
            for path in self.whole.rglob("*")
            if path.is_file() and path.suffix != ".lock" and path.name != ".lock"
        )
        return [str(path.relative_to(self.whole)) for path in files]

    def renew(self) -> None:
        """Makes the copy whole."""
        shutil.rmtree(self.copy, ignore_errors=True)
        shutil.copytree(self.whole, self.copy)

    def harm(self, name: str, kind: str) -> None:
        """Damages a file of the copy, always in the same way."""
        path = self.copy / name
        path.write_bytes(harmed(path.read_bytes(), kind, random.Random(f"{name} {kind}")))

    def differences(self) -> list[str]:
        """The files of the copy that are not as those of the whole run."""
        return differences(self.results, results_of(self.copy))


def main() -> None:
    """Prints an outcome for each damage, and how many there are of each kind."""
    options = _options()
    place = Place(options.work, options.trainings)
    right = RIGHT
    if options.without_checksums:
        take_checksums_out(place.whole)
        place.results, right = results_of(place.whole), (*RIGHT, "silent")
    names = [name for name in place.names() if options.only in name]
    jobs: list[tuple[list[str], str]]
    if options.together:
        jobs = together(names, options.kinds)
    else:
        jobs = [([name], kind) for name in names for kind in options.kinds]
    counts: Counter[str] = Counter()
    for some, kind in jobs:
        outcome = after_damage(place, some, kind)
        counts[outcome.partition(":")[0]] += 1
        print(f"{kind:8} {', '.join(some)}: {outcome}", flush=True)
    for name in [name for name in names if name.startswith("run/model/")]:
        for kind in options.kinds:
            outcome = prediction_after_damage(place, name, kind)
            counts[outcome.partition(":")[0]] += 1
            print(f"{kind:8} predict, {name}: {outcome}", flush=True)
    print(", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items())))
    sys.exit(any(outcome not in right for outcome in counts))


def take_checksums_out(place: Path) -> None:
    """Makes the records of a run as earlier versions wrote them."""
    for path in place.rglob("*.json"):
        values = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(values, dict):
            older = {
                name: value
                for name, value in values.items()
                if name not in ("crc32", "uses", "files")
            }
            path.write_text(
                json.dumps(older, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
            )


def together(names: list[str], kinds: list[str]) -> list[tuple[list[str], str]]:
    """Damages of one file of each folder at a time, so that each file is damaged once: any kind of
    damage, one after the other."""
    folders: dict[str, list[str]] = {}
    for name in names:
        folders.setdefault(str(Path(name).parent), []).append(name)
    most = max(map(len, folders.values()))
    return [
        ([own[number] for own in folders.values() if number < len(own)], kinds[number % len(kinds)])
        for number in range(most)
    ]


def after_damage(place: Place, names: list[str], kind: str) -> str:
    """What the same command does after a damage of some files."""
    place.renew()
    for name in names:
        place.harm(name, kind)
    before = {name: (place.copy / name).read_bytes() for name in names}
    outcome = run(place.command)
    if outcome.kind == "error":
        return _after_advice(place, outcome)
    if outcome.kind != "done":
        return f"{outcome.kind}: {outcome.output[-300:]}"
    left = [
        name
        for name in names
        if (place.copy / name).exists() and (place.copy / name).read_bytes() == before[name]
    ]
    left = [name for name in left if Path(name).name not in LOGS]
    if other := [name for name in place.differences() if name not in left]:
        return f"silent: other {', '.join(other)}"
    if left:
        told = {damage.file for damage in check_files(place.copy / "run").damaged}
        quiet = [name for name in left if str(place.copy / name) not in told]
        return f"silent: still damaged {', '.join(quiet)}" if quiet else "told by check --files"
    return "rebuilt" if "damaged" in outcome.output else "harmless"


def _after_advice(place: Place, outcome: Outcome) -> str:
    """Follows the advice of an error to the letter, then gives the command again."""
    message = " ".join(outcome.output[outcome.output.rindex("error: ") :].split())
    if deleted := re.search(r"Delete (\S+) and", message):
        path = Path(deleted[1])
        if not path.exists():
            return f"wrong advice: {message}"
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    elif again := re.search(r"Rebuild it: tasklm (\w+) (\S+)", message):
        if run([again[1], again[2]]).kind != "done":
            return f"wrong advice: {message}"
    else:
        return f"no advice: {message}"
    right = run(place.command).kind == "done" and not place.differences()
    return f"{'clear error' if right else 'wrong advice'}: {message}"


def prediction_after_damage(place: Place, name: str, kind: str) -> str:
    """What `predict` says of a model that was copied elsewhere, one file of which is damaged."""
    place.renew()
    place.harm(name, kind)
    shipped = place.copy.parent / "shipped"
    shutil.rmtree(shipped, ignore_errors=True)
    (place.copy / "run" / "model").rename(shipped)
    outcome = run(["predict", str(shipped), TEXT])
    if outcome.kind == "done":
        return "harmless" if outcome.output == place.answer else f"silent: {outcome.output}"
    if outcome.kind != "error" or str(shipped) not in outcome.output.replace("\n", ""):
        return f"{outcome.kind}: {outcome.output[-300:]}"
    return f"clear error: {' '.join(outcome.output.split())}"


def _options() -> Any:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--work", type=Path, required=True, help="folder for the runs; it is emptied"
    )
    parser.add_argument("--only", default="", help="damage files with this in their names")
    parser.add_argument(
        "--kinds", type=some_of(list(HARMS)), default=list(HARMS), help=f"some of {','.join(HARMS)}"
    )
    parser.add_argument(
        "--together",
        action="store_true",
        help="damage one file of each folder at a time, each file once",
    )
    parser.add_argument(
        "--trainings", type=int, default=1, help="of stage 1, each fine-tuned twice"
    )
    parser.add_argument(
        "--without-checksums", action="store_true", help="take the checksums out first"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
