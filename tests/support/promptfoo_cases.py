"""Assertions, outputs, and whether these pass: the same for promptfoo and for us."""

from __future__ import annotations

from typing import Any

Case = tuple[dict[str, Any], str, bool]

FOX = "the quick brown fox"

CASES: list[Case] = [
    ({"type": "levenshtein", "value": "kitten", "threshold": 3}, "sitting", True),
    ({"type": "levenshtein", "value": "kitten", "threshold": 2}, "sitting", False),
    ({"type": "not-levenshtein", "value": "kitten"}, "sitting", False),
    ({"type": "levenshtein", "value": "", "threshold": 1}, "😀", False),
    ({"type": "levenshtein", "value": "", "threshold": 2}, "😀", True),
    ({"type": "contains-all", "value": '"a, b", c'}, "c a, b", True),
    ({"type": "contains-all", "value": '"a, b", c'}, "c b a", False),
    ({"type": "contains-any", "value": '"say ""x""", "\\\\"'}, 'say "x"', True),
    ({"type": "icontains-any", "value": ', "A,b" ,, z"q'}, 'Z"Q', True),
    ({"type": "rouge-n", "value": "the cat sat on the mat"}, "the cat sat on a mat", True),
    ({"type": "rouge-n", "value": "the cat sat on the mat"}, "a dog", False),
    ({"type": "bleu", "value": ["x", "the cat sat on the mat"]}, "The cat sat on the mat", True),
    ({"type": "bleu", "value": "the cat sat on the mat"}, "mat", False),
    ({"type": "word-count", "value": {"min": 2, "max": 3}}, "a b", True),
    ({"type": "word-count", "value": 3}, "a b", False),
    ({"type": "is-refusal"}, "I’m sorry, but I can't help with that.", True),
    ({"type": "not-is-refusal"}, "Paris", True),
    ({"type": "is-xml", "value": "a.b"}, "<a><b>1</b></a>", True),
    ({"type": "is-xml"}, "<a><b></a>", False),
    ({"type": "contains-xml", "value": {"requiredElements": ["x.b"]}}, "so: <a><b/></a>", False),
    ({"type": "contains-xml"}, "so: <a><b/></a>.", True),
    ({"type": "is-html"}, "<p>hi</p>", True),
    ({"type": "contains-html"}, "hi", False),
    ({"type": "contains", "value": "b", "transform": "output.toUpperCase()"}, "abc", False),
    ({"type": "javascript", "value": "0.4", "threshold": 0.5}, "", False),
    ({"type": "javascript", "value": "0.4"}, "", True),
    ({"type": "not-javascript", "value": "true"}, "", False),
    ({"type": "javascript", "value": "'yes'"}, "", False),
    ({"type": "javascript", "value": "nothing"}, "", False),
    ({"type": "javascript", "value": "context.config.n > 1", "config": {"n": 2}}, "", True),
    ({"type": "python", "value": "len(output) == 3"}, "abc", True),
    ({"type": "python", "value": "return {'pass_': True, 'score': 0.2}\n", "threshold": 0.5}, "", False),
    ({"type": "python", "value": '\'{"pass": true, "score": 1}\''}, "", True),
    ({"type": "is-json", "value": {"type": "object", "required": ["a"]}}, '{"a": 1}', True),
    ({"type": "contains-json"}, 'so: {"a": 1}', True),
    ({"type": "javascript", "value": "({pass: true, score: 0.1, reason: 'r'})"}, "x", True),
    ({"type": "javascript", "value": "const n = output.length; n > 2"}, "abc", True),
    ({"type": "javascript", "value": "JSON.parse(output).a === 1"}, '{"a": 1}', True),
    (
        {
            "type": "assert-set",
            "threshold": 0.5,
            "assert": [{"type": "contains", "value": "a"}, {"type": "contains", "value": "z"}],
        },
        "abc",
        True,
    ),
    (
        {
            "type": "assert-set",
            "assert": [{"type": "contains", "value": "a"}, {"type": "contains", "value": "z"}],
        },
        "abc",
        False,
    ),
    ({"type": "icontains-any", "value": ["X", "B"]}, "abc", True),
    ({"type": "starts-with", "value": "ab"}, "abc", True),
    ({"type": "python", "value": "import json\nreturn json.loads(output)['a'] == 1"}, '{"a": 1}', True),
    ({"type": "python", "value": "0.4", "threshold": 0.5}, "x", False),
    (
        {"type": "bleu", "value": "the quick brown fox jumps over the lazy dog"},
        "the quick brown fox leaps over the lazy dog",
        True,
    ),
    ({"type": "not-rouge-n", "value": "the cat sat on the mat"}, "the cat sat on the mat", False),
]

OURS: list[Case] = [
    ({"type": "min-length", "value": 3}, "abc", True),
    ({"type": "max-length", "value": "2"}, "abc", False),
    ({"type": "not-empty"}, " ", False),
    ({"type": "javascript", "value": "output === 'abc' && context.vars.word === 'hi'"}, "abc", True),
    ({"type": "javascript", "value": "context.prompt === 'Say hi'"}, "", True),
]
"""Those that promptfoo does not have, or that read what the test around them sets."""

_SCORED = "{'pass': True, 'score': 0.5, 'reason': 'x', 'namedScores': {'n': 0.5, 'm': 0.2}}"
_HAS_A, _HAS_Z = {"type": "contains", "value": "a"}, {"type": "contains", "value": "z"}

MEASURED: list[tuple[dict[str, Any], str, float, dict[str, float]]] = [
    (
        {
            "assert": [
                {**_HAS_A, "metric": "m", "weight": 3},
                {**_HAS_Z, "metric": "m"},
                {"type": "python", "value": _SCORED, "weight": 2},
            ]
        },
        *("a", 4 / 6, {"m": 3.4 / 6, "n": 0.5}),
    ),
    ({"assert": [{**_HAS_Z, "weight": 0, "metric": "w"}]}, "a", 0.0, {"w": 0.0}),
    ({"assert": [{**_HAS_A, "weight": 0, "metric": "w"}], "threshold": 0.5}, "a", 0.0, {"w": 0.0}),
    (
        {
            "assert": [
                {
                    **{"type": "assert-set", "threshold": 0.4, "weight": 2, "metric": "s"},
                    "assert": [{**_HAS_A, "metric": "k", "weight": 3}, {**_HAS_Z, "metric": "k"}],
                },
                _HAS_Z,
            ]
        },
        *("a", 0.5, {"s": 0.75, "k": 0.75}),
    ),
]
"""Tests, outputs, and the scores and named scores that promptfoo gives them."""
