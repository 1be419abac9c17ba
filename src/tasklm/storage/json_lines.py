"""Results as lines of JSON, which any program can read."""

from __future__ import annotations

import json
import sys
from typing import Any

from tasklm.errors import RunError


def json_line(value: Any, to_file: bool = False) -> str:
    """A value as one line of JSON; NaN and infinity, which JSON does not have, raise RunError.

    Characters that standard output cannot show are escaped; a file has them as they are.
    """
    utf8 = to_file or str(getattr(sys.stdout, "encoding", "")).lower().replace("-", "") == "utf8"
    try:
        return json.dumps(value, ensure_ascii=not utf8, allow_nan=False)
    except ValueError:
        raise RunError(
            "the result contains numbers that are not finite. Train the model again."
        ) from None
