"""Lengths of the samples of a batch, as far as a callback sees the batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def lengths(batch: Any) -> list[int]:
    """Tokens of each sample of a batch of text; none of a batch of anything else.

    A tensor on a device is not read, which would make the loop wait: its samples count as long as
    they are padded to.
    """
    if not isinstance(batch, Mapping):
        return []
    mask = batch.get("attention_mask")
    if mask is not None and mask.ndim == 2 and mask.device.type == "cpu":
        return [int(each) for each in mask.sum(1).tolist()]
    tokens = batch.get("input_ids")
    if tokens is None or tokens.ndim != 2:
        return []
    n_samples, n_tokens = map(int, tokens.shape)
    return [n_tokens] * n_samples
