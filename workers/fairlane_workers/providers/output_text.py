"""What a provider has made, in whatever JSON it comes, as the text that an answer is."""

from __future__ import annotations

import json
from typing import Any


def output_text(value: Any) -> str | None:
    """A text as it is, a list of texts joined, anything else as JSON; ``None`` where there is nothing."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(piece, str) for piece in value):
        return "".join(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
