"""Placeholder."""
from fairlane.evaluators.scorers import Score
def parse_choice(text, choices):
    for k,v in choices.items():
        if k in text.lower(): return Score(v)
    return Score(None,"no choice")
