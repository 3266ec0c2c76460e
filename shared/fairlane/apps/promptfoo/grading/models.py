"""Finds the models that judge and embed for an assertion, and its rubric prompt."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairlane.apps.promptfoo.grading.graders import EMBEDS
from fairlane.apps.promptfoo.reading.case import WrittenAssertion
from fairlane.apps.promptfoo.reading.places import DATA, FILE, Place, is_number
from fairlane.apps.promptfoo.reading.providers import Provider, Providers

SIMILAR_ENOUGH = 0.75
"""The threshold of promptfoo's ``similar`` where it names none."""

_LISTS = frozenset(("context-faithfulness", "g-eval"))


@dataclass(frozen=True, slots=True)
class Graders:
    """Finds models that grade. ``judge_model`` and ``embedding_model`` are the defaults."""

    providers: Providers
    judge_model: Provider | None
    embedding_model: Provider | None

    def read(self, one: WrittenAssertion) -> dict[str, Any]:
        """What a grader needs beside its assertion: models, rubric prompt, points."""
        found: dict[str, Any] = {}
        compares = one.name in ("similar", "similar:cosine")
        if not compares:
            found["judge"] = _described(self.judge(one))
        if one.name in EMBEDS:
            found["embedder"] = _described(self.embedder(one))
        own = one.raw.get("rubricPrompt", one.options.get("rubricPrompt"))
        if own is not None and not compares:
            where = one.place if "rubricPrompt" in one.raw else one.test / "options"
            found["rubricPrompt"] = self._rubric_prompt(own, one.name, where / "rubricPrompt")
        if one.name.endswith("factuality") and (points := one.options.get("factuality")) is not None:
            if isinstance(points, Mapping) and all(map(is_number, points.values())):
                found["factuality"] = dict(points)
            else:
                (one.test / "options" / "factuality").refuse("these are numbers of points by category")
        return found

    def judge(self, one: WrittenAssertion) -> Provider | None:
        """The model that judges, or a problem and ``None``."""
        named, where = one.provider
        if isinstance(named, Mapping) and "id" not in named and {"text", "embedding"} & named.keys():
            named, where = named.get("text"), where / "text"
        if named is not None:
            return self.providers.one(named, where)
        if self.judge_model is None:
            remedy = "name one in defaultTest.options.provider, or give --judge-model <connection>:<model>"
            one.place.refuse(f"this needs a model that judges: {remedy}")
        return self.judge_model

    def embedder(self, one: WrittenAssertion) -> Provider | None:
        """The model that makes embeddings, or a problem and ``None``."""
        named, where = one.provider
        if isinstance(named, Mapping) and "id" not in named:
            named, where = named.get("embedding"), where / "embedding"
        if self.embedding_model is not None and not _embeds(named):
            return self.embedding_model
        if named is None:
            remedy = (
                "name it as its provider, like openai:embedding:text-embedding-3-small, or give "
                "--embedding-model <connection>:<model>"
            )
            one.place.refuse(f"this needs a model that makes embeddings: {remedy}")
            return None
        return self.providers.one(named, where, embeds=True)

    def _rubric_prompt(self, own: Any, name: str, place: Place) -> Any:
        """A configuration's rubric prompt: a template, or several where a grader asks twice."""
        if isinstance(own, str) and own.startswith(FILE):
            path = place.find(own)
            if path is None:
                return None
            own = place.data(path) if path.suffix in DATA else place.text(path)
        if isinstance(own, str):
            return own
        if name in _LISTS and isinstance(own, list | Mapping):
            return own
        if isinstance(own, list | Mapping):
            return json.dumps(own, ensure_ascii=False)
        place.refuse("a rubricPrompt is a text, or a chat")
        return None


def _described(provider: Provider | None) -> dict[str, Any] | None:
    return None if provider is None else {"model": provider.model, "params": dict(provider.params)}


def _embeds(named: Any) -> bool:
    """Whether a provider's id is one of embeddings."""
    identity = named.get("id") if isinstance(named, Mapping) else named
    return isinstance(identity, str) and ":embedding" in identity
