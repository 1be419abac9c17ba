"""Does a command line of the docs work? Verbs, options and recipe keys by the real command line;
others by a short list of forms.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path

import typer
from typer.main import get_command

from tasklm.cli.app import app
from tasklm.cli.options import files_and_options, overrides_of
from tasklm.errors import TaskLMError
from tasklm.pipeline.opening import check_names
from tasklm.pipeline.selection import check_settings
from tasklm.recipe.toml import load
from tests.docs.blocks import ROOT, Command

CLI = get_command(app)
UsageError = typer.BadParameter.__base__
LEFT_OUT = "…"  # stands for arguments that a page does not repeat


class WrongCommand(AssertionError):
    """A command of the docs that would not work."""


def check(command: Command) -> None:
    """Raises WrongCommand where a command is not right."""
    words = [
        word for word in command.words if not re.fullmatch(r"[A-Z_]+=.*", word)
    ]  # settings of the environment
    if any(word in ("<", ">", ">>") for word in words):
        words = words[: min(words.index(sign) for sign in ("<", ">", ">>") if sign in words)]
    if not words:
        return
    known = FORMS.get(words[0])
    if known is None:
        raise WrongCommand(
            f"{command.block.name}: {words[0]!r} is none of the known commands: {', '.join(FORMS)}"
        )
    try:
        known(words[1:])
    except (UsageError, TaskLMError) as error:
        said = error.format_message() if hasattr(error, "format_message") else str(error)
        raise WrongCommand(f"{command.block.name}: {' '.join(command.words)}\n{said}") from None
    except WrongCommand as error:
        raise WrongCommand(f"{command.block.name}: {' '.join(command.words)}\n{error}") from None


def tasklm(words: Sequence[str]) -> None:
    """Parses the words after `tasklm`, without running anything."""
    if not words or words[0] not in CLI.commands:
        if list(words) in (["--help"], ["--version"]):
            return
        raise WrongCommand(f"there is no verb {words[:1]}; there are {', '.join(CLI.commands)}")
    verb, given = CLI.commands[words[0]], [word for word in words[1:] if word != LEFT_OUT]
    if "--help" in given:
        return
    if LEFT_OUT in words:
        given = ["x"] * sum(
            param.required and param.param_type_name == "argument" for param in verb.params
        ) + given
    context = verb.make_context(verb.name, given)
    if not verb.context_settings.get("allow_extra_args"):
        return
    start = context.params.get("recipe")
    recipe = ROOT / start if start and Path(start).parts[0] == "recipes" else None
    if recipe is not None and not recipe.exists():
        raise WrongCommand(f"there is no {start}")
    # verbs that take several files read the recipe's keys from among them
    several = [value for value in context.params.values() if isinstance(value, list | tuple)]
    among = [files_and_options([str(word) for word in words])[1] for words in several]
    found = load(recipe, overrides_of([*context.args, *chain.from_iterable(among)]))
    check_names(found)
    check_settings(found.select)


def _make(words: Sequence[str]) -> None:
    targets = re.findall(
        r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    _all_in([word for word in words if "=" not in word], targets, "target of the Makefile")


def _pip(words: Sequence[str]) -> None:
    if not words or words[0] != "install":
        raise WrongCommand("of pip only install is known")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]
    for word in words[1:]:
        match = re.fullmatch(r"(?:tasklm|\.)(?:\[([\w,-]+)\])?", word)
        if match and match[1]:
            _all_in(match[1].split(","), list(extras), "extra of pyproject.toml")
        elif not match and not word.startswith("-"):
            raise WrongCommand(
                f"{word}: only tasklm is installed, as tasklm or '.', with its extras"
            )


def _python(words: Sequence[str]) -> None:
    if words[:2] == ["-m", "tasklm"]:
        tasklm(words[2:])
    elif words[:2] == ["-m", "pip"]:
        _pip(words[2:])
    elif words[:2] not in (["-m", "venv"], ["-m", "http.server"], ["-m", "pytest"]):
        if not words or not (ROOT / words[0]).is_file():
            raise WrongCommand(f"there is no script {' '.join(words[:1])}")
        source = "\n".join(
            path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks").rglob("*.py")
        )
        known = set(re.findall(r"\"(--[a-z0-9-]+)\"", source))
        _all_in(
            [word.partition("=")[0] for word in words[1:] if word.startswith("--")],
            sorted(known),
            "option of the benchmarks",
        )


def _torchrun(words: Sequence[str]) -> None:
    if "-m" not in words or words[words.index("-m") + 1 :][:1] != ["tasklm"]:
        raise WrongCommand("torchrun starts tasklm: torchrun … -m tasklm …")
    tasklm(words[words.index("-m") + 2 :])


def _unshare(words: Sequence[str]) -> None:
    if "tasklm" not in words:
        raise WrongCommand("unshare starts tasklm: unshare … tasklm …")
    tasklm(words[words.index("tasklm") + 1 :])


def _curl(words: Sequence[str]) -> None:
    addresses = [word for word in words if re.match(r"https?://|[\w.]+:\d+", word)]
    if not addresses or not all(
        re.match(r"(https?://)?(127\.0\.0\.1|localhost)[:/]", address) for address in addresses
    ):
        raise WrongCommand("curl asks a server of one's own, at 127.0.0.1 or localhost")


def _all_in(words: Sequence[str], known: Sequence[str], what: str) -> None:
    for word in words:
        if word not in known and word != LEFT_OUT:
            raise WrongCommand(f"{word!r} is no {what}; there are {', '.join(known)}")


def _any(_: Sequence[str]) -> None:
    """Takes what other programs do with their words."""


FORMS: dict[str, Callable[[Sequence[str]], None]] = {
    "tasklm": tasklm,
    ".venv/bin/tasklm": tasklm,
    "torchrun": _torchrun,
    "python": _python,
    "python3": _python,
    "make": _make,
    "pip": _pip,
    "curl": _curl,
    "unshare": _unshare,
    "git": _any,
    "cd": _any,
    "hf": _any,
    "tensorboard": _any,
    "source": _any,
    "cat": _any,
    "head": _any,
    "printf": _any,
    "openssl": _any,
    "mkdir": _any,
    "docker": _any,
    "ssh": _any,
    "echo": _any,
}
