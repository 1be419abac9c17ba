"""What a terminal of a given width, a pipe, and one without colours show."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from tasklm.console import progress, terminal
from tasklm.console.progress import Bar
from tasklm.console.terminal import ProgressLine, Screen, progress_text, say, say_command

LONG = (
    "339 of 1,519 examples of train repeat an earlier one with "
    "the same label: delete them, unless they are meant to weigh more"
)
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def console(width: int = 80, tty: bool = True, **more: Any) -> tuple[Console, io.StringIO]:
    file = io.StringIO()
    return Console(file=file, force_terminal=tty, width=width, _environ={}, **more), file


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


@pytest.mark.parametrize("width", [80, 60, 40])
def test_lines_are_wrapped_between_words_and_stand_below_their_text(width: int) -> None:
    out, file = console(width)
    say(out, LONG, "warning", "yellow")
    lines = [line.rstrip() for line in plain(file.getvalue()).splitlines()]
    assert max(map(len, lines)) <= width and len(lines) > 1
    assert lines[0].startswith("warning   339 of") and all(
        line.startswith(" " * 10) for line in lines[1:]
    )
    assert " ".join(line[10:] for line in lines).split() == LONG.split()


def test_a_long_label_is_not_cut() -> None:
    out, file = console(80)
    say(out, LONG, "stage 1, training 2")
    lines = [line.rstrip() for line in plain(file.getvalue()).splitlines()]
    assert lines[0].startswith("stage 1, training 2  339 of") and max(map(len, lines)) <= 80


def test_a_word_that_is_longer_than_the_line_is_broken() -> None:
    out, file = console(40)
    say(out, "a" * 100)
    assert "".join(plain(file.getvalue()).split()) == "a" * 100


def test_a_pipe_gets_one_plain_line_for_each_message() -> None:
    out, file = console(40, tty=False)
    say(out, LONG, "warning", "yellow")
    say(out, "[bold] is no markup")
    say_command(
        out, "tasklm predict runs/first/model 'a text that is longer than forty columns'", "next"
    )
    assert file.getvalue().splitlines() == [
        f"warning: {LONG}",
        "[bold] is no markup",
        "next: tasklm predict runs/first/model 'a text that is longer than forty columns'",
    ]


def test_a_command_can_be_copied_whole() -> None:
    out, file = console(40)
    command = "tasklm predict runs/first/model " + "x" * 40
    say_command(out, command, "next")
    assert plain(file.getvalue()) == f"next      {command}\n"


def test_without_colours_there_are_none() -> None:
    for environment, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        file = io.StringIO()
        say(
            Console(file=file, force_terminal=True, color_system="standard", _environ=environment),
            LONG,
            "warning",
            "yellow",
        )
        assert bool(re.search(r"\x1b\[[0-9;]*3[0-9]m", file.getvalue())) == coloured


def steady(
    total: float | None = 400, title: str = "stage 2, seed 1", note: str = "best dev 46.2"
) -> Bar:
    """A bar that is at 43 %, with about four minutes to go."""
    bar, now = Bar(title, total), [0.0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress.time, "monotonic", lambda: now[0])
        for _ in range(172):
            now[0] += 1
            bar.advance(1, note)
    return bar


def drawn(bars: list[Bar], width: int) -> str:
    out, file = console(width)
    out.print(ProgressLine(bars))
    return plain(file.getvalue()).rstrip()


def test_a_bar_has_its_share_the_time_left_and_one_number_on_one_line() -> None:
    assert progress_text(steady()) == "stage 2, seed 1: 43%, about 4 min left, best dev 46.2"
    wide = drawn([steady()], 80)
    assert (
        re.fullmatch(r"stage 2, seed 1  [━╸╺]{20,}   43%  about 4 min left  best dev 46\.2", wide)
        and len(wide) <= 80
    )
    assert drawn([steady()], 60) == "stage 2, seed 1   43%  about 4 min left  best dev 46.2"
    assert drawn([steady()], 40) == "stage 2, seed 1   43%  about 4 min left"
    assert drawn([steady(title="a very long title of some work")], 24) == "a very long title of so…"


def test_before_the_pace_is_known_no_time_is_said() -> None:
    bar = Bar("stage 1", 400)
    bar.at(1, "compiling")
    assert progress_text(bar) == "stage 1: 0%, compiling"
    assert "left" not in drawn([bar], 80)
    assert (
        drawn([Bar("fitting the baselines")], 80) == "fitting the baselines  0 s"
    )  # of unknown size: the time so far


def test_of_nested_work_the_innermost_is_shown_alone() -> None:
    assert "search" in drawn([steady(title="selecting"), steady(title="search")], 80)
    assert "selecting" not in drawn([steady(title="selecting"), steady(title="search")], 80)
    out, file = console()
    screen = Screen(out)
    with screen.showing(Bar("selecting")), screen.showing(Bar("search", 10)):
        pass
    with screen.showing(Bar("next")):
        pass
    assert plain(file.getvalue()).count("next") >= 1  # the line of the first was ended


def test_a_pipe_gets_progress_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    for module in (progress, terminal):
        monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    out, file = console(tty=False)
    bar = Bar("stage 1", 1000)
    with Screen(out).showing(bar):
        bar.at(600)  # an earlier process came so far
        for second in range(1, 101):
            now[0] = 100.0 + second
            bar.at(600 + second, f"loss {second / 100:.2f}")
    assert file.getvalue().splitlines() == [
        "stage 1: 63%, about 6 min left, loss 0.30",
        "stage 1: 66%, about 6 min left, loss 0.60",
        "stage 1: 69%, about 5 min left, loss 0.90",
    ]
    assert not CONTROL.search(file.getvalue())
