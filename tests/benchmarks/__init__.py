"""Benchmarks: named, repeatable, on real processes and real HTTP; they print ratios and are never timed tests."""
