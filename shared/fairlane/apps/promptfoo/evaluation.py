"""A promptfoo configuration as the runs that it amounts to, or everything in it that is not supported."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fairlane.apps.promptfoo.asserting import AssertionReader
from fairlane.apps.promptfoo.cases import CaseReader
from fairlane.apps.promptfoo.files import Files
from fairlane.apps.promptfoo.judges import Judges
from fairlane.apps.promptfoo.options import read_options
from fairlane.apps.promptfoo.problems import Place, Problems
from fairlane.apps.promptfoo.prompts import PromptReader, PromptText
from fairlane.apps.promptfoo.providers import Provider, Providers
from fairlane.apps.promptfoo.rows import ASSERTIONS, CONVERSATION_ID, SERIAL, STORE_AS, RowMaker
from fairlane.client.submission import SubmitOptions
from fairlane.model.evaluators import Assertions, EvaluatorSpec

ASSERTED = "assertions"
"""The evaluator's name under which a record has the share of assertions that it meets."""

MAX_EVALUATORS, MAX_MODELS, MAX_PROMPTS = 50, 100, 100

_KEYS = frozenset(
    (
        *("prompts", "providers", "targets", "tests", "defaultTest", "description"),
        *("evaluateOptions", "commandLineOptions", "assertionTemplates", "$schema"),
        *("tags", "metadata"),
    )
)
_NOTED = {
    "outputPath": "outputPath is left out: give --output",
    "sharing": "sharing is left out: results stay where they are",
    "writeLatestResults": "writeLatestResults is left out: results stay in the deployment",
}
_REMEDIES = {
    "scenarios": "write its tests one by one",
    "extensions": "programs are not run",
    "env": "workers have an environment of their own",
    "nunjucksFilters": "programs are not run",
    "derivedMetrics": "compute them from the results",
    "redteam": "nothing is generated",
}


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the command line says about a configuration."""

    connections: frozenset[str] | None = None
    provider_map: Mapping[str, str] = field(default_factory=dict)
    judge_model: str | None = None


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One run: providers that are called with the same parameters. ``labels`` are by model."""

    labels: Mapping[str, str]
    options: SubmitOptions


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What a configuration amounts to. ``notes`` tell what was left out without changing a result."""

    name: str
    rows: Sequence[Mapping[str, Any]]
    prompts: tuple[str, ...]
    runs: tuple[PlannedRun, ...]
    notes: tuple[str, ...] = ()


def read_evaluation(path: Path, wishes: Wishes | None = None) -> Evaluation:
    """The evaluation that a configuration describes. Raises `UnsupportedError` if it cannot be run."""
    wishes, problems = wishes or Wishes(), Problems()
    files, place = Files(problems), Place(path)
    config = files.data(path, place) if path.is_file() else None
    if not isinstance(config, Mapping):
        problems.add(place, "this is no configuration" if path.is_file() else "there is no such file")
        problems.raise_if_any()
        raise TypeError(f"{path} is no configuration")
    notes = list(_unknown(config, place, problems))
    options = read_options(config, place, problems, notes)
    mapped = Providers(wishes.connections, wishes.provider_map, files, problems)
    which = "targets" if "targets" in config and "providers" not in config else "providers"
    providers = mapped.all(config.get(which), place / which)
    judge = mapped.one(wishes.judge_model, place / "--judge-model") if wishes.judge_model else None
    prompts = PromptReader(files, problems).all(config.get("prompts"), place / "prompts")
    cases = CaseReader(files, problems).all(config.get("tests"), config.get("defaultTest"), place)
    judges = Judges()
    maker = RowMaker(files, problems, AssertionReader(mapped, files, problems, judge), judges)
    rows = maker.rows(cases, prompts)
    evaluators = [*_plain(rows), *judges.specs()]
    _check_sizes(prompts, providers, evaluators, place, problems)
    problems.raise_if_any()
    name = str(config.get("description") or path.stem)[:200]
    common: SubmitOptions = {**options, **_order(rows), "evaluators": evaluators, "name": name}
    runs = tuple(_runs(name, _apart(providers), prompts, common))
    labels = tuple(_distinct([prompt.label for prompt in prompts]))
    return Evaluation(name, rows, labels, runs, tuple(notes))


def _unknown(config: Mapping[str, Any], place: Place, problems: Problems) -> Iterator[str]:
    for name in config:
        if name in _NOTED:
            yield _NOTED[name]
        elif name not in _KEYS:
            remedy = _REMEDIES.get(name)
            problem = f"{name} is not supported"
            problems.add(place / name, f"{problem}: {remedy}" if remedy else problem)


def _plain(rows: Sequence[Mapping[str, Any]]) -> list[EvaluatorSpec]:
    return [Assertions(name=ASSERTED, field=ASSERTIONS)] if any(row[ASSERTIONS] for row in rows) else []


def _order(rows: Sequence[Mapping[str, Any]]) -> SubmitOptions:
    """Which rows go one at a time; a prompt that reads ``_conversation`` says so itself."""
    order: SubmitOptions = {}
    if any(SERIAL in row for row in rows):
        order["run_serially"] = SERIAL
    if any(row.get(STORE_AS) for row in rows):
        order["store_output_as"] = f"{{{{ {STORE_AS} }}}}"
    if any(CONVERSATION_ID in row for row in rows):
        order["conversation"] = CONVERSATION_ID
    return order


def _runs(
    name: str, providers: Sequence[Provider], prompts: Sequence[PromptText], common: SubmitOptions
) -> Iterator[PlannedRun]:
    """Providers with the same parameters are one run, unless they are the same model twice."""
    groups: list[tuple[str, list[Provider]]] = []
    for provider in providers:
        key = json.dumps([dict(provider.params), provider.delay], sort_keys=True, default=str)
        fits = (
            group
            for known, group in groups
            if known == key and all(each.model != provider.model for each in group)
        )
        group = next(fits, None)
        if group is None:
            groups.append((key, [provider]))
        else:
            group.append(provider)
    for number, (_, group) in enumerate(groups, start=1):
        first = group[0]
        own: SubmitOptions = {
            **common,
            "prompts": [
                each.content if isinstance(each.content, str) else [dict(m) for m in each.content]
                for each in prompts
            ],
            "models": [each.model for each in group],
            "params": dict(first.params),
        }
        if first.delay:
            own["delay"] = max(first.delay, common.get("delay", 0.0))
        if len(groups) > 1:
            own["name"] = f"{name[:180]} ({number} of {len(groups)})"
        yield PlannedRun({each.model: each.label for each in group}, own)


def _apart(providers: Sequence[Provider]) -> list[Provider]:
    labels = _distinct([provider.label for provider in providers])
    return [replace(each, label=label) for each, label in zip(providers, labels, strict=True)]


def _distinct(labels: Sequence[str]) -> list[str]:
    """The labels, with a number where one comes again."""
    seen: Counter[str] = Counter()
    distinct: list[str] = []
    for label in labels:
        seen[label] += 1
        distinct.append(label if seen[label] == 1 else f"{label} #{seen[label]}")
    return distinct


def _check_sizes(
    prompts: Sequence[PromptText],
    providers: Sequence[Provider],
    evaluators: Sequence[EvaluatorSpec],
    place: Place,
    problems: Problems,
) -> None:
    if len(prompts) > MAX_PROMPTS:
        problems.add(
            place / "prompts", f"there are {len(prompts)} prompts, at most {MAX_PROMPTS} are allowed"
        )
    if len(providers) > MAX_MODELS:
        problems.add(place / "providers", f"at most {MAX_MODELS} providers are allowed")
    if len(evaluators) > MAX_EVALUATORS:
        problems.add(place / "tests", f"the rubrics need more than {MAX_EVALUATORS} judges: use fewer a test")
