"""Which models judge and embed for an assertion, and with which words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairlane.apps.promptfoo.grading.graders import EMBEDS
from fairlane.apps.promptfoo.reading.places import DATA, FILE, Place
from fairlane.apps.promptfoo.reading.providers import Provider, Providers

SIMILAR_ENOUGH = 0.75
"""The threshold of promptfoo's ``similar`` where it names none."""

_LISTS = frozenset(("context-faithfulness", "g-eval"))


@dataclass(frozen=True, slots=True)
class Graders:
    """Finds models that grade. ``judge_model`` and ``embedding_model`` do where no provider is named."""

    providers: Providers
    judge_model: Provider | None
    embedding_model: Provider | None

    def read(
        self,
        name: str,
        raw: Mapping[str, Any],
        options: Mapping[str, Any],
        place: Place,
        test: Place,
    ) -> dict[str, Any]:
        """What a grader needs beside its assertion: its models, its words, its points."""
        found: dict[str, Any] = {}
        if name not in ("similar", "similar:cosine"):
            found["judge"] = _described(self.judge(raw.get("provider"), options, place, test))
        if name in EMBEDS:
            found["embedder"] = _described(self.embedder(raw.get("provider"), options, place, test))
        own = raw.get("rubricPrompt", options.get("rubricPrompt"))
        if own is not None and name not in ("similar", "similar:cosine"):
            where = place / "rubricPrompt" if "rubricPrompt" in raw else test / "options" / "rubricPrompt"
            found["rubricPrompt"] = self._words(own, name, where)
        if name.endswith("factuality") and isinstance(options.get("factuality"), Mapping):
            found["factuality"] = dict(options["factuality"])
        return found

    def judge(self, named: Any, options: Mapping[str, Any], place: Place, test: Place) -> Provider | None:
        """The model that judges, or a problem and ``None``."""
        named, where = _named(named, options, place, test)
        if isinstance(named, Mapping) and "id" not in named and {"text", "embedding"} & named.keys():
            named, where = named.get("text"), where / "text"
        if named is not None:
            return self.providers.one(named, where)
        if self.judge_model is None:
            remedy = "name one in defaultTest.options.provider, or give --judge-model <connection>:<model>"
            place.refuse(f"this needs a model that judges: {remedy}")
        return self.judge_model

    def embedder(self, named: Any, options: Mapping[str, Any], place: Place, test: Place) -> Provider | None:
        """The model that makes embeddings, or a problem and ``None``."""
        named, where = _named(named, options, place, test)
        if isinstance(named, Mapping) and "id" not in named:
            named, where = named.get("embedding"), where / "embedding"
        if self.embedding_model is not None and not _embeds(named):
            return self.embedding_model
        if named is None:
            remedy = (
                "name it as its provider, like openai:embedding:text-embedding-3-small, or give "
                "--embedding-model <connection>:<model>"
            )
            place.refuse(f"this needs a model that makes embeddings: {remedy}")
            return None
        return self.providers.one(named, where, embeds=True)

    def _words(self, own: Any, name: str, place: Place) -> Any:
        """The words of a configuration: a template, or several where a grader asks twice."""
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


def _named(own: Any, options: Mapping[str, Any], place: Place, test: Place) -> tuple[Any, Place]:
    """The provider of an assertion, else that of its test, and where it is written."""
    if own is None and options.get("provider") is not None:
        return options["provider"], test / "options" / "provider"
    return own, place / "provider"


def _described(provider: Provider | None) -> dict[str, Any] | None:
    return None if provider is None else {"model": provider.model, "params": dict(provider.params)}


def _embeds(named: Any) -> bool:
    """Whether a provider says that it makes embeddings."""
    identity = named.get("id") if isinstance(named, Mapping) else named
    return isinstance(identity, str) and ":embedding" in identity
