"""Everything that is sampled, by name; each name ends in its unit, and means one thing everywhere.

A metric that several sources give is one metric: whose it was stands beside it as the source.
"""

from __future__ import annotations

UNITS = {
    # of a device: points
    "power_w": "W",
    "temperature_c": "°C",
    "memory_temperature_c": "°C",
    "sm_clock_mhz": "MHz",
    "sm_clock_max_mhz": "MHz",
    "memory_clock_mhz": "MHz",
    "memory_used_bytes": "bytes",
    "throttle_reasons": "bit mask",
    # of a device: means over the interval
    "power_mean_w": "W",
    "gpu_busy_share": "share",
    "memory_busy_share": "share",
    "graphics_busy_share": "share",
    "sm_busy_share": "share",
    "sm_occupancy_share": "share",
    "tensor_busy_share": "share",
    "fp64_busy_share": "share",
    "fp32_busy_share": "share",
    "fp16_busy_share": "share",
    "integer_busy_share": "share",
    "dram_busy_share": "share",
    "pcie_tx_bytes_per_s": "bytes/s",
    "pcie_rx_bytes_per_s": "bytes/s",
    "nvlink_tx_bytes_per_s": "bytes/s",
    "nvlink_rx_bytes_per_s": "bytes/s",
    # of a device: how much of it in the interval
    "energy_j": "J",
    "pcie_tx_bytes": "bytes",
    "pcie_rx_bytes": "bytes",
    "pcie_replays_count": "count",
    "nvlink_tx_bytes": "bytes",
    "nvlink_rx_bytes": "bytes",
    "throttled_power_s": "s",
    "throttled_thermal_s": "s",
    "throttled_sync_boost_s": "s",
    "throttled_board_limit_s": "s",
    "throttled_reliability_s": "s",
    "throttled_sw_thermal_s": "s",
    "throttled_hw_thermal_s": "s",
    "throttled_hw_power_brake_s": "s",
    "throttled_memory_thermal_s": "s",
    "throttled_regulator_thermal_s": "s",
    # of the host: points
    "run_queue_count": "count",
    "load_1min_count": "count",
    "memory_available_bytes": "bytes",
    "job_process_count": "count",
    # of the host: shares of the interval
    "cpu_share": "share",
    "job_cpu_share": "share",
    "cpu_pressure_share": "share",
    "memory_pressure_share": "share",
    "io_pressure_share": "share",
    # of the host: how much of it in the interval
    "context_switches_count": "count",
    "page_faults_count": "count",
    "major_page_faults_count": "count",
    "network_tx_bytes": "bytes",
    "network_rx_bytes": "bytes",
    "disk_read_bytes": "bytes",
    "disk_write_bytes": "bytes",
    "infiniband_tx_bytes": "bytes",
    "infiniband_rx_bytes": "bytes",
    "infiniband_wait_count": "count",
    "infiniband_discards_count": "count",
    "infiniband_receive_errors_count": "count",
    "infiniband_symbol_errors_count": "count",
    "infiniband_recoveries_count": "count",
    "infiniband_downs_count": "count",
}
"""Unit of each metric. Shares are fractions in [0, 1]; a "point" has no extent in time."""

THROTTLE_REASONS = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "display_clock_setting": 0x100,
}
"""Bits of `throttle_reasons`, those of nvmlClocksEventReasons in nvml.h."""
