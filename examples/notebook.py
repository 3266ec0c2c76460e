# %% [markdown]
# # Which of two prompts does a model answer better?
#
# A notebook as a script: VS Code, Spyder and Jupyter (by Jupytext) show its cells, and `python notebook.py`
# runs all of them.

# %%
"""Compare two prompts on the same questions, by an exact check and by a judge."""

from fairlane import Client, contains, llm_judge

client = Client(team="search")  # where Redis is, fairlane.toml and FAIRLANE_* say

# %% The questions. A path to a .jsonl, .json or .csv file does as well.
questions = [{"question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(20)]

# %% Submit returns at once; the run goes on, also without this notebook.
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

# %% In a notebook the bars are below the cell, elsewhere on standard error.
status = run.wait(progress=True, timeout=60)
print(f"{status.state}: {status.items_done} of {status.items} items")

# %% Each record is one item: row × prompt × model × repetition.
for record in list(run.results())[:4]:
    print(record.item, record.prompt, record.output, record.scores)

# %% Means with their standard errors, failures, tokens.
for name, scores in run.summary().scores.items():
    print(f"{name}: {scores.mean:.2f} ± {scores.standard_error:.2f} of {scores.count}")

# %%
client.close()
