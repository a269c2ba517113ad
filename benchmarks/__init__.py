"""Measurements of tracekit's own speed and memory: `python -m benchmarks`."""
