"""The base of all sections of the settings: frozen, unknown keys are errors, docstrings describe fields."""

import ast
import inspect
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from itertools import pairwise
from textwrap import dedent
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails, InitErrorDetails, PydanticCustomError

from fairlane.core.errors import ConfigurationError
from fairlane.core.redaction import MASK, mask_value, shown_url

_KEY_FIELDS = frozenset({"api_key_env", "api_key_file", "api_key_command", "proxy_credentials_env"})
"""Fields in which a key may have been pasted by mistake."""

SERVER_URLS = ("url", "broker_url")
"""Fields with the URL of a server, which may contain a password."""

MOST_COUNT = 10**12
"""The largest count in settings. Sums of some thousand of these are exact in Lua (2**53), and fit into Redis'
integers (2**63)."""

MOST_LEASE_S = 86_400
"""Longest lease or timeout, in seconds: a day. It bounds how long a dead process holds anything."""

MOST_KEPT_S = 10 * 366 * 86_400
"""Longest time to keep anything, in seconds: ten years, so that its end is a valid date."""

_WORDS = {
    "Input should be": "must be",
    "String should": "must",
    "Extra inputs are": "is",
    "a valid tuple": "a list",
}


if TYPE_CHECKING:
    from pydantic._internal._model_construction import ModelMetaclass
else:
    ModelMetaclass = type(BaseModel)


class ReadableErrors(ModelMetaclass):
    """Metaclass of models that users make in Python: a wrong argument raises `ConfigurationError`.

    ``model_validate`` still raises pydantic's error, so that the caller can add where the document is.
    """

    if not TYPE_CHECKING:  # it would hide the models' own signatures

        def __call__(self, *args: Any, **given: Any) -> Any:
            """Make an instance. Raises `ConfigurationError` for the first mistake, which lists the others."""
            try:
                return super().__call__(*args, **given)
            except ValidationError as error:
                first, *others = (_in_words(self, each) for each in error.errors(include_url=False))
                more = "".join(f"\n{ConfigurationError(*each)}" for each in others)
                raise ConfigurationError(*first[:3], first[3] + more) from None


def _in_words(model: type[BaseModel], detail: ErrorDetails) -> tuple[str, object, str, str]:
    """Field, value, problem and remedy of one error of a model."""
    path = [str(part) for part in detail["loc"] if part != "[key]"]
    field, name = ".".join([model.__name__, *path]), path[-1] if path else ""
    known = model.model_fields.get(path[0]) if path else None
    value = MASK if name in _KEY_FIELDS else mask_value(name, detail["input"])
    if name in SERVER_URLS and isinstance(value, str):
        value = shown_url(detail["input"])
    if detail["type"] == "extra_forbidden":
        return field, name, "there is no such field", f"Known are {', '.join(sorted(model.model_fields))}."
    if detail["type"] == "mistake":
        context = detail.get("ctx", {})
        return field, value, str(context["problem"]), str(context["remedy"])
    remedy = descriptions(model).get(path[0], "") if path else ""
    if known is not None and len(path) == 1 and not known.is_required():
        remedy = f"{remedy} Left out, it is {known.get_default(call_default_factory=True)!r}.".strip()
    return field, value, in_words(detail), remedy or "See docs/configuration.md."


def in_words(detail: ErrorDetails) -> str:
    """The problem of an error, as it follows the name of a field: ``"must be greater than 0"``."""
    said = detail["msg"].removeprefix("Value error, ")
    for pydantic, words in _WORDS.items():
        said = said.replace(pydantic, words)
    return said


class Flaw(NamedTuple):
    """A place in a model like ``limits.0.per``, empty for the whole; its value; the problem in words."""

    place: str
    value: object
    problem: str


def first_flaw(error: ValidationError) -> Flaw:
    """The first error of a model."""
    detail = error.errors(include_url=False, include_context=False)[0]
    return Flaw(".".join(map(str, detail["loc"])), detail["input"], in_words(detail))


@cache
def docstrings_of(kind: type) -> Mapping[str, str]:
    """Each field's docstring on one line; nothing where the source is missing. It takes milliseconds."""
    found = {}
    with suppress(OSError, TypeError):
        (statement,) = ast.parse(dedent(inspect.getsource(kind))).body
        for pair in pairwise(cast(ast.ClassDef, statement).body):
            match pair:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(words))):
                    found[name] = " ".join(words.split())
    return found


def descriptions(model: type[BaseModel]) -> Mapping[str, str]:
    """The descriptions of a model's fields, each on one line, from the docstrings below them."""
    stated = {name: field.description for name, field in model.model_fields.items() if field.description}
    return {**docstrings_of(model), **stated}


class Section(BaseModel, metaclass=ReadableErrors):
    """A table of the configuration. The docstring of a field is its line in docs/configuration.md."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Mistake(NamedTuple):
    """A mistake that a validator finds: its path below the validated value, and a remedy."""

    path: tuple[str, ...]
    problem: str
    remedy: str
    value: object = None


def validation_error(section: type[BaseModel], *mistakes: Mistake) -> ValidationError:
    """The error for a validator to raise: it reports each mistake with its own path and remedy."""
    return ValidationError.from_exception_data(
        section.__name__,
        [
            InitErrorDetails(
                type=PydanticCustomError("mistake", "{problem}", {"problem": problem, "remedy": remedy}),
                loc=path,
                input=value,
            )
            for path, problem, remedy, value in mistakes
        ],
    )
