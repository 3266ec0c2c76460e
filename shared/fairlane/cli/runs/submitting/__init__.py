"""Commands that submit a run, and the reading of their options: parameters, evaluators, prompts and rows.

`fairlane.cli.runs` lists them, applications share the options; it imports the folder above and the client.
"""
