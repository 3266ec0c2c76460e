"""The scheduler: knows every budget and hands out only what may start now."""
