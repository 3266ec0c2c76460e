"""Reads the data of ``mlflow.genai.evaluate``, and makes rows for Fairlane."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fairlane.core.errors import SubmissionError

OUTPUT = "outputs"
"""The field of a row with the output to score."""

_REMEDY = 'Give {"inputs": {…}, "outputs": …, "expectations": {…}}; the last two may be left out.'


@dataclass(frozen=True, slots=True)
class Example:
    """One case: its inputs, its output (``None``: none yet), and its expectations."""

    inputs: Mapping[str, Any]
    outputs: Any = None
    expectations: Mapping[str, Any] | None = None

    @property
    def key(self) -> str:
        """Equal for equal cases, which have the same scores."""
        return key_of(self.inputs, self.outputs, self.expectations)

    def row(self) -> dict[str, Any]:
        """Its row for evaluators: inputs, expectations, and the output as text."""
        text = self.outputs if isinstance(self.outputs, str) else json.dumps(self.outputs, ensure_ascii=False)
        return {**self.inputs, **(self.expectations or {}), OUTPUT: text}

    def as_data(self) -> dict[str, Any]:
        """The case in MLflow's form."""
        expected = {} if self.expectations is None else {"expectations": dict(self.expectations)}
        return {"inputs": dict(self.inputs), "outputs": self.outputs, **expected}


def read_examples(data: Any) -> list[Example]:
    """The cases of a list of dicts, a data frame, or an object with ``to_df()``, such as MLflow's datasets.

    Raises `SubmissionError` that names the case.
    """
    if hasattr(data, "to_df"):
        data = data.to_df()
    if hasattr(data, "to_dict") and not isinstance(data, Mapping):
        data = data.to_dict("records")
    if isinstance(data, str | Mapping) or not isinstance(data, Iterable):
        raise SubmissionError("data", data, "is no list of examples", _REMEDY)
    examples = [_example(number, each) for number, each in enumerate(data)]
    if not examples:
        raise SubmissionError("data", data, "holds no example", _REMEDY)
    return examples


def check_outputs(examples: Iterable[Example]) -> None:
    """Raises `SubmissionError` for the first case without an output."""
    for number, example in enumerate(examples):
        if example.outputs is None:
            remedy = "Give outputs, or a predict_fn that makes them."
            raise SubmissionError(f"data[{number}].outputs", None, "is missing", remedy)


def key_of(inputs: Any, outputs: Any, expectations: Any) -> str:
    """See `Example.key`."""
    return json.dumps([inputs, outputs, expectations or {}], sort_keys=True, default=str)


def _example(number: int, given: Any) -> Example:
    inputs = given.get("inputs") if isinstance(given, Mapping) else None
    if not isinstance(inputs, Mapping):
        raise SubmissionError(f"data[{number}].inputs", inputs, "is no dict", _REMEDY)
    expected, outputs = given.get("expectations"), given.get("outputs")
    if isinstance(outputs, float) and math.isnan(outputs):  # a frame's gap
        outputs = None
    return Example(inputs, outputs, expected if isinstance(expected, Mapping) and expected else None)
