# %% [markdown]
# # Which of two prompts is better?
#
# A notebook as a script. VS Code, Spyder and Jupyter (with Jupytext) show its cells; `python notebook.py`
# runs them all.

# %%
"""Compare two prompts on the same questions, with a text check and a judge."""

from fairlane import Client, contains, llm_judge

client = Client(team="search")  # finds Redis by fairlane.toml and FAIRLANE_*

# %% The questions. This may also be a path to a .jsonl, .json or .csv file.
questions = [{"question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(20)]

# %% Submit returns at once. The run continues even if you close this notebook.
run = client.submit(
    questions,
    prompts=["{{ question }}", "Answer with a number alone. {{ question }}"],
    model="sim:fast",
    params={"max_tokens": 32},
    evaluators=[
        contains("answer"),
        llm_judge(
            "sim:judge", "Is {{ output }} the answer to {{ question }}? Say yes or no.", {"yes": 1, "no": 0}
        ),
    ],
    name="two prompts",
)

# %% A notebook shows the bars below the cell, a terminal on standard error.
status = run.wait(progress=True, timeout=60)
print(f"{status.state}: {status.items_done} of {status.items} items")

# %% Each record is one item: row × prompt × model × repetition.
for record in list(run.results())[:4]:
    print(record.item, record.prompt, record.output, record.scores)

# %% Mean scores with their standard errors.
for name, scores in run.summary().scores.items():
    print(f"{name}: {scores.mean:.2f} ± {scores.standard_error:.2f} of {scores.count}")

# %%
client.close()
