"""Callbacks of training frameworks: each marks the steps of its loop for `tracekit.collect`.

A framework is imported by the module named after it, and by nothing else.
"""
