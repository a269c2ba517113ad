"""Derived tables: pure functions from a run to small frames, cached beside the run."""
