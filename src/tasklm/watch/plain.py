"""The state of a run as plain HTML, for browsers that run no scripts."""

from __future__ import annotations

import time
from typing import Any

from tasklm.report.page import Html, el, items, joined, table

STATUS = {
    "waiting": "No process has started here yet.",
    "running": "Running.",
    "finished": "Finished.",
    "stopped": "Stopped early; run the same command to continue.",
    "ended": "Completed up to the requested step; no report yet.",
}
MARKS = {"done": "done", "now": "now", "stopped": "stopped here", "next": "to come"}


def plain_page(state: dict[str, Any]) -> dict[str, str]:
    """The page without scripts: its title and its text."""
    parts: list[Html] = [
        el("h1", state["name"]),
        el("p", el("b", STATUS[state["status"]]), f" {state['spent']} so far."),
    ]
    if state["scores"]:
        parts += [el("p", state["scores"]["verdict"], class_="verdict"), _table(state["scores"])]
    if state["report"]:
        title = "report" if state["report"] == "new" else "report of the previous run"
        parts.append(el("p", el("a", title, href="report.html")))
    steps = [el("li", f"{step['name']}: {MARKS[step['state']]}") for step in state["flow"]]
    parts.append(el("ol", joined(steps)))
    if state["bars"]:
        parts.append(items(bar_text(bar) for bar in state["bars"]))
    if state["latest"]:
        latest = state["latest"].items()
        parts.append(items(f"{name.replace('_', ' ')}: {value:.4g}" for name, value in latest))
    if state["messages"]:
        messages = map(_message, state["messages"])
        parts += [el("h2", "Messages"), items(messages)]
    return {
        "title": el("title", f"{state['name']}: {state['status']}"),
        "plain": joined(parts, "\n"),
    }


def _message(message: dict[str, Any]) -> str:
    clock = time.strftime("%H:%M:%S", time.localtime(message["time"]))
    return f"{clock} {message['text']}"


def bar_text(bar: dict[str, Any]) -> str:
    """The progress of a piece of work, as text."""
    text = str(bar["title"])
    if bar["total"]:
        text += f": {min(1.0, bar['done'] / bar['total']):.0%}"
    if bar["about"]:
        text += f", {bar['about']}"
    if bar["note"]:
        text += f" ({bar['note']})"
    return text


def _table(scores: dict[str, Any]) -> Html:
    ours = [number for number, row in enumerate(scores["rows"]) if row["kind"] == "ours"]
    rows = [[row["name"], row["dev"], row["test"]] for row in scores["rows"]]
    return table([f"{scores['metric']} × 100", "dev", "test"], rows, strong=ours)
