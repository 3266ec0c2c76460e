"""The graders' default prompts, where a configuration has none of its own."""

FACTUALITY = """\
Compare a submitted answer with an expert's answer to the same task. Look at the facts alone,
not at style, grammar or punctuation.

<task>
{{ input }}
</task>

<expert>
{{ ideal }}
</expert>

<submission>
{{ completion }}
</submission>

Which of these is true?
A: the submission has part of the expert's facts and contradicts none.
B: the submission has all of the expert's facts and more, and contradicts none.
C: the submission has exactly the expert's facts.
D: the submission and the expert disagree about a fact.
E: they differ, but in nothing that matters for the facts.

Answer with JSON alone: {"category": "<the letter>", "reason": "<why>"}"""

CLOSED_QA = """\
Decide whether a submission meets a criterion.

<task>
{{ input }}
</task>

<submission>
{{ completion }}
</submission>

<criterion>
{{ criteria }}
</criterion>

Reason first, step by step. Then write Y if the submission meets the criterion, or N if it does not, alone
on the last line."""

QUESTION = """\
Write the question that this text answers best. Write the question and nothing else.

<answer>
{{ answer }}
</answer>"""

RECALL = """\
Check which sentences of a text follow from a context.

<context>
{{ context }}
</context>

<text>
{{ groundTruth }}
</text>

Write each sentence of the text on a line of its own, and nothing else. End its line with
[Attributed] if it follows from the context, else with [Not Attributed]."""

RELEVANCE = """\
Find what a context says that is needed to answer a question.

<context>
{{ context }}
</context>

<question>
{{ query }}
</question>

Copy those sentences of the context, unchanged, each on a line of its own, and write nothing else. If
the context has none, write: Insufficient Information"""

STATEMENTS = """\
Take an answer apart into short statements that can be checked one by one, each understandable
without the others.

<question>
{{ question }}
</question>

<answer>
{{ answer }}
</answer>

Write each statement on a line of its own, and nothing else."""

SUPPORTED = """\
Decide for each statement whether a context supports it.

<context>
{{ context }}
</context>

<statements>
{{ statements | join('\\n') }}
</statements>

Explain each in a sentence. Then end with one line, in the order of the statements, in this form:
Final verdict for each statement in order: Yes. No. Yes."""

STEPS = """\
Somebody judges a text by these criteria:

<criteria>
{{ criteria }}
</criteria>

Write three or four short steps by which to judge any text.
Answer with JSON alone: {"steps": ["<step>", "<step>"]}"""

SCORED = """\
Judge a reply to a source text.

<criteria>
{{ criteria }}
</criteria>

<steps>
- {{ steps }}
</steps>

<source>
{{ input }}
</source>

<reply>
{{ output }}
</reply>

Give a score from 0, which misses the criteria, to {{ maxScore }}, which meets them all.
Answer with JSON alone: {"score": <number>, "reason": "<why>"}"""

BEST = """\
Compare texts by this criterion: {{ criteria }}
{% for output in outputs %}
<text index="{{ loop.index0 }}">
{{ output }}
</text>
{% endfor %}
Which text meets the criterion best? Answer with its index alone."""
