"""Plans the runs of an evaluation: providers with equal parameters and prompts share one."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fairlane.apps.promptfoo.planning.asking import ask, written
from fairlane.apps.promptfoo.planning.rows import ASKED, PROMPT, REQUEST, STORE_AS
from fairlane.apps.promptfoo.reading.case import Case, fits
from fairlane.apps.promptfoo.reading.prompts import PromptText
from fairlane.apps.promptfoo.reading.providers import ANSWER, Provider
from fairlane.client.submitting.options import SubmitOptions
from fairlane.model.choices import CONVERSATION

MAX_MODELS, MAX_PROMPTS = 100, 100

MOST_ASKED = 20_000
"""Characters of a prompt that a row holds a second time, as assertions see it."""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run: providers that are called with the same parameters. ``labels`` are by model.

    ``prompts`` are the numbers of its prompts among those of the evaluation. ``rows`` are its own where
    each holds a whole request; ``None``: the evaluation's.
    """

    labels: Mapping[str, str]
    options: SubmitOptions
    providers: Mapping[str, Provider] = field(default_factory=dict)
    prompts: tuple[int, ...] = ()
    rows: Sequence[Mapping[str, Any]] | None = None

    @property
    def answers_here(self) -> bool:
        """Whether its one provider is not a model, so that this process makes the outputs."""
        return any(each.answers is not None for each in self.providers.values())


@dataclass(frozen=True, slots=True)
class Planner:
    """Plans runs. ``cases`` and ``names`` are the test and the variables of each row."""

    name: str
    common: SubmitOptions
    prompts: Sequence[PromptText]
    cases: Sequence[Case]
    names: Sequence[Mapping[str, Any]]
    rows: Sequence[Mapping[str, Any]]

    def runs(self, providers: Sequence[Provider]) -> Iterator[PlannedRun]:
        """A run for providers with the same parameters and prompts, unless they are the same model twice."""
        groups: list[tuple[str, list[Provider]]] = []
        for provider in providers:
            key = self._key(provider)
            for known, group in groups:
                if known == key and all(each.model != provider.model for each in group):
                    group.append(provider)
                    break
            else:
                groups.append((key, [provider]))
        for number, (_, group) in enumerate(groups, start=1):
            part = f" ({number} of {len(groups)})" if len(groups) > 1 else ""
            yield self._run(group, part)

    def _key(self, provider: Provider) -> str:
        parts = [dict(provider.params), provider.delay, provider.prompts, provider.instructions]
        parts.append(provider.label if provider.answers or self._is_made(provider) else None)
        return json.dumps(parts, sort_keys=True, default=str)

    def _is_made(self, provider: Provider) -> bool:
        """Whether this process renders requests: workers cannot, or not every row gets every prompt."""
        wanted = self._wanted(provider)
        return (
            any(provider.affixes)
            or any(self.prompts[number].made for number in wanted)
            or any(
                case.prompts is not None
                or case.only is not None
                or case.providers is not None
                or case.options.get("prefix")
                or case.options.get("suffix")
                for case in self.cases
            )
        )

    def _wanted(self, provider: Provider) -> tuple[int, ...]:
        return tuple(
            number
            for number, prompt in enumerate(self.prompts)
            if provider.prompts is None or any(fits(each, prompt.label) for each in provider.prompts)
        )

    def _run(self, group: Sequence[Provider], part: str) -> PlannedRun:
        first, wanted = group[0], self._wanted(group[0])
        labels = {each.model: each.label for each in group}
        known = {each.model: each for each in group}
        rows: list[Mapping[str, Any]] | None = None
        if first.answers is not None:
            rows = list(self._answered(first, wanted))
            return PlannedRun(labels, self._scored(part), known, wanted, rows)
        own: SubmitOptions = {
            **self.common,
            "models": [each.model for each in group],
            "params": dict(first.params),
        }
        if first.delay:
            own["delay"] = max(first.delay, self.common.get("delay", 0.0))
        if part:
            own["name"] = self._named(part)
        if not any(CONVERSATION in self.prompts[number].raw for number in wanted):
            own.pop("conversation", None)
        if self._is_made(first):
            own["request"] = REQUEST
            rows = list(self._requests(first, wanted))
        else:
            own["prompts"] = [_content(self.prompts[number], first.instructions) for number in wanted]
        return PlannedRun(labels, own, known, wanted, rows)

    def _named(self, part: str) -> str:
        return f"{self.name[:180]}{part}"

    def _scored(self, part: str) -> SubmitOptions:
        """The options of a run that scores outputs made here: no row waits for another."""
        own: SubmitOptions = {**self.common, "output": ANSWER}
        own.pop("run_serially", None)
        own.pop("conversation", None)
        own.pop("store_output_as", None)
        own.pop("delay", None)
        if own.get("repetitions", 1) > 1 and self.prompts:
            problem = "repeat is not supported with echo and programs: they answer once"
            self.prompts[0].place.refuse(problem)
        if part:
            own["name"] = self._named(part)
        return own

    def _asked(
        self, provider: Provider, wanted: Sequence[int]
    ) -> Iterator[tuple[Case, Mapping[str, Any], Mapping[str, Any], int]]:
        """Each case with its names, its row and the number of a prompt that the provider gets for it."""
        for case, names, row in zip(self.cases, self.names, self.rows, strict=True):
            for number in wanted:
                prompt = self.prompts[number]
                if not case.gets(prompt.label, (provider.label, provider.identity)):
                    continue
                if self._remembers(row, prompt):
                    return
                yield case, names, row, number

    def _answered(self, provider: Provider, wanted: Sequence[int]) -> Iterator[Mapping[str, Any]]:
        """The rows, with prompts, for a provider that answers in this process."""
        for case, names, row, number in self._asked(provider, wanted):
            if asked := written(self.prompts[number], provider, case, names):
                yield {**row, PROMPT: number, ASKED: asked[0]}

    def _remembers(self, row: Mapping[str, Any], prompt: PromptText) -> bool:
        """Whether a prompt reads earlier outputs, which is a problem where it is made before the run."""
        if not (row.get(STORE_AS) or CONVERSATION in prompt.raw):
            return False
        prompt.place.refuse(
            f"this prompt is made before the run, so that neither {CONVERSATION} nor "
            "storeOutputAs can be used: write each message, with texts alone"
        )
        return True

    def _requests(self, provider: Provider, wanted: Sequence[int]) -> Iterator[Mapping[str, Any]]:
        for case, names, row, number in self._asked(provider, wanted):
            asked = ask(self.prompts[number], provider, case, names)
            if asked is not None:
                request, text = asked
                own = {REQUEST: request, PROMPT: number}
                yield {**row, **own, **({ASKED: text} if len(text) <= MOST_ASKED else {})}


def _content(prompt: PromptText, instructions: str | None) -> Any:
    """A prompt as ``submit`` takes it, after the system instructions."""
    if isinstance(prompt.content, str) and not instructions:
        return prompt.content
    chat = (
        [{"role": "user", "content": prompt.content}]
        if isinstance(prompt.content, str)
        else [dict(each) for each in prompt.content]
    )
    if instructions:
        raw = "{" in instructions
        said = f"{{% raw %}}{instructions}{{% endraw %}}" if raw else instructions
        chat.insert(0, {"role": "system", "content": said})
    return chat


def with_distinct_labels(providers: Sequence[Provider]) -> list[Provider]:
    """The providers, with distinct labels."""
    labels = distinct([provider.label for provider in providers])
    return [replace(each, label=label) for each, label in zip(providers, labels, strict=True)]


def distinct(labels: Sequence[str]) -> list[str]:
    """The labels, with a number where one repeats."""
    seen: Counter[str] = Counter()
    found: list[str] = []
    for label in labels:
        seen[label] += 1
        found.append(label if seen[label] == 1 else f"{label} #{seen[label]}")
    return found
