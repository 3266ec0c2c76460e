"""Benchmarks: named, repeatable, on real processes and real HTTP; they print ratios, never fail on time."""
