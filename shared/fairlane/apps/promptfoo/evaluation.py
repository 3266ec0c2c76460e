"""Turns a promptfoo configuration into runs, or into a list of everything unsupported in it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from fairlane.apps.promptfoo.checking.assertions import AssertionReader
from fairlane.apps.promptfoo.grading.judges import Judges
from fairlane.apps.promptfoo.grading.models import Graders
from fairlane.apps.promptfoo.hooks.before import SuiteHooks, TestHooks
from fairlane.apps.promptfoo.hooks.hooks import Hooks, read_hooks
from fairlane.apps.promptfoo.planning.plans import (
    MAX_MODELS,
    MAX_PROMPTS,
    PlannedRun,
    Planner,
    distinct,
    with_distinct_labels,
)
from fairlane.apps.promptfoo.planning.rows import ASSERTIONS, CONVERSATION_ID, SERIAL, STORE_AS, RowMaker
from fairlane.apps.promptfoo.programs.programs import Programs
from fairlane.apps.promptfoo.reading.cases import read_tests
from fairlane.apps.promptfoo.reading.filters import Filters
from fairlane.apps.promptfoo.reading.places import Place, Problems, is_number, names
from fairlane.apps.promptfoo.reading.prompts import PromptText, read_prompts
from fairlane.apps.promptfoo.reading.providers import Provider, Providers
from fairlane.apps.promptfoo.scoring.after_hooks import ResultHooks
from fairlane.apps.promptfoo.scoring.derived import Derived, read_derived
from fairlane.client.submitting.options import SubmitOptions
from fairlane.core.errors import SubmissionError
from fairlane.model.evaluators import Assertions, EvaluatorSpec

ASSERTED = "assertions"
"""Name of the evaluator whose score is the share of assertions that an output meets."""

MAX_EVALUATORS = 50

_KEYS = names(
    "prompts providers targets tests defaultTest description scenarios evaluateOptions commandLineOptions",
    "assertionTemplates $schema tags metadata derivedMetrics env extensions",
)
_NOTED = {
    "outputPath": "outputPath is left out: give --output",
    "sharing": "sharing is left out: results stay where they are",
    "writeLatestResults": "writeLatestResults is left out: results stay in the deployment",
    "tracing": "tracing is left out: workers export traces to the configured address",
}
_REMEDIES = {
    "nunjucksFilters": "filters of a configuration are not called: use those of Jinja2",
    "redteam": "nothing is generated",
}


@dataclass(frozen=True, slots=True)
class CliOptions:
    """The command line's options for reading a configuration."""

    connections: frozenset[str] | None = None
    provider_map: Mapping[str, str] = field(default_factory=dict)
    judge_model: str | None = None
    embedding_model: str | None = None
    programs: bool = True
    python: str | None = None
    filters: Filters = field(default_factory=Filters)
    hooks: bool = True


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The rows, runs and hooks of a configuration. ``notes``: what was left out without changing a result."""

    name: str
    rows: Sequence[Mapping[str, Any]]
    prompts: tuple[str, ...]
    runs: tuple[PlannedRun, ...]
    notes: tuple[str, ...] = ()
    texts: tuple[PromptText, ...] = ()
    derived: tuple[Derived, ...] = ()
    common: SubmitOptions = field(default_factory=SubmitOptions)
    environment: Mapping[str, str] = field(default_factory=dict)
    results: ResultHooks | None = None


def read_evaluation(
    path: Path, cli_options: CliOptions | None = None, programs: Programs | None = None
) -> Evaluation:
    """The evaluation that a configuration describes. Raises `UnsupportedError` if it cannot be run.

    Reading calls the programs that make prompts, tests and variables, and the ``before`` hooks. Give
    ``programs`` that stay open if hooks are to be called later, too.
    """
    cli_options = cli_options or CliOptions()
    if programs is not None:
        return _Reader(path, cli_options, programs).read()
    with Programs(python=cli_options.python, allowed=cli_options.programs) as programs:
        return _Reader(path, cli_options, programs).read()


class _Reader:
    """Reads one configuration, part by part."""

    def __init__(self, path: Path, cli_options: CliOptions, programs: Programs) -> None:
        self._path, self._wishes, self._place = path, cli_options, Place(path, Problems(), programs)

    def read(self) -> Evaluation:
        """The evaluation. Raises `UnsupportedError` with all problems."""
        place, cli_options = self._place, self._wishes
        config = self._config()
        _check_names(config, place)
        environment = self._environment(config.get("env"))
        options, own = read_options(config, place)
        filters = _filters(cli_options.filters, own, place)
        mapped = Providers(cli_options.connections, cli_options.provider_map)
        which = "targets" if "targets" in config and "providers" not in config else "providers"
        providers = mapped.all(config.get(which), place / which, filters.has_provider)
        prompts = self._chosen(read_prompts(config.get("prompts"), place / "prompts"), filters)
        asserting = self._asserting(mapped, providers)
        hooks = self._hooks(config.get("extensions"))
        suite = SuiteHooks(
            hooks,
            place / "extensions",
            prompts,
            providers,
            config.get("derivedMetrics"),
            str(config.get("description") or ""),
        )
        judges = Judges()
        maker = RowMaker(asserting, judges, steps=hooks.have("afterEach", "afterAll"))
        matching = partial(maker.matching, filters.failing or (), prompts)
        cases = read_tests(config, place, filters, matching, suite)
        prompts = list(suite.prompts)
        providers = with_distinct_labels([_transforming(each, asserting) for each in providers])
        repetitions = options.get("repetitions", 1)
        tested = TestHooks(hooks, suite.place, prompts, providers, repetitions)
        rows = maker.rows(cases, prompts, tested)
        evaluators = [*_plain(rows), *judges.specs()]
        self._check_sizes(prompts, providers, evaluators)
        derived = read_derived(suite.derived, place / "derivedMetrics")
        name = str(config.get("description") or self._path.stem)[:200]
        common: SubmitOptions = {**options, **_order(rows), "evaluators": evaluators, "name": name}
        planner = Planner(name, common, prompts, maker.cases, maker.names, rows)
        runs = tuple(planner.runs(providers))
        place.problems.raise_if_any()
        labels = tuple(distinct([prompt.label for prompt in prompts]))
        results = ResultHooks(hooks, maker.cases, maker.names) if maker.steps else None
        notes, texts = place.problems.notes, tuple(prompts)
        return Evaluation(name, rows, labels, runs, notes, texts, derived, options, environment, results)

    def _hooks(self, raw: Any) -> Hooks:
        """The hooks of ``extensions``; ``--check`` validates them, but calls none."""
        found = read_hooks(raw, self._place / "extensions")
        if self._wishes.hooks or not found.extensions:
            return found
        self._place.note("extensions are not called by --check: they may change what is shown here")
        return Hooks(self._place.programs)

    def _chosen(self, prompts: Sequence[PromptText], filters: Filters) -> list[PromptText]:
        found = [each for each in prompts if filters.has_prompt(each.label, each.raw)]
        if prompts and not found:
            (self._place / "prompts").refuse(f"no prompt matches --filter-prompts {filters.prompts}")
        return found

    def _config(self) -> Mapping[str, Any]:
        there = self._path.is_file()
        config = self._place.data(self._path) if there else None
        if not isinstance(config, Mapping):
            self._place.refuse("this is no configuration" if there else "there is no such file")
            self._place.problems.raise_if_any()
            raise TypeError(f"{self._path} is no configuration")
        return config

    def _environment(self, raw: Any) -> Mapping[str, str]:
        """What ``env`` adds to the environment of programs."""
        raw, place = (self._place / "env").referred(raw)
        found = {str(name): str(value) for name, value in place.mapping(raw).items()}
        if found:
            self._place.note(
                "env is given to programs alone: fairlane.toml describes connections and their keys"
            )
            self._place.programs.add_environment(found)
        return found

    def _asserting(self, mapped: Providers, providers: Sequence[Provider]) -> AssertionReader:
        named = {"--judge-model": self._wishes.judge_model, "--embedding-model": self._wishes.embedding_model}
        judge, embedder = (
            mapped.one(model, self._place / option, embeds=option == "--embedding-model") if model else None
            for option, model in named.items()
        )
        here = any(provider.changes_outputs for provider in providers)
        return AssertionReader(Graders(mapped, judge, embedder), here)

    def _check_sizes(
        self,
        prompts: Sequence[PromptText],
        providers: Sequence[Provider],
        evaluators: Sequence[EvaluatorSpec],
    ) -> None:
        place = self._place
        if len(prompts) > MAX_PROMPTS:
            problem = f"there are {len(prompts)} prompts, at most {MAX_PROMPTS} are allowed"
            (place / "prompts").refuse(problem)
        if len(providers) > MAX_MODELS:
            (place / "providers").refuse(f"at most {MAX_MODELS} providers are allowed")
        if len(evaluators) > MAX_EVALUATORS:
            problem = f"the rubrics need more than {MAX_EVALUATORS} judges: use fewer a test"
            (place / "tests").refuse(problem)


def _filters(given: Filters, own: Mapping[str, Any], place: Place) -> Filters:
    """The command line's filters, with those that the configuration has and the command line leaves out."""
    left = {name: value for name, value in own.items() if getattr(given, name) is None}
    try:
        return replace(given, **left)
    except SubmissionError as error:
        place.refuse(str(error))
        return given


def _transforming(provider: Provider, asserting: AssertionReader) -> Provider:
    """The provider with its transform checked and its file resolved."""
    if provider.transform is None:
        return provider
    code, place = provider.transform
    return replace(provider, transform=(asserting.transform(code, place), place))


def _check_names(config: Mapping[str, Any], place: Place) -> None:
    for name in config:
        if name in _NOTED:
            place.note(_NOTED[name])
        elif name in _REMEDIES:
            (place / name).refuse(f"{name} is not supported: {_REMEDIES[name]}")
        else:
            place.check_names([name], "a configuration", _KEYS)


def _plain(rows: Sequence[Mapping[str, Any]]) -> list[EvaluatorSpec]:
    return [Assertions(name=ASSERTED, field=ASSERTIONS)] if any(row[ASSERTIONS] for row in rows) else []


def _order(rows: Sequence[Mapping[str, Any]]) -> SubmitOptions:
    """The options that order rows; a prompt that reads ``_conversation`` orders its rows itself."""
    order: SubmitOptions = {}
    if any(SERIAL in row for row in rows):
        order["run_serially"] = SERIAL
    if any(row.get(STORE_AS) for row in rows):
        order["store_output_as"] = f"{{{{ {STORE_AS} }}}}"
    if any(CONVERSATION_ID in row for row in rows):
        order["conversation"] = CONVERSATION_ID
    return order


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
    """How the runs are made, and which tests; ``evaluateOptions`` win over ``commandLineOptions``.

    A ``delay`` between all calls makes promptfoo ask one at a time, and so do we. The cache is off unless it
    is asked for.
    """
    found, chosen = dict[str, Any](), dict[str, Any]()
    for section in ("commandLineOptions", "evaluateOptions"):
        for name, value in (place / section).mapping(config.get(section) or {}).items():
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
