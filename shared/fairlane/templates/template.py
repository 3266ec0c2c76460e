"""Templates over a row: compiled once, rendered for every item."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

from jinja2 import TemplateSyntaxError, meta
from jinja2.environment import Template as JinjaTemplate

from fairlane.core.errors import TemplateError
from fairlane.model.choices import Message
from fairlane.templates import meter
from fairlane.templates.sandbox import ENVIRONMENT

_MARKUP = re.compile(r"\{[{%#]")
_INSERTION = re.compile(r"\{\{[ \t\r\n]*([A-Za-z][A-Za-z0-9_]*)[ \t\r\n]*\}\}")
_NEWLINE = re.compile(r"\r\n|\r")

TAKEN = frozenset(
    {
        *("and", "else", "if", "in", "is", "not", "or", "true", "false", "none", "True", "False", "None"),
        *("caller", "kwargs", "loop", "self", "super", "varargs"),
    }
)
"""Words that Jinja does not look up in the row."""

_MOST_NAMES: Final = 1_000

_NUMBER_CHARS: Final = 5_000
"""More than the digits of any number in a row (`fairlane.datasets.rows`)."""

_COMPILED_KEPT = 512

_TEXT = frozenset(("data", "whitespace", "comment", "comment_begin", "comment_end"))


class PlainTemplate:
    """A template that only inserts names: it joins texts and values, in time linear in their length."""

    __slots__ = ("_texts", "_texts_chars", "names")

    def __init__(self, texts: tuple[str, ...], names: tuple[str, ...]) -> None:
        self._texts, self.names = texts, names
        self._texts_chars = sum(map(len, texts))

    def chars(self, names: Mapping[str, Any]) -> int | None:
        """Upper bound of the rendered characters; ``None`` if a name is missing, null or not a scalar."""
        total = self._texts_chars
        for name in self.names:
            value = names.get(name)
            if isinstance(value, str):
                total += len(value)
            elif isinstance(value, int | float):
                total += _NUMBER_CHARS
            else:
                return None
        return total

    def fill(self, names: Mapping[str, Any], bound: meter.Bound = meter.DEFAULT) -> str | None:
        """The rendered text; ``None`` if only Jinja can print one of the values.

        Raises `MissingVariableError` for a name that is missing or null, and `WorkLimitError` for a text of
        more characters than ``bound`` allows.
        """
        pieces, length = [self._texts[0]], len(self._texts[0])
        for name, text in zip(self.names, self._texts[1:], strict=True):
            value = names.get(name)
            if value is None:
                raise meter.MissingVariableError(lacking(name, names), name)
            if not isinstance(value, str):
                if not isinstance(value, int | float):
                    return None
                value = str(meter.printed(value))
            length += len(value) + len(text)
            if length > bound.chars:
                bound.check(length)
            pieces += (value, text)
        return "".join(pieces)


def lacking(name: str, row: Mapping[str, Any]) -> str:
    """Why a row has nothing to print for ``name``: it has no such field, or a null in it."""
    return f"the row's field {name!r} is null" if name in row else f"the row has no field {name!r}"


def plain_template(text: str) -> PlainTemplate | None:
    """``text`` if its only markup is ``{{ name }}`` as Jinja reads it, in few places; else ``None``."""
    texts, names, at = list[str](), list[str](), 0
    while (markup := _MARKUP.search(text, at)) is not None:
        inserted = _INSERTION.match(text, markup.start())
        if inserted is None or inserted[1] in TAKEN or len(names) == _MOST_NAMES:
            return None
        texts.append(_NEWLINE.sub("\n", text[at : markup.start()]))
        names.append(inserted[1])
        at = inserted.end()
    texts.append(_NEWLINE.sub("\n", text[at:]))
    return PlainTemplate(tuple(texts), tuple(names))


class Template:
    """One text with Jinja2 markup, safe to render from several threads."""

    __slots__ = ("_body", "_bound", "_plain", "_text", "field")

    def __init__(
        self, field: str, text: str, *, checked: bool = False, bound: meter.Bound = meter.DEFAULT
    ) -> None:
        """Compile ``text``; errors call it ``field``. Raises `TemplateError` with the line at fault.

        ``checked``: it has compiled before, so that only rendering compiles it. ``bound``: its longest text.
        """
        self.field, self._text, self._bound = field, text, bound
        self._plain: PlainTemplate | None = None
        self._body: JinjaTemplate | None = None
        if len(text) > meter.MAX_CHARS:
            most = f"at most {meter.MAX_CHARS:,} are allowed: put its long texts into fields of the rows"
            raise TemplateError(field, f"it has {len(text):,} characters, {most}")
        self._plain = plain_template(text)
        if self._plain is None and not checked:
            self._body = compiled(field, text)

    @property
    def constant(self) -> bool:
        """Whether it has no markup: every row renders to the same text."""
        return self._plain is not None and not self._plain.names

    @property
    def markup(self) -> str | None:
        """Its text, if only Jinja can compile it: it has more markup than ``{{ name }}``."""
        return self._text if self._plain is None else None

    def chars(self, names: Mapping[str, Any]) -> int | None:
        """Upper bound of the rendered characters, and of the linear time; ``None`` if it needs Jinja."""
        return None if self._plain is None else self._plain.chars(names)

    def render(self, row: Mapping[str, Any], **extra: Any) -> str:
        """The text for ``row``. ``extra`` names come before the row's fields, and ``row`` is the row itself.

        Raises `TemplateError`; its ``variable`` names one that the row lacks, if that is the reason.
        """
        return self.render_variables(variables(row, **extra))

    def render_variables(self, names: dict[str, Any]) -> str:
        """Like `render`, with the result of `variables`, which serves all templates of an item."""
        try:
            text = None if self._plain is None else self._plain.fill(names, self._bound)
            return self._run(names) if text is None else text
        except TemplateError:
            raise
        except meter.MissingVariableError as error:
            raise TemplateError(self.field, str(error), error.name) from error
        except meter.NullError as error:
            raise self._null(names, error) from error
        except Exception as error:  # an expression may raise anything at all
            raise TemplateError(self.field, str(error) or type(error).__name__) from error

    def _null(self, names: Mapping[str, Any], error: meter.NullError) -> TemplateError:
        """The error for a null; it names the field if only one can be null."""
        null = [name for name in referenced_variables(self._text) if names.get(name, "") is None]
        if len(null) == 1:
            return TemplateError(self.field, lacking(null[0], names), null[0])
        return TemplateError(self.field, str(error))

    def _run(self, names: dict[str, Any]) -> str:
        if self._body is None:
            self._body = compiled(self.field, self._text)
        pieces: list[str] = []
        length = 0
        context = meter.MeteredContext(ENVIRONMENT, names, None, {})
        with meter.rendering_within(self._bound):
            for piece in self._body.root_render_func(context):
                length += len(piece)
                self._bound.check(length)
                pieces.append(piece)
        return "".join(pieces)


def words_of(text: str, most: int) -> int:
    """Tokens in a text's markup, which determine its compile time; counts to ``most`` + 1."""
    if _MARKUP.search(text) is None:
        return 0
    count = 0
    try:
        for _, kind, _ in ENVIRONMENT.lex(text):
            count += kind not in _TEXT
            if count > most:
                break
    except TemplateSyntaxError:  # compiling it reports the error
        return count
    return count


def variables(row: Mapping[str, Any], **extra: Any) -> dict[str, Any]:
    """The variables of a template: the row's fields, ``row`` unless a field has that name, and ``extra``."""
    return {"row": row, **row, **extra}


@lru_cache(maxsize=_COMPILED_KEPT)
def names_read(text: str) -> frozenset[str]:
    """All names in a text's markup, of variables and of attributes: it can read no other variables.

    Linear in the text, and a superset of `referenced_variables`. A text that cannot compile reads none.
    """
    try:
        return frozenset(value for _, kind, value in ENVIRONMENT.lex(text) if kind == "name")
    except TemplateSyntaxError:
        return frozenset()


class Prompt:
    """The messages of one prompt, compiled once."""

    __slots__ = ("_messages",)

    def __init__(
        self,
        messages: tuple[Message, ...],
        field: str = "prompt",
        *,
        checked: bool = False,
        bound: meter.Bound = meter.DEFAULT,
    ) -> None:
        """Compile all contents, unless they are ``checked``. Raises `TemplateError` naming ``field``, message
        and line.
        """
        self._messages = tuple(
            (
                message.role,
                Template(f"{field}, message {number}", message.content, checked=checked, bound=bound),
            )
            for number, message in enumerate(messages, start=1)
        )

    @property
    def templates(self) -> tuple[Template, ...]:
        """The templates of its messages' contents."""
        return tuple(template for _, template in self._messages)

    def chars(self, row: Mapping[str, Any]) -> int | None:
        """Upper bound of the rendered characters; ``None`` if a message needs Jinja."""
        return chars_of((template for _, template in self._messages), variables(row))

    def render(self, row: Mapping[str, Any]) -> list[dict[str, str]]:
        """Chat messages for ``row``, as providers take them. Raises what `Template.render` raises."""
        names = variables(row)
        return [
            {"role": role, "content": template.render_variables(names)} for role, template in self._messages
        ]


def chars_of(templates: Iterable[Template], names: Mapping[str, Any]) -> int | None:
    """Upper bound of the rendered characters of all templates; ``None`` if one needs Jinja."""
    total = 0
    for template in templates:
        chars = template.chars(names)
        if chars is None:
            return None
        total += chars
    return total


def compile_template(field: str, text: str) -> Template:
    """``text`` as a template; errors call it ``field``. Raises `TemplateError` with the line at fault."""
    return Template(field, text)


def referenced_variables(text: str) -> frozenset[str]:
    """Names that ``text`` reads from a row, in any branch. ``text`` must compile."""
    if _MARKUP.search(text) is None:
        return frozenset()
    return frozenset(meta.find_undeclared_variables(ENVIRONMENT.parse(text)))


def check_templates(templates: Mapping[str, str]) -> frozenset[str]:
    """Compile every ``field → text`` and return all names they reference.

    Raises `TemplateError` for the first that does not compile.
    """
    names: frozenset[str] = frozenset()
    for field, text in templates.items():
        Template(field, text)
        names |= referenced_variables(text)
    return names


def compiled(field: str, text: str) -> JinjaTemplate:
    """The compiled template of ``text``. Raises `TemplateError` for ``field`` with the line at fault."""
    try:
        return _compiled(text)
    except TemplateSyntaxError as error:
        raise TemplateError(field, f"line {error.lineno}: {error.message}") from error
    except (ValueError, SyntaxError, RecursionError, MemoryError, OverflowError) as error:
        raise TemplateError(field, f"it cannot be compiled: {error}") from error


@lru_cache(maxsize=_COMPILED_KEPT)
def _compiled(text: str) -> JinjaTemplate:
    code = ENVIRONMENT.compile(ENVIRONMENT.parse_metered(text))
    return JinjaTemplate.from_code(ENVIRONMENT, code, {})
