"""Attention masks, labels and positions of batches with padding."""

from __future__ import annotations

import torch
from torch import Tensor

from delayssm.layers.checks import check_lengths, check_positions, check_whole
from delayssm.system.spans import Spans


def spans_of(mask: Tensor | None, x: Tensor, seen: int) -> Spans | None:
    """Return where the tokens of each row of x are; None: everywhere.

    Args:
        mask: 1 for tokens, 0 for padding: as many columns as x has, or so many after those of earlier chunks.
        x: Tokens (B, L) or vectors (B, L, H).
        seen: Columns of earlier chunks.
    """
    if mask is None:
        return None
    rows, length = x.shape[:2]
    if mask.ndim != 2 or len(mask) != rows or mask.shape[1] not in (length, seen + length):
        earlier = f", or {seen + length} with those of earlier chunks" if seen else ""
        raise ValueError(
            f"attention_mask must have {rows} rows and {length} columns{earlier}, not shape {tuple(mask.shape)}"
        )
    if not bool(((mask == 0) | (mask == 1)).all()):
        raise ValueError("attention_mask must be 1 for tokens and 0 for padding")
    valid = mask[:, mask.shape[1] - length :] == 1
    if bool(valid.all()):
        return None
    start = valid.int().argmax(1)
    spans = Spans(start + valid.sum(1), start)
    broken = (valid == spans.padding(length).squeeze(-1)).any(1)
    if bool(broken.any()):
        raise ValueError(
            f"row {int(broken.int().argmax())} of attention_mask has padding between its tokens; a row may be padded "
            "on the left and on the right. To generate after padding on the right, leave use_cache on"
        )
    return check_lengths(spans, x)


def positions_of(keep: int | Tensor, x: Tensor, spans: Spans | None) -> Tensor | None:
    """Return the positions (B, T) of the last tokens of each row, or the given ones; None: all."""
    rows, length = x.shape[:2]
    if isinstance(keep, Tensor):
        at = keep.to(x.device).expand(rows, -1)
        check_positions(at, x)
        return at
    count = min(check_whole("logits_to_keep", keep), length)
    if count == 0:
        return None
    last = torch.arange(-count, 0, device=x.device)
    if spans is None or spans.start is None:
        return (length + last).expand(rows, -1)
    return (spans.stop.unsqueeze(1) + last).maximum(spans.start.unsqueeze(1)).clamp(max=length - 1)


def labels_that_count(labels: Tensor, spans: Spans | None) -> Tensor:
    """Return labels with -100 for padding, and for the first token of each row, which nothing precedes."""
    if spans is None or spans.start is None:
        return labels
    return labels.masked_fill(Spans(spans.stop, spans.start + 1).padding(labels.shape[1]).squeeze(-1), -100)


def check_prompts(mask: Tensor | None, in_chunks: bool) -> None:
    """Raise unless every row has a last token to go on from."""
    if mask is None:
        return
    empty = ~mask.bool().any(1)
    if bool(empty.any()):
        raise ValueError(f"row {int(empty.int().argmax())} of attention_mask has no token to go on from")
    if in_chunks and not bool(mask[:, -1].all()):
        raise ValueError("prompts that are padded on the right cannot be processed in chunks; pad them on the left")
