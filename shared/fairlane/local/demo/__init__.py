"""The demonstration: 1,319 grade-school questions, two lanes with different limits, a judge on a third."""
