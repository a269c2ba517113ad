"""Exports of Nsight Systems, taken apart: opened, told by process and device, turned into rows."""
