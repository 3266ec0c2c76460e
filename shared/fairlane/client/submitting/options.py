"""The options of a submission, for `Client.submit` and similar methods."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict

from fairlane.client.submitting.arguments import Messages
from fairlane.evaluators.client_side import ClientScorer
from fairlane.model.decision import RetryPolicy
from fairlane.model.evaluators import EvaluatorSpec
from fairlane.model.run import CacheMode, OnRefusal, Rate

Evaluator: TypeAlias = EvaluatorSpec | ClientScorer | Callable[..., Any]
"""An evaluator, or a function: one of a module that workers import, or a `scorer` of the client."""


class SubmitOptions(TypedDict, total=False):
    """What `Client.submit` takes beside the dataset. One of ``model``, ``models``, ``task`` and ``output``
    names what runs the items.

    - one of ``prompt`` (a user message), ``messages`` (a chat) and ``prompts`` (several of either): Jinja2
      templates over a row.
    - one of ``model`` and ``models``: ``"<connection>:<model>"``, or a template for it.
    - ``task``: a Python function on the workers, which takes the row: ``"package.module:function"``, or the
      function itself. ``lane`` names the lane that it shares with others.
    - ``output``: the row field that holds an output which exists already: nothing is called but judges.
    - ``request``: the row field that holds a whole chat request, sent to the model instead of a prompt.
    - ``params``: parameters of the provider, such as ``max_tokens``; ``repetitions``: calls for each prompt.
    - ``evaluators``: what scores each output, made by `exact_match`, `llm_judge` and the like; ``session`` is
      the row field by which rows form sessions.
    - ``name``; ``priority``: -100 to 100 among the team's runs, or "interactive" for one that a person
      waits for.
    - ``timeout``: longest time for a call in seconds; ``retry``: a `RetryPolicy`.
    - ``max_concurrent``, ``ahead``, ``task_rate``, ``eval_rate``, ``delay``, ``max_duration``,
      ``max_outage``, ``on_refusal``, ``budget_tokens``, ``budget_usd``: see `Bounds`.
    - ``start_in``: seconds from now before which no call of the run starts; ``max_duration`` counts from now.
    - ``run_serially``: ``True``, or the row field that marks items that run first, one at a time;
      ``store_output_as`` and ``conversation``: see `Order`.
    - ``cache``: "off", "read" or "read_write"; ``cache_ttl``: seconds.
    """

    messages: Messages | None
    prompts: Sequence[str | Messages] | None
    model: str | None
    models: Sequence[str] | None
    task: str | Callable[..., Any] | None
    lane: str | None
    output: str | None
    request: str | None
    params: Mapping[str, Any] | None
    repetitions: int
    evaluators: Sequence[Evaluator]
    session: str | None
    name: str | None
    priority: int | Literal["interactive"]
    timeout: float | None
    retry: RetryPolicy | None
    max_concurrent: int | None
    ahead: int | None
    task_rate: Rate
    eval_rate: Rate
    delay: float
    start_in: float
    max_duration: float | None
    max_outage: float
    on_refusal: OnRefusal
    budget_tokens: int | None
    budget_usd: float | None
    run_serially: bool | str
    store_output_as: str | None
    conversation: str | None
    cache: CacheMode
    cache_ttl: float | None


class RunOptions(SubmitOptions, total=False):
    """All options of a run, beside its dataset."""

    prompt: str | None
