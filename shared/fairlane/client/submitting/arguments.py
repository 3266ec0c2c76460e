"""Checks the arguments of ``submit`` and converts each to its form in the spec; errors name the argument."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

from pydantic import BaseModel, TypeAdapter, ValidationError

from fairlane.core.errors import SubmissionError, TemplateError
from fairlane.core.section import in_words
from fairlane.datasets.values import plain, remedy_for
from fairlane.evaluators.builders import check_names
from fairlane.evaluators.client_side import ClientScorer
from fairlane.evaluators.function_scorers import importable_name, scorer
from fairlane.model.choices import CONVERSATION, Message
from fairlane.model.evaluators import FUNCTION, FUNCTION_REMEDY, Agent, EvaluatorSpec, Judge, Similarity
from fairlane.model.lane import FUNCTIONS, split_model
from fairlane.model.run import TurnField
from fairlane.pipeline.rendering import operator_parameter
from fairlane.templates.attributes import attributes_read
from fairlane.templates.template import compile_template, referenced_variables

Messages: TypeAlias = Sequence[Mapping[str, str] | Literal["_conversation"]]

Path: TypeAlias = tuple[int | str, ...]
"""The location of a field in a pydantic model."""

_EVALUATOR: TypeAdapter[EvaluatorSpec] = TypeAdapter(EvaluatorSpec)

_FUNCTION = re.compile(FUNCTION)

_WORDS = re.compile(r"\{\{\s*(\w+(?:[ ?.:/-]+\w+)*\??)\s*\}\}")
"""Several words between the braces of a template: perhaps a field's name."""

_OWN_PARAMS = {
    "model": "Give it as model=.",
    "messages": "Give them as messages=.",
    "stream": "Set stream on the connection.",
}

_PARTS_REMEDY = (
    'For images and other parts, put {"messages": […]} into a field of each row, and name that field as '
    "request=."
)
CHATS_OF_ROWS = 'For chats that rows hold, name their field: request="<field>".'
_MESSAGE_REMEDY = (
    f'A message is {{"role": "user", "content": "…"}}; "{CONVERSATION}" stands for those of earlier turns.'
)

EARLIER_TURNS = Message(
    role=CONVERSATION,
    content=f"{{% for turn in {CONVERSATION} %}}{{{{ turn.input }}}}{{{{ turn.output }}}}{{% endfor %}}",
)
"""The message in whose place the earlier turns are sent. Its content bounds them and says what they read."""


def only_argument(given: Mapping[str, object]) -> str:
    """The name of the one argument that was given."""
    names = [name for name, value in given.items() if value is not None]
    if len(names) != 1:
        first, *others = given
        alternatives = f"{', '.join([first, *others[:-1]])} or {others[-1]}"
        problem = "more than one was given" if names else "is missing"
        raise SubmissionError(
            " and ".join(names) or first, names, problem, f"Give exactly one of {alternatives}."
        )
    return names[0]


def take_prompts(
    prompt: str | None, messages: Messages | None, prompts: Sequence[str | Messages] | None
) -> tuple[tuple[Message, ...], ...]:
    """The messages of each prompt, from whichever argument was given."""
    field = only_argument({"prompt": prompt, "messages": messages, "prompts": prompts})
    if prompt is not None:
        if isinstance(prompt, list | tuple):
            remedy = "Give a chat as messages=[…], and several prompts as prompts=[…]."
            raise SubmissionError(field, prompt, "is a list, not a text", remedy)
        return (_prompt(field, _text(field, prompt)),)
    if isinstance(messages, str):
        remedy = f"Give a list of messages. {CHATS_OF_ROWS}"
        raise SubmissionError(field, messages, "is a str", remedy)
    if messages is not None:
        return (_prompt(field, _list(field, messages, "messages")),)
    listed = _list(field, prompts, "prompts")
    taken = tuple(_prompt(f"{field}[{number}]", each) for number, each in enumerate(listed))
    _reject_duplicates(field, taken, listed)
    return taken


def take_task_prompts(models: Sequence[str], given: Mapping[str, Any]) -> tuple[tuple[Message, ...], ...]:
    """The prompts of a run; a run that only calls functions needs none."""
    stated = [given.get(name) for name in ("prompt", "messages", "prompts")]
    functions = bool(models) and all(model.startswith(f"{FUNCTIONS}:") for model in models)
    if functions and all(each is None for each in stated):
        return ()
    return take_prompts(*stated)


def _prompt(field: str, prompt: object) -> tuple[Message, ...]:
    """A text as one user message, or a list of messages."""
    if isinstance(prompt, str):
        if not prompt.strip():
            raise SubmissionError(field, prompt, "is empty", "Give the text to send.")
        checked = _to_message(field, {"role": "user", "content": prompt})
        _check_template(field, prompt)
        return (checked,)
    listed = _list(field, prompt, "messages")
    if all(each == CONVERSATION for each in listed):
        raise SubmissionError(field, prompt, "has no messages of its own", _MESSAGE_REMEDY)
    return tuple(_message(f"{field}[{number}]", each) for number, each in enumerate(listed))


def _message(field: str, message: object) -> Message:
    if message == CONVERSATION:
        return EARLIER_TURNS
    if isinstance(message, Message):
        message = message.model_dump()
    if not isinstance(message, Mapping):
        raise SubmissionError(field, message, "is no message", _MESSAGE_REMEDY)
    checked = _to_message(field, dict(message))
    if checked.role == CONVERSATION:
        return EARLIER_TURNS
    if not is_constant(checked.role):
        problem = "is no template: every row would be sent this role as it stands"
        remedy = f"Write the role itself. {CHATS_OF_ROWS}"
        raise SubmissionError(f"{field}.role", checked.role, problem, remedy)
    _check_template(f"{field}.content", checked.content)
    return checked


def take_models(model: str | None, models: Sequence[str] | None) -> tuple[str, ...]:
    """References to models, or templates for them."""
    field = only_argument({"model": model, "models": models})
    if isinstance(model, list | tuple):
        raise SubmissionError(field, model, "is a list, not a text", "Give several models as models=[…].")
    listed = (model,) if model is not None else tuple(_list(field, models, "models"))
    for number, each in enumerate(listed):
        _check_model(model_field(listed, number) if model is None else field, each, template=True)
    _reject_duplicates(field, [each.strip() for each in listed], listed)
    return listed


def _reject_duplicates(field: str, taken: Sequence[object], given: Sequence[object]) -> None:
    """Raise `SubmissionError` for duplicates: their items would be paid for twice and counted as one."""
    for number, each in enumerate(taken):
        if (first := taken.index(each)) < number:
            problem = f"is the same as {field}[{first}]"
            remedy = "Leave one of them out; repetitions= (--repetitions) asks more than once."
            raise SubmissionError(f"{field}[{number}]", given[number], problem, remedy)


def take_function(field: str, function: object) -> str:
    """The name by which workers import a function, from its name or the function itself."""
    if not isinstance(function, str):
        return importable_name(function, field, 'name it: "package.module:function"')
    if not _FUNCTION.fullmatch(function):
        raise SubmissionError(field, function, "names no function", FUNCTION_REMEDY)
    return function


def model_field(models: Sequence[str], number: int) -> str:
    """The name of one of the models in error messages."""
    return "model" if len(models) == 1 else f"models[{number}]"


def _check_model(field: str, model: object, *, template: bool) -> None:
    text = _text(field, model)
    if not is_constant(text):
        if not template:
            raise SubmissionError(field, model, "a judge's model cannot be a template", "Name one model.")
        _check_template(field, text)
        return
    try:
        connection, name = split_model(text)
    except ValueError:
        remedy = 'Write "<connection>:<model>", like "openai:gpt-4o".'
        raise SubmissionError(field, model, "names no connection and model", remedy) from None
    if connection == FUNCTIONS and not _FUNCTION.fullmatch(name):
        raise SubmissionError(field, model, "names no function", FUNCTION_REMEDY)


def take_evaluators(evaluators: object) -> tuple[EvaluatorSpec, ...]:
    """Evaluators with names of their own; judges' models and templates are checked too."""
    listed = _list("evaluators", evaluators, "evaluators")
    for number, given in enumerate(listed):
        each = listed[number] = named_function(given)
        try:
            _EVALUATOR.validate_python(each, strict=True)
        except ValidationError:
            remedy = "Use exact_match(…), llm_judge(…) and the like, or a function of a module."
            raise SubmissionError(f"evaluators[{number}]", each, "is no evaluator", remedy) from None
        if isinstance(each, Judge | Agent | Similarity):
            listed[number] = _caller(f"evaluators[{each.name!r}]", each)
    if listed:
        check_names(listed)
    return tuple(listed)


def named_function(given: Any) -> Any:
    """Wrap a plain function as a scorer that workers call by its name; return anything else unchanged."""
    return scorer(given) if callable(given) and not isinstance(given, BaseModel) else given


def split_scorers(evaluators: object) -> tuple[object, tuple[ClientScorer, ...]]:
    """Split evaluators into those to submit and the scorers that run in this process."""
    if not isinstance(evaluators, list | tuple):
        return evaluators, ()
    mine = tuple(each for each in evaluators if isinstance(each, ClientScorer))
    return [each for each in evaluators if not isinstance(each, ClientScorer)], mine


def require_work(sent: object, mine: Sequence[ClientScorer], options: Mapping[str, Any]) -> None:
    """Raise `SubmissionError` if outputs exist already and only the client's scorers would score them."""
    if sent or options.get("output") is None:
        return
    names = ", ".join(each.name for each in mine)
    problem = "existing outputs need no run if only scorers of the client score them"
    remedy = "Call them on the rows in this program, or add an evaluator that workers run."
    raise SubmissionError("evaluators", names, problem, remedy)


def _caller(field: str, evaluator: Judge | Agent | Similarity) -> Judge | Agent | Similarity:
    _check_model(f"{field}.model", evaluator.model, template=False)
    if not isinstance(evaluator, Similarity):
        _check_template(f"{field}.template", evaluator.template)
    params = take_call_params(f"{field}.params", evaluator.params)
    return evaluator.model_copy(update={"params": params})


class _BelowOneError(SubmissionError):
    """A count in an argument of `submit` is below 1. Other tools print the same message."""

    def __init__(self, name: str, value: int) -> None:
        super().__init__(name, value, "must be >= 1")

    def __str__(self) -> str:
        return f"{self.field} must be >= 1, got {self.value}"


def check_max_concurrent(value: int | None) -> None:
    """Raise `SubmissionError` for a wrong ``max_concurrent``.

    Its text for one below 1 is ``max_concurrent must be >= 1, got 0``.
    """
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise SubmissionError("max_concurrent", value, "is no whole number", "Give 1 or more, or None.")
    if value < 1:
        raise _BelowOneError("max_concurrent", value)


def take_order(given: Mapping[str, Any], prompts: Sequence[Sequence[Message]]) -> dict[str, Any]:
    """The order of a run's items. Where a prompt reads ``_conversation``, the turns of a conversation run one
    after the other, unless ``run_serially`` or ``store_output_as`` orders all items.
    """
    serially, store = given.get("run_serially", False), given.get("store_output_as")
    if not isinstance(serially, bool | str) or serially == "":
        remedy = "Give True, or the row field that marks items that run first."
        raise SubmissionError("run_serially", serially, "is neither a truth value nor a field", remedy)
    if store is not None:
        _check_template("store_output_as", _text("store_output_as", store))
    conversation = any(
        CONVERSATION in referenced_variables(message.content) for prompt in prompts for message in prompt
    )
    ordered = bool(serially) or store is not None
    return {
        "serial": serially is True or store is not None or (conversation and ordered),
        "turns": conversation and not ordered,
        "serial_field": serially if isinstance(serially, str) else None,
        "store_output_as": store,
        "conversation": conversation,
        "conversation_field": _conversation_field(given, conversation=conversation),
        "turn_fields": turn_fields_of(prompts),
    }


def turn_fields_of(prompts: Sequence[Sequence[Message]]) -> tuple[TurnField, ...]:
    """The fields to keep of a turn: those that a prompt reads, or all if that is unknown."""
    texts = {message.content for prompt in prompts for message in prompt if CONVERSATION in message.content}
    read, every = set[str](), get_args(TurnField)
    for text in texts:
        found = attributes_read(text, CONVERSATION)
        read |= set(every) if found is None or not found <= set(every) else found
    return tuple(name for name in every if name in read or name == "output")


def _conversation_field(given: Mapping[str, Any], *, conversation: bool) -> str | None:
    """The row field that names a row's conversation, by default its session's."""
    field: str | None = given.get("conversation")
    if not conversation and field is not None:
        problem = f"has no effect: no prompt reads {CONVERSATION}"
        remedy = f"Show the turns in a prompt, {{% for turn in {CONVERSATION} %}}…, or leave it out."
        raise SubmissionError("conversation", field, problem, remedy)
    return given.get("session") if conversation and field is None else field


def take_params(field: str, params: object) -> dict[str, Any]:
    """A copy of the parameters in their JSON form; ``field`` names them in errors."""
    if not isinstance(params, Mapping):
        raise SubmissionError(
            field, params, "is not a dict", 'Give parameters by name, like {"max_tokens": 64}.'
        )
    checked: dict[str, Any] = {}
    for name, value in params.items():
        if not isinstance(name, str):
            raise SubmissionError(field, name, "has a name that is no text", "Use texts as names.")
        if name in _OWN_PARAMS:
            raise SubmissionError(f"{field}[{name!r}]", value, "is not a parameter", _OWN_PARAMS[name])
        try:
            text = json.dumps({name: plain(value)}, allow_nan=False, ensure_ascii=False)
            text.encode()
        except (TypeError, ValueError, RecursionError) as error:
            remedy = remedy_for(value) or "Use texts, finite numbers, booleans, None, lists and dicts."
            raise SubmissionError(f"{field}[{name!r}]", value, f"is not JSON: {error}", remedy) from None
        checked.update(json.loads(text))
    return checked


def take_call_params(field: str, params: object) -> dict[str, Any]:
    """`take_params` for calls of models, whose address and credential only a connection may set."""
    checked = take_params(field, params)
    if taken := operator_parameter(checked):
        problem = "cannot be set by a run: addresses, headers and keys belong to connections"
        body = taken == "extra_body"
        remedy = "Give its entries beside the other parameters." if body else "Leave it out."
        raise SubmissionError(f"{field}[{taken!r}]", None, problem, remedy)
    return checked


def _text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise SubmissionError(field, value, f"is a {type(value).__name__}, not a text", "Give a str.")
    return value


def _list(field: str, value: object, of: str) -> list[Any]:
    if isinstance(value, (str, bytes, Mapping, BaseModel)) or not isinstance(value, Iterable):
        raise SubmissionError(field, value, f"is a {type(value).__name__}", f"Give a list of {of}.")
    return list(value)


def is_constant(text: str) -> bool:
    """Whether ``text`` has no template markup."""
    return not any(mark in text for mark in ("{{", "{%", "{#"))


def _check_template(field: str, text: str) -> None:
    try:
        compile_template(field, text)
    except TemplateError as error:
        problem = f"is no template: {str(error).removeprefix(f'{field}: ')}"
        words = _WORDS.search(text)
        remedy = f' A field of that name is printed by {{{{ row["{words[1]}"] }}}}.' if words else ""
        raise SubmissionError(field, text, problem, f"Correct its Jinja2 syntax.{remedy}") from None


def _to_message(field: str, data: dict[str, Any]) -> Message:
    remedy = _PARTS_REMEDY if isinstance(data.get("content"), list) else _MESSAGE_REMEDY
    try:
        return Message.model_validate(data, strict=True)
    except ValidationError as error:
        raise as_submission_error(error, lambda _: remedy, field) from None


def as_submission_error(
    error: ValidationError,
    remedy_of: Callable[[str], str],
    inside: str = "",
    argument_of: Callable[[Path], Path] = lambda path: path,
) -> SubmissionError:
    """The first pydantic error as a `SubmissionError` about its argument; ``remedy_of`` maps argument to
    remedy.

    ``argument_of`` maps the path of the model's field to that of the argument.
    """
    detail = error.errors(include_url=False, include_context=False)[0]
    if not detail["loc"]:  # of the whole: "<field>: <problem>"
        field, _, message = detail["msg"].removeprefix("Value error, ").partition(": ")
        return SubmissionError(field, (), message, remedy_of(field))
    where = argument_of(detail["loc"])
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where)
    problem = "has the wrong format" if detail["type"] == "string_pattern_mismatch" else in_words(detail)
    value = None if detail["type"] == "missing" else detail["input"]
    remedy = remedy_of(str(where[0]))
    return SubmissionError(f"{inside}{path}".lstrip("."), value, problem, remedy)
