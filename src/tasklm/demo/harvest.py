"""Documentation text out of installed packages, read from their files and never imported."""

import ast
import inspect
import re
import sysconfig
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from tasklm.errors import RunError

# tasklm's own dependencies and theirs, by name: whatever else is installed must not change the
# demo.
DISTRIBUTIONS = (
    "click",
    "filelock",
    "fsspec",
    "huggingface-hub",
    "jinja2",
    "joblib",
    "llvmlite",
    "markdown-it-py",
    "mpmath",
    "networkx",
    "numba",
    "numpy",
    "packaging",
    "pyarrow",
    "pygments",
    "pyyaml",
    "rich",
    "safetensors",
    "scikit-learn",
    "scipy",
    "sympy",
    "threadpoolctl",
    "tokenizers",
    "torch",
    "tqdm",
    "typer",
    "typing-extensions",
)
_PYTHON = {".py", ".pyi"}
_CYTHON = {".pyx", ".pxi"}
_HEADERS = {".h", ".hpp", ".cuh"}
_PROSE = {".md", ".rst", ".txt"}
_SKIPPED_FOLDERS = {
    "test",
    "tests",
    "testing",
    "idlelib",
    "lib2to3",
    "site-packages",
    "__pycache__",
}
_LARGEST = 2_000_000  # bytes; what is larger is a generated table, not documentation
_PYTHON_COMMENT = re.compile(r"(?:^[ \t]*#[^\n]*\n)+", re.M)
_C_COMMENT = re.compile(r"/\*.*?\*/|(?:^[ \t]*//[^\n]*\n)+", re.S | re.M)
_TRIPLE_QUOTED = re.compile(r'"""(.*?)"""', re.S)
_NESTING = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.If | ast.Try | ast.With
_RULE = re.compile(r"[-=~^*#_+ |]{3,}")


@dataclass(frozen=True)
class Document:
    """One documentation text and the file, relative to its installation root, that it stands in."""

    source: str
    text: str


def versions() -> dict[str, str]:
    """Return the installed version of every distribution that is read; raise if one is missing."""
    installed: dict[str, str] = {}
    for name in DISTRIBUTIONS:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            raise RunError(
                f"the demo reads the documentation of "
                f"{name!r}, which tasklm needs but is not installed: "
                f"run `pip install {name}` (or reinstall tasklm) and try again"
            ) from None
    return installed


def documents() -> Iterator[Document]:
    """Yield the documentation texts of the listed distributions and the standard library, in fixed
    order.
    """
    versions()
    for name in DISTRIBUTIONS:
        for path in sorted(metadata.files(name) or [], key=str):
            if ".." not in path.parts:  # console scripts and shared files outside site-packages
                yield from _read(Path(str(path.locate())), path.as_posix())
    root = Path(sysconfig.get_paths()["stdlib"])
    for file in sorted(root.rglob("*.py")):
        yield from _read(file, "python/" + file.relative_to(root).as_posix())


def passages(text: str, longest: int = 60) -> Iterator[str]:
    """Yield the paragraphs and list entries of a text, in pieces of at most `longest` words, at
    least 6.
    """
    for block in _blocks(text):
        words = block.split()
        for start in range(0, len(words), longest):
            piece = words[start : start + longest]
            if len(piece) >= 6:
                yield " ".join(piece)


def words(text: str) -> list[str]:
    """Return the lower-case words of a text, the unit of every comparison between texts."""
    return re.findall(r"\w+", text.lower())


def _read(file: Path, source: str) -> Iterator[Document]:
    kind = file.suffix
    if kind not in _PYTHON | _CYTHON | _HEADERS | _PROSE and file.name != "METADATA":
        return
    if (
        _SKIPPED_FOLDERS & set(source.split("/"))
        or not file.is_file()
        or file.stat().st_size > _LARGEST
    ):
        return
    content = file.read_text(encoding="utf-8", errors="replace")
    if kind in _PYTHON:
        texts = [*_python_strings(content), *_comments(content, _PYTHON_COMMENT, r"^[ \t]*#+:? ?")]
    elif kind in _CYTHON:
        texts = [inspect.cleandoc(match[1]) for match in _TRIPLE_QUOTED.finditer(content)]
    elif kind in _HEADERS:
        texts = list(_comments(content, _C_COMMENT, r"^[ \t]*(?://+[!/<]*|/?\*+/?) ?"))
    else:
        texts = [content]
    for text in texts:
        if len(text) > 40:
            yield Document(source, text)


def _python_strings(content: str) -> Iterator[str]:
    """Docstrings, and the long strings that modules such as numpy's
    `_add_newdocs` hand to calls.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's files
            tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return
    for value in _values(tree.body):
        for node in ast.walk(value):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and len(text) > 60 and text.count(" ") > 8:
                yield inspect.cleandoc(text)


def _values(body: list[ast.stmt]) -> Iterator[ast.expr]:
    """Yield the expressions that can hold documentation; walking every node
    would double the time.
    """
    for statement in body:
        if isinstance(statement, ast.Expr | ast.Assign):
            if isinstance(statement, ast.Expr) or isinstance(
                statement.value, ast.Constant | ast.Dict
            ):
                yield statement.value
        elif isinstance(statement, _NESTING):
            yield from _values(statement.body)


def _comments(content: str, block: re.Pattern[str], marker: str) -> Iterator[str]:
    lead = re.compile(marker, re.M)
    for match in block.finditer(content):
        yield inspect.cleandoc("\n" + lead.sub("", match[0]))


def _blocks(text: str) -> Iterator[str]:
    """Split at blank lines and rules, and where a line returns to the margin after a hanging
    indent.
    """
    lines: list[str] = []
    margin, hanging = 0, False
    for line in [*text.split("\n"), ""]:
        stripped = line.strip()
        indent = len(line) - len(line.lstrip())
        ends = not stripped or _RULE.fullmatch(stripped) is not None
        if lines and (ends or indent < margin or (indent == margin and hanging)):
            yield " ".join(lines)
            lines = []
        if ends:
            continue
        if not lines:
            margin, hanging = indent, False
        elif indent > margin:
            hanging = True
        lines.append(stripped)
