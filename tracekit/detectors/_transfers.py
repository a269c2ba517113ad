"""What detectors of transfers share."""

from __future__ import annotations

ON_HOSTS = (
    "collectives of hosts (gloo) share the processors with the training: how long they take is not "
    "the network's. Record a job on GPUs."
)
"""Why nothing is said of transfers on hosts."""
