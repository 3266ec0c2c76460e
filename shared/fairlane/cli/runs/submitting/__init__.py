"""Commands that submit a run, and what their options become: parameters, evaluators, prompts and rows.

`fairlane.cli.runs` lists them, applications share the options; it imports the folder above and the client.
"""
