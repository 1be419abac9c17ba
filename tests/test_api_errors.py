"""What tasklm raises to the people who use it is a TaskLMError; every other `raise` is in a list
that says why it never reaches them.
"""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from pathlib import Path

import tasklm
from tasklm import errors

PACKAGE = Path(tasklm.__file__).parent
BUILTIN = {
    name
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException)
}

_CAUGHT = "caught where it is called, and told as a TaskLMError"
_CALLER = "a mistake in the code that calls it, which no data and no setting can cause"
_PROTOCOL = "Python's protocol asks for this one"
ALLOWED = {
    ("__init__.py", "AttributeError"): _PROTOCOL,
    ("report/inline_svg.py", "ValueError"): _CALLER,  # a drawing of our own with other elements
    ("corpus/arrow_rows.py", "ValueError"): _CAUGHT,
    ("contestants/parts/bags.py", "NotImplementedError"): _CALLER,
    ("contestants/parts/sentence_model.py", "NotImplementedError"): _CALLER,
    ("corpus/portions.py", "ValueError"): _CAUGHT,  # damage_is_clear
    ("coverage/calibration.py", "ValueError"): _CAUGHT,  # damage_is_clear
    ("coverage/known_words.py", "ValueError"): _CAUGHT,  # damage_is_clear
    ("corpus/parquet_pages.py", "ValueError"): _CAUGHT,  # parquet_values
    ("corpus/store.py", "IndexError"): _CALLER,
    ("encoders/base.py", "ValueError"): _CAUGHT,  # damage_is_clear, and read_checkpoint
    ("encoders/checkpoints/hub_configs.py", "ValueError"): _CAUGHT,  # read_checkpoint
    ("encoders/checkpoints/weight_files.py", "ValueError"): _CAUGHT,  # damage_is_clear
    ("encoders/checkpoints/weight_shapes.py", "ValueError"): _CAUGHT,  # damage_is_clear
    ("models/numpy_encoders.py", "ValueError"): _CAUGHT,  # damage_is_clear
    ("models/numpy_networks.py", "ValueError"): _CAUGHT,  # damage_is_clear
    ("evaluate/confusion.py", "ValueError"): _CALLER,
    ("evaluate/intervals.py", "ValueError"): _CALLER,
    ("storage/checksums.py", "ValueError"): _CAUGHT,  # damage_is_clear
    ("export/onnx_model.py", "ValueError"): _CAUGHT,
    (
        "recipe/parsing.py",
        "ValueError",
    ): _CAUGHT,  # from_dict gathers all problems into one RecipeError
    ("registry.py", "ValueError"): _CALLER,  # two plug-ins under one name
    ("storage/safe_reading.py", "IsADirectoryError"): _CAUGHT,
    ("storage/safe_reading.py", "OSError"): _CAUGHT,
    ("storage/safe_reading.py", "ValueError"): _CAUGHT,
    ("select/balanced.py", "ValueError"): _CALLER,
    ("corpus/spark/fetched.py", "IndexError"): _CALLER,
    ("select/checks.py", "ValueError"): _CALLER,
    ("select/influence.py", "ValueError"): _CALLER,
    (
        "select/near_duplicates.py",
        "ValueError",
    ): _CALLER,  # the recipe keeps the threshold between 0 and 1
    ("tasks/classify.py", "ValueError"): _CAUGHT,  # damage_is_clear
    ("tasks/regress.py", "ValueError"): _CAUGHT,  # damage_is_clear
    ("tasks/saved.py", "ValueError"): _CAUGHT,  # damage_is_clear
    ("tasks/translate.py", "ValueError"): _CAUGHT,  # damage_is_clear
    ("tasks/several.py", "ValueError"): _CAUGHT,  # damage_is_clear
    ("tasks/baselines/wide_parts.py", "ValueError"): _CAUGHT,  # damage_is_clear
    ("tasks/metrics.py", "ValueError"): _CAUGHT,  # TaskLM.score looks at labels first
    ("tasks/readers/squad.py", "TypeError"): _CAUGHT,  # read as a file that has not SQuAD's layout
    ("tasks/heads/trees.py", "ValueError"): _CALLER,
    ("tasks/baselines/answer_features.py", "ValueError"): _CAUGHT,  # damage_is_clear
    ("tasks/baselines/text_vectors.py", "ValueError"): _CAUGHT,  # damage_is_clear
    ("tasks/baselines/wide.py", "ValueError"): _CAUGHT,  # damage_is_clear
    ("tokens/tokenizer.py", "TypeError"): _CAUGHT,
    ("tokens/tokenizer_checks.py", "ValueError"): _CAUGHT,  # Vocabulary.load
    (
        "influence/gradients.py",
        "TypeError",
    ): _CALLER,  # an encoder of somebody's own with other layers
    ("device/machine.py", "RuntimeError"): _CAUGHT,
    ("models/answering.py", "ValueError"): _CAUGHT,  # damage_is_clear
    ("images/model.py", "ValueError"): _CAUGHT,  # damage_is_clear
    ("images/network.py", "ValueError"): _CAUGHT,  # damage_is_clear
    ("models/linear_model.py", "ValueError"): _CAUGHT,  # damage_is_clear
    ("models/saved_model.py", "ValueError"): _CAUGHT,  # damage_is_clear
    ("serve/served_tasks.py", "AssertionError"): _CALLER,  # gives_sets is asked first
    ("models/language_model.py", "ValueError"): _CAUGHT,  # damage_is_clear
    ("models/task_model.py", "ValueError"): _CAUGHT,  # damage_is_clear
    ("train/optim/schedules.py", "ValueError"): _CALLER,
    ("train/start.py", "ValueError"): _CAUGHT,  # damage_is_clear
}


OTHER_FAMILIES = {  # file and class of an exception that is not of the family → who catches it
    ("cli/last_resort.py", "EndedTooEarly"): "the command line, which tells it in words",
    ("serve/batching.py", "QueueFull"): "the service, which answers with 503",
    ("serve/explainer.py", "TooSlow"): "the service, which answers with 503",
    ("serve/limits.py", "Refused"): "the service, which answers with its status and reason",
}


def raised(source: str) -> list[str]:
    """The names of the builtin exceptions that a file raises."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise) and node.exc is not None:
            name = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            if isinstance(name, ast.Name) and name.id in BUILTIN:
                found.append(name.id)
    return found


def test_builtin_exceptions_are_raised_only_where_the_list_says_why() -> None:
    found: Counter[tuple[str, str]] = Counter()
    for path in sorted(PACKAGE.rglob("*.py")):
        for name in raised(path.read_text(encoding="utf-8")):
            found[(path.relative_to(PACKAGE).as_posix(), name)] += 1
    new = sorted(set(found) - set(ALLOWED))
    assert not new, (
        f"raise a TaskLMError that says the remedy, or add to ALLOWED why nobody sees it: {new}"
    )
    assert not set(ALLOWED) - set(found), f"no longer raised: {sorted(set(ALLOWED) - set(found))}"


def test_the_search_finds_raises() -> None:
    assert raised("def f():\n    raise ValueError('x')\n") == ["ValueError"]
    assert raised("try:\n    pass\nexcept OSError:\n    raise KeyError from None\n") == ["KeyError"]
    assert raised("raise DataError('x', remedy='y')\nraise\n") == []


def test_all_classes_of_errors_are_of_one_family_and_exported() -> None:
    family = [
        value
        for value in vars(errors).values()
        if isinstance(value, type) and issubclass(value, Exception)
    ]
    assert len(family) >= 5
    for cls in family:
        assert issubclass(cls, tasklm.TaskLMError)
        assert getattr(tasklm, cls.__name__) is cls and cls.__name__ in tasklm.__all__
    others = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and BUILTIN & {
                base.id for base in node.bases if isinstance(base, ast.Name)
            }:
                others.add((path.relative_to(PACKAGE).as_posix(), node.name))
    assert others - {("errors.py", "TaskLMError")} == set(OTHER_FAMILIES), (
        "derive it from TaskLMError, or say in OTHER_FAMILIES who catches it"
    )
