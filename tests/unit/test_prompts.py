"""Templates over a row: what they render to, what they miss, and what they may not do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.core.errors import TemplateError
from fairlane.model.choices import Message
from fairlane.templates.meter import MAX_CHARS
from fairlane.templates.template import (
    Prompt,
    Template,
    check_templates,
    compile_template,
    referenced_variables,
    words_of,
)

ROW: dict[str, Any] = {
    "question": "What is <2+2> & 'so'?",
    "n": 3,
    "score": 0.5,
    "tags": ["red", "blue"],
    "user": {"name": "Ada", "items": [1, 2]},
    "plain": {"a": 1, "b": 2},
    "none": None,
    "my field": "spaced",
    "big": "x" * 900_000,
}


def rendered(text: str, **extra: Any) -> str:
    return compile_template("prompt", text).render(ROW, **extra)


def refusal(text: str) -> TemplateError:
    with pytest.raises(TemplateError) as caught:
        rendered(text)
    assert caught.value.template_field == "prompt"
    return caught.value


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("Q: {{ question }}\nA:", "Q: What is <2+2> & 'so'?\nA:"),
        ("ends in a line\n{{ n }}\n", "ends in a line\n3\n"),
        ("{{ user.name }} {{ user['name'].upper() }}", "Ada ADA"),
        ("{{ row['my field'] }} {{ row.n }}", "spaced 3"),
        ("{{ user.items }}", "[1, 2]"),
        ("{% for k, v in plain.items() %}{{ k }}{{ v }}{% endfor %}", "a1b2"),
        ("{% for t in tags %}{{ loop.index }}{{ t }}{{ '' if loop.last else '/' ~ loop.length }}{% endfor %}",
         "1red/22blue"),
        ("{% for tag in tags if tag != 'red' %}{{ tag }}{% else %}none{% endfor %}", "blue"),
        ("{% for tag in [] %}{{ tag }}{% else %}none{% endfor %}", "none"),
        ("{% if n > 2 and none is none %}many{% else %}few{% endif %}", "many"),
        ("{% set double = n * 2 %}{{ double + 1 }}", "7"),
        ("{% with a = n %}{{ a }}{% endwith %}", "3"),
        ("{% raw %}{{ n }}{% endraw %}{# a comment #}", "{{ n }}"),
        ("{{ missing|default('none') }}{{ missing is defined }}", "nonefalse"),
        ("{{ tags|join(', ') }} {{ ' '.join(tags) }}", "red, blue red blue"),
        ("{{ tags|map('upper')|list }} {{ tags|select('in', ['red'])|first }}", '["RED", "BLUE"] red'),
        ("{{ [{'a': 1}, {'a': 2}]|map(attribute='a')|sum }}", "3"),
        ("{{ [{'a': 1}, {'a': 2}]|selectattr('a', 'gt', 1)|list|length }}", "1"),
        ("{{ [{'a': {'b': 1}}]|join('-', attribute='a.b') }}", "1"),
        ("{{ question|replace('2', '3')|truncate(9, true) }}", "What i..."),
        ("{{ question|tojson }}", "\"What is <2+2> & 'so'?\""),
        ("{{ plain|tojson(indent=2) }}", '{\n  "a": 1,\n  "b": 2\n}'),
        ("{{ question[:4]|e }}{{ '<'|e }}", "What&lt;"),
        ("{{ '%.2f'|format(score) }} {{ '%s!' % n }} {{ '%(a)s'|format(a=1) }}", "0.50 3! 1"),
        ("{{ 'a\nb\n\nc'|indent(2) }}", "a\n  b\n\n  c"),
        ("{{ 'a\nb'|indent(1, true) }}", " a\n b"),
        ("{{ 1.256|round(1) }} {{ '7'|int + 1 }} {{ 'x'|int(5) }} {{ 'ff'|int(base=16) }}", "1.3 8 5 255"),
        ("{{ tags|sort|last }} {{ tags[0] }} {{ tags[-1][::-1] }}", "red red eulb"),
        ("{{ 'a' ~ n ~ 'b' }} {{ 2 ** 10 }} {{ 7 // 2 }} {{ 7 % 4 }} {{ -n }}", "a3b 1024 3 3 -3"),
        ("{{ 'ab' * 2 }}{{ 2 * 'c' }}{{ [1] * 2 }}{{ [1] + [2] }}", "ababcc[1, 1][1, 2]"),
        ("{{ '-'.join(['a', 'b']).replace('a', 'c').split('-') }}", '["c", "b"]'),
        ("{{ 'safe'|safe }} {{ tags }} {{ plain }}", 'safe ["red", "blue"] {"a": 1, "b": 2}'),
        ("{{ 'yes' if n is odd else 'no' }}", "yes"),
    ],
)  # fmt: skip
def test_a_template_renders_over_the_row(text: str, result: str) -> None:
    assert rendered(text) == result


@given(st.dictionaries(st.from_regex(r"\A[a-z]{1,8}\Z"), st.text(max_size=20), min_size=1))
def test_any_text_of_a_row_is_rendered_as_it_is(row: dict[str, str]) -> None:
    for name, text in row.items():
        assert compile_template("p", f"{{{{ row.{name} }}}}").render({**row, "row": row}) == text
        assert compile_template("p", f"<{{{{ row[{name!r}] }}}}>").render(row | {"row": row}) == f"<{text}>"


@given(st.text(max_size=40).filter(lambda text: "{" not in text))
def test_a_text_without_markup_is_constant(text: str) -> None:
    template = compile_template("p", text)
    assert template.constant
    assert template.render({}) == text.replace("\r\n", "\n").replace("\r", "\n")


def test_line_ends_are_the_same_with_and_without_markup() -> None:
    assert compile_template("p", "a\r\nb\r").render({}) == compile_template("p", "{{ 'a' }}\r\nb\r").render(
        {}
    )


@pytest.mark.parametrize("text", ["{{ n }}", "{% if n %}{% endif %}", "{# n #}"])
def test_a_text_with_markup_is_not_constant(text: str) -> None:
    assert not compile_template("p", text).constant


def test_a_field_named_row_hides_the_row() -> None:
    assert compile_template("p", "{{ row }}").render({"row": "own"}) == "own"


def test_extra_names_override_the_rows_fields() -> None:
    template = compile_template("p", "{{ output }} {{ row.output }}")
    assert template.render({"output": "field"}, output="answer") == "answer field"


def test_rendering_changes_no_row() -> None:
    row = {"a": [2, 1]}
    compile_template("p", "{% set a = a + [0] %}{{ a|sort }}{{ row.a|sort }}").render(row)
    assert row == {"a": [2, 1]}


@pytest.mark.parametrize(
    ("text", "variable"),
    [
        ("{{ nope }}", "nope"),
        ("{{ user.nope }}", "nope"),
        ("{{ user['nope'] }}", "nope"),
        ("{{ tags[7] }}", "7"),
        ("{{ nope.name }}", "nope"),
        ("{{ nope|upper }}", "nope"),
        ("{{ nope|tojson }}", "nope"),
        ("{{ [1, nope]|tojson }}", "nope"),
        ("{{ [nope] }}", "nope"),
        ("{{ nope ~ 'a' }}", "nope"),
        ("{{ nope + 1 }}", "nope"),
        ("{{ nope * 2 }}", "nope"),
        ("{{ -nope }}", "nope"),
        ("{{ nope > 1 }}", "nope"),
        ("{{ nope == 1 }}", "nope"),
        ("{{ nope in tags }}", "nope"),
        ("{{ nope() }}", "nope"),
        ("{{ nope|length }}", "nope"),
        ("{{ nope|int }}", "nope"),
        ("{% if nope %}{% endif %}", "nope"),
        ("{% for a in nope %}{% endfor %}", "nope"),
        ("{{ range(3) }}", "range"),
        ("{{ lipsum() }}", "lipsum"),
    ],
)
def test_a_missing_variable_is_named(text: str, variable: str) -> None:
    assert refusal(text).variable == variable


@pytest.mark.parametrize(
    "text",
    [
        "{{ 1 / 0 }}",
        "{{ 'a' + 1 }}",
        "{{ question.upper }}",
        "{{ tags|map('upper') }}",
        "{{ n() }}",
        "{{ 10.0 ** 999 }}",
    ],
)
def test_what_goes_wrong_while_rendering_misses_no_variable(text: str) -> None:
    assert refusal(text).variable is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("one\n{{ two", "line 2"),
        ("{% if n %}", "line 1"),
        ("\n\n{% for %}{% endfor %}", "line 3"),
        ("{{ n|nope }}", "no filter 'nope'; there are: abs"),
        ("{{ n is nope }}", "no test 'nope'; there are: boolean"),
        ("{% if false %}{{ n|nope }}{% endif %}", "no filter 'nope'"),
        ("{% nope %}", "line 1"),
        ("{{ " + "9" * 5000 + " }}", "cannot be compiled"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "cannot be compiled"),
        ("{{ a }}" * 20_000, "at most"),
        ("{{ 1" + " + 1" * 200_000 + " }}", "at most"),
        ("x" * (MAX_CHARS + 1), "at most"),
    ],
    ids=range(12),
)
def test_a_text_that_does_not_compile_is_refused_with_its_place(text: str, shown: str) -> None:
    with pytest.raises(TemplateError) as caught:
        compile_template("prompts[0]", text)
    assert caught.value.template_field == "prompts[0]"
    assert shown in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "{% include 'a' %}",
        "{% import 'a' as a %}",
        "{% from 'a' import b %}",
        "{% extends 'a' %}",
        "{% block a %}{% endblock %}",
        "{% macro a() %}{% endmacro %}",
        "{% call a() %}{% endcall %}",
        "{% set a %}b{% endset %}",
        "{% filter upper %}a{% endfilter %}",
        "{% autoescape true %}a{% endautoescape %}",
        "{% set a.b = 1 %}",
        "{% for a in tags recursive %}{{ loop(tags) }}{% endfor %}",
        "{% if n %}{% for a in tags %}{% macro b() %}{% endmacro %}{% endfor %}{% endif %}",
        "{{ user|attr('__class__') }}",
        "{{ 'a'|center(1000000000) }}",
        "{{ tags|batch(1000000000, 'x')|list }}",
        "{{ tags|random }}",
    ],
)
def test_a_statement_that_reaches_further_than_the_row_does_not_compile(text: str) -> None:
    with pytest.raises(TemplateError, match="line 1"):
        compile_template("prompt", text)


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ ''['__class__'] }}",
        "{{ user.__init__.__globals__ }}",
        "{{ (user.items|string).__class__ }}",
        "{{ tags|map(attribute='__class__')|list }}",
        "{{ user.get.__self__ }}",
        "{{ plain.items.func }}",
        "{{ self._TemplateReference__context }}",
        "{{ self.x }}",
        "{% for a in tags %}{{ loop._iterable }}{% endfor %}",
        "{% for a in tags %}{{ loop.__init__ }}{% endfor %}",
        "{{ question.format('a') }}",
        "{{ question.encode() }}",
        "{{ tags.append(1) }}",
        "{{ plain.update({}) }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ joiner.__init__.__globals__.os }}",
        "{{ dict.mro() }}",
        "{{ namespace(a=1).a }}",
        "{{ ['__class__']|map(attribute='__class__')|list }}",
        "{{ tags|sort(attribute='__class__')|list }}",
        "{{ question.format_map(user) }}",
        "{{ '{0.__class__}'.format(question) }}",
        "{{ '%(__class__)s'|format(a=1) }}",
        "{{ get_flashed_messages.__globals__ }}",
        "{{ row.__class__ }}{{ row['__class__'] }}",
        "{{ loop.__class__ }}",
        "{{ plain.pop('a') }}",
    ],
)
def test_a_template_sees_nothing_but_data(text: str) -> None:
    refusal(text)


DOUBLED = 60


@pytest.mark.parametrize(
    "text",
    [
        "{{ 'a' * 10**9 }}",
        "{{ 10**9 * 'a' }}",
        "{{ [0] * 10**9 }}",
        "{{ [[0] * 1000] * 100000 }}",
        "{{ 10 ** (10 ** 10) }}",
        "{% set a = 10 ** 1000 %}{{ a * a }}",
        "{% set a = 'x' * 1000 %}" + "{% set a = a ~ a %}" * DOUBLED + "{{ a }}",
        "{% set a = 'x' * 1000 %}" + "{% set a = a + a %}" * DOUBLED + "{{ a }}",
        "{% set a = [1] %}" + "{% set a = a + a %}" * DOUBLED + "{{ a }}",
        "{% set a = [1] %}" + "{% set a = [a, a] %}" * DOUBLED + "{{ a }}",
        "{% set a = [1] %}" + "{% set a = {'a': a, 'b': a} %}" * DOUBLED + "{{ a }}",
        "{% set a, b = [1], [1] %}" + "{% set a, b = [a, a], [b, b] %}" * DOUBLED + "{{ a == b }}",
        "{% set a = 1 %}" + "{% with a = [a, a] %}" * 30 + "{{ a }}" + "{% endwith %}" * 30,
        "{% for a in big %}{% for b in big %}{% endfor %}{% endfor %}",
        "{% for a in big %}{% for b in big %}{{ a in big }}{% endfor %}{% endfor %}",
        "{% for a in [1] * 100000 %}{{ big == big ~ '' }}{% endfor %}",
        "{% for a in [1] * 100000 %}{{ big[1:] }}{% endfor %}",
        "{% for a in [1] * 100000 %}{{ big.count('y') }}{% endfor %}",
        "{{ big }}{{ big }}",
        "{{ big|replace('x', big) }}",
        "{{ big.replace('x', big) }}",
        "{{ big|join(big) }}",
        "{{ big.join(['a'] * 1000) }}",
        "{{ [big] * 1000000 }}",
        "{% set l = [big] * 50 %}{{ l|map('replace', 'x', 'y')|list|length }}",
        "{{ '%999999999d'|format(1) }}",
        "{{ '%999999999d' % 1 }}",
        "{{ '%.999999999f' % 1 }}",
        "{{ '%*d' % (999999999, 1) }}",
        "{{ '%(a)s%(a)s%(a)s'|format(a=big) }}",
        "{{ ('%s' * 5000) % big }}",
        "{{ 'a'.ljust(10**9) }}",
        "{{ ('\n' * 900000)|indent(1000) }}",
        "{{ ('f' * 100000)|int(base=16) * 2 ** 4000 }}{{ nope }}",
        "{{ ([1] * 300000)|map('string')|map('upper')|list }}",
        "{% for a in range(10**9) %}{% endfor %}",
        "{{ range(10**9)|list|length }}",
        "{{ 9 ** (9 ** (9 ** 9)) }}",
        "{{ '%c%c'|format(10**9, 1) }}",
        "{{ 'a,' * 500000 ~ big }}",
        "{{ (big ~ ',').split('x')|join(big) }}",
        "{% for a in [1] * 1000 %}{% for b in [1] * 1000 %}{% for c in [1] * 1000 %}{% endfor %}{% endfor %}"
        "{% endfor %}",
        "{% for a in [1] * 1000 %}{% for b in [1] * 1000 %}{{ b }}{% endfor %}{% endfor %}",
        "{{ ([big] * 100)|unique|list|join ~ ([big] * 100)|join }}",
        "{{ {'a': big, 'b': big}|tojson }}",
        "{{ ('(' * 100000)|replace('(', '((')|replace('(', '((')|replace('(', '((((((((((') }}",
    ],
    ids=range(46),
)  # fmt: skip
@pytest.mark.timeout(20)
@pytest.mark.slow
def test_a_template_bomb_is_refused_before_it_goes_off(text: str) -> None:
    refusal(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no markup { at all }}", 0),
        ("{{ a }}", 3),
        ("long text {{ a }} more {# a remark #} {% if a %}b{% endif %}", 3 + 4 + 3),
        ("{{ a + 'b c d' }}", 5),
    ],
)
def test_only_markup_is_counted_as_work_to_compile(text: str, words: int) -> None:
    assert words_of(text, 1000) == words


def test_counting_ends_at_its_bound_and_where_the_text_is_wrong() -> None:
    assert words_of("{{ a }}" * 1_000_000, 50) == 51
    assert words_of("{{ a }}{{ 'b", 50) <= 5


def test_large_rows_render_while_they_stay_within_the_bounds() -> None:
    assert len(rendered("{{ big|trim|upper }}")) == 900_000
    documents = [{"title": f"t{n}", "text": "word " * 20} for n in range(2000)]
    text = "{% for d in documents %}{{ loop.index }}. {{ d.title|upper }}: {{ d.text|trim }}\n{% endfor %}"
    assert compile_template("p", text).render({"documents": documents}).count("\n") == 2000


def test_one_rendering_leaves_the_next_its_whole_allowance() -> None:
    template = compile_template("p", "{% for a in [1] * 20000 %}{{ a }}{% endfor %}")
    assert len({template.render({}) for _ in range(20)}) == 1


def test_a_prompt_renders_its_messages() -> None:
    prompt = Prompt((Message(role="system", content="Be {{ tone }}."), Message(role="user", content="Hello")))
    assert prompt.render({"tone": "brief"}) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
    ]


def test_a_prompts_error_says_which_message() -> None:
    prompt = Prompt(
        (Message(role="system", content="a"), Message(role="user", content="{{ b }}")), "prompts[1]"
    )
    with pytest.raises(TemplateError) as caught:
        prompt.render({})
    assert caught.value.template_field == "prompts[1], message 2"
    with pytest.raises(TemplateError, match=r"prompt, message 1: line 1"):
        Prompt((Message(role="user", content="{{"),))


def test_a_text_is_compiled_once() -> None:
    text = "{{ compiled_once }}"
    assert Template("a", text)._body is Template("b", text)._body


def test_referenced_variables_are_those_of_the_row() -> None:
    text = "{% set a = b %}{{ a }}{% for c in d %}{{ c.e }}{% endfor %}{{ row['f'] }}"
    assert referenced_variables(text) == {"b", "d", "row"}
    assert referenced_variables("no markup") == frozenset()


def test_checking_templates_names_the_first_that_is_broken() -> None:
    assert check_templates({"prompt": "{{ a }}", "evaluators.template": "{{ output }}"}) == {"a", "output"}
    with pytest.raises(TemplateError) as caught:
        check_templates({"prompt": "{{ a }}", "evaluators.template": "{{"})
    assert caught.value.template_field == "evaluators.template"
