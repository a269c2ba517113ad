"""Samples the devices and the host beside a job, in a process of its own."""
