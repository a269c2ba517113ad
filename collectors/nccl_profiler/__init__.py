"""What profiler plugins of NCCL wrote of its calls: NVIDIA's Inspector and its example plugin."""
