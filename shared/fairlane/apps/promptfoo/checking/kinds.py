"""Which assertions there are, and why others are refused."""

from __future__ import annotations

from fairlane.apps.promptfoo.checking.checks import COMPARES, LOCAL, PROGRAMS
from fairlane.apps.promptfoo.grading.graders import GRADERS
from fairlane.evaluators.assertions import NOT, TYPES

RUBRIC, SIMILAR = "llm-rubric", "similar"
GRADED = frozenset((*GRADERS, "select-best"))
"""Assertions that ask models."""

_KNOWN = frozenset((*TYPES, *LOCAL, *PROGRAMS, *GRADED, *COMPARES))
_REMEDIES = {
    "ruby": "programs are run if they are JavaScript or Python",
    "webhook": "nothing but models is called: write the check in JavaScript or Python",
    "moderation": "no model of moderation is called: use llm-rubric",
    "classifier": "no classifier is called: use llm-rubric",
    "search-rubric": "no search is made: use llm-rubric",
    "agent-rubric": "no agent is run: use llm-rubric",
    "conversation-relevance": "use llm-rubric, over the conversation in its text",
    "pi": "use llm-rubric",
    "perplexity": "log probabilities are not kept",
    "perplexity-score": "log probabilities are not kept",
    "guardrails": "answers' guardrails are not kept",
    "meteor": "use rouge-n or bleu",
    "gleu": "use bleu",
    "is-sql": "write it in Python, with the parser of your dialect",
    "contains-sql": "write it in Python, with the parser of your dialect",
    "trace": "calls leave no traces here",
    "trajectory": "calls leave no traces here",
    "skill-used": "no agents are run",
    "tool-call-f1": "write it in JavaScript or Python",
    "promptfoo": "nothing is attacked",
}


def refusal_of(kind: str) -> str | None:
    """Why an assertion of this type is refused; ``None`` if it is supported."""
    name = kind.removeprefix(NOT)
    if name in _KNOWN:
        return None
    unsupported = f"the assertion {kind} is not supported"
    first = name.partition(":")[0]
    remedy = _REMEDIES.get(first) or _REMEDIES.get(first.partition("-")[0])
    return f"{unsupported}: {remedy}" if remedy else unsupported
