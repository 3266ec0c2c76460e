"""How often a lane that is down is asked, with the defaults of its circuit."""

from __future__ import annotations

FIRST_S, GROWTH, LONGEST_S = 1.0, 1.25, 60.0


def probes_within(seconds: float, takes_s: float = 0.0) -> int:
    """The most probes of a lane that is down for so long. Those that hang are overdue before they fail."""
    count, at_s, delay_s = 0, 0.0, FIRST_S
    while at_s + delay_s <= seconds:
        count, at_s, delay_s = count + 1, at_s + delay_s + takes_s, min(LONGEST_S, GROWTH * delay_s)
    return count
