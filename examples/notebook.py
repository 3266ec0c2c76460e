# %% [markdown]
# # Which of two prompts is better?
#
# A notebook as a script. VS Code, Spyder and Jupyter (with Jupytext) show its cells; `python notebook.py`
# runs them all.

# %%
"""Compare two prompts on the same questions, by the number in the answer and by a judge."""

from statistics import fmean

from fairlane import Client, llm_judge, numeric_match

client = Client(team="search")  # finds Redis by fairlane.toml and FAIRLANE_*

# %% The questions. This may also be a path to a .jsonl, .json or .csv file.
questions = [{"question": f"What is {n} + {n + 7}?", "answer": str(2 * n + 7)} for n in range(100)]

# %% Submit returns at once. The run continues even if you close this notebook.
run = client.submit(
    questions,
    prompts=[
        "Answer with a number alone. {{ question }}",
        "Think step by step, and end with the number. {{ question }}",
    ],
    model="sim:small",
    evaluators=[
        numeric_match("answer"),
        llm_judge(
            "sim:judge", "Is {{ output }} the answer to {{ question }} Say yes or no.", {"yes": 1, "no": 0}
        ),
    ],
    name="two prompts",
)

# %% A notebook shows the bars below the cell, a terminal on standard error.
status = run.wait(progress=True, timeout=60)
print(f"{status.state}: {status.items_done} of {status.items} items")

# %% Each record is one item: row × prompt × model × repetition. A judge's reason is beside its score.
for record in list(run.results())[:4]:
    print(record.item, record.prompt, record.scores, record.arguments.get("llm_judge"))

# %% What each prompt scores, and what its answers cost in tokens.
for number, prompt in enumerate(["a number alone", "step by step"]):
    records = [record for record in run.results() if record.prompt == number]
    tokens = fmean(record.usage.output_tokens or 0 for record in records)
    found, judged = (
        fmean(record.scores[name] or 0 for record in records) for name in ("numeric_match", "llm_judge")
    )
    print(f"{prompt}: {found:.2f} by the number, {judged:.2f} by the judge, {tokens:.0f} tokens an answer")

# %%
client.close()
