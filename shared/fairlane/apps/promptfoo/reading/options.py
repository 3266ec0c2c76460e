"""``evaluateOptions`` as arguments of ``submit``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

from fairlane.apps.promptfoo.reading.places import Place, is_number, names
from fairlane.client.submitting.options import SubmitOptions

_IGNORED = names(
    "showProgressBar generateSuggestions silent verbose table tableCellMaxLength progressBar share write",
    "output grader",
)

_FILTERS: Mapping[str, tuple[str, type]] = {
    "filterRange": ("range", str),
    "filterSample": ("sample", int),
    "filterSampleSeed": ("seed", int),
}
"""Options that choose tests, as fields of `Filters`; the command line overrides them."""


_WHOLE = {"maxConcurrency": "max_concurrent", "repeat": "repetitions"}
_MILLISECONDS = {"delay": "delay", "timeoutMs": "timeout", "maxEvalTimeMs": "max_duration"}
"""Options that are numbers, as arguments of ``submit``, which takes seconds."""


def read_options(config: Mapping[str, Any], place: Place) -> tuple[SubmitOptions, dict[str, Any]]:
    """The options of the runs, and filters; ``evaluateOptions`` override ``commandLineOptions``. With a
    ``delay`` calls go one at a time, as in promptfoo. The cache is off by default.
    """
    found, chosen = dict[str, Any](), dict[str, Any]()
    for section in ("commandLineOptions", "evaluateOptions"):
        raw = config.get(section) or {}
        if not isinstance(raw, Mapping):
            (place / section).refuse("this is no object")
            continue
        for name, value in raw.items():
            if name in _FILTERS:
                _choose(chosen, name, value, place / section / name)
            else:
                _take(found, name, value, place / section / name)
    if found.get("delay"):
        found["max_concurrent"] = 1
        place.note("delay: calls go one at a time, as in promptfoo; --max-concurrent lifts that")
    return cast(SubmitOptions, found), chosen


def _choose(chosen: dict[str, Any], name: str, value: Any, place: Place) -> None:
    field, kind = _FILTERS[name]
    if isinstance(value, bool) or not isinstance(value, kind):
        place.refuse(f"{name} is {'a text like 0:10' if kind is str else 'a whole number'}")
    else:
        chosen.setdefault(field, value)


def _take(found: dict[str, Any], name: str, value: Any, place: Place) -> None:
    if name in _IGNORED:
        place.note(f"{name} is left out")
    elif name == "cache":
        found["cache"] = "read_write" if value else "off"
    elif name not in _WHOLE | _MILLISECONDS:
        place.refuse(f"the option {name} is not supported")
    elif not is_number(value) or not 0 <= value < math.inf:
        place.refuse(f"{name} is a number")
    elif name in _MILLISECONDS:
        if value or name == "delay":
            found[_MILLISECONDS[name]] = value / 1000
    elif int(value) != value or value < 1:
        place.refuse(f"{name} is a whole number, 1 at least")
    else:
        found[_WHOLE[name]] = int(value)
