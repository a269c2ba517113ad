"""What detectors of transfers share."""

from __future__ import annotations

ON_HOSTS = (
    "no step of a device is in the traces: collectives of hosts (gloo) share the processors with "
    "the training, and calls alone tell no steps. Record a job on GPUs with the profiler."
)
"""Why nothing is said of transfers on hosts, or of calls without steps."""
