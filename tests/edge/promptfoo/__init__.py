"""promptfoo's own command beside ours."""
