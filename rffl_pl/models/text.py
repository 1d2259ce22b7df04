"""Networks for sentences."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag, linear, pad

from rffl_pl.errors import check_share
from rffl_pl.models.eager import eager, hooked
from rffl_pl.models.sizes import check_room, check_sizes

_WINDOW = 3


class TextCNN(nn.Module):
    """The paper's network for MR and SST: token ids ``[B, L]`` (0 is padding) to logits ``[B, classes]``.

    Embedding, trained from scratch; three parallel convolutions of width 3; ReLU; maximum over the sentence; dropout;
    linear (after Kim 2014, https://arxiv.org/abs/1408.5882). Windows that lie in the padding do not count, so that a
    sentence's logits do not depend on the batch it is in; sentences of one or two words are padded to three.

    Args:
        vocabulary: Number of token ids.
        classes: Number of classes.
        width: Entries of an embedding.
        kernels: Kernels of each of the three convolutions.
        dropout: Probability with which a feature is dropped in training.

    Raises:
        UserError: If a size is below 1, they do not fit into memory, or `dropout` is out of range.
    """

    def __init__(
        self, *, vocabulary: int = 20_000, classes: int = 2, width: int = 300, kernels: int = 128, dropout: float = 0.5
    ) -> None:
        check_sizes(vocabulary=vocabulary, classes=classes, width=width, kernels=kernels)
        check_room("TextCNN", vocabulary * width + 3 * kernels * (_WINDOW * width + classes))
        check_share("--model.network.dropout", dropout, "0 drops none", within="[0, 1)")
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=0)
        self.convolutions = nn.ModuleList(nn.Conv1d(width, kernels, _WINDOW) for _ in range(3))
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(3 * kernels, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = pad(x, (0, max(0, _WINDOW - x.shape[1])))
        windows = (x != 0).sum(1).clamp_min(_WINDOW) - (_WINDOW - 1)
        outside = torch.arange(x.shape[1] - (_WINDOW - 1), device=x.device) >= windows.unsqueeze(1)
        # ReLU behind the maximum: the same values.
        logits: Tensor = self.linear(self.dropout(self._strongest(x, outside).relu()))
        return logits

    def _strongest(self, x: Tensor, outside: Tensor) -> Tensor:
        """The strongest response of each kernel to a window that is not ``outside``, ``[B, 3 kernels]``."""
        if any(map(hooked, self.convolutions)):  # pruning and weight_norm make the weights there
            responses = torch.cat([convolution(self.embedding(x).mT) for convolution in self.convolutions], 1)
            return responses.masked_fill(outside.unsqueeze(1), -torch.inf).amax(2)
        kernels = [convolution for convolution in self.convolutions if isinstance(convolution, nn.Conv1d)]
        weight = torch.cat([kernel.weight for kernel in kernels])
        bias = torch.cat([kernel.bias for kernel in kernels if kernel.bias is not None])
        strongest = self._of_words(x, weight, outside) if self._separable(x) else self._of_windows(x, weight, outside)
        return strongest + bias

    def _of_windows(self, x: Tensor, weight: Tensor, outside: Tensor) -> Tensor:
        """`_strongest` without bias, by one matrix product over all windows."""
        windows = self.embedding(x).unfold(1, _WINDOW, 1).flatten(2)
        responses = linear(windows, weight.flatten(1))
        return responses.masked_fill(outside.unsqueeze(2), -torch.inf).amax(1)

    def _of_words(self, x: Tensor, weight: Tensor, outside: Tensor) -> Tensor:
        """`_strongest` without bias, by one matrix product over a batch's different words, of which windows add three.

        Only the strongest window passes a gradient on. On the CPU a step takes less than half as long.
        """
        words, place = x.unique(return_inverse=True)
        rows = linear(self.embedding(words), weight.permute(2, 0, 1).flatten(0, 1)).view(_WINDOW * len(words), -1)
        rows = rows.to(torch.promote_types(rows.dtype, torch.float32))
        summands = (_WINDOW * place).unfold(1, _WINDOW, 1) + torch.arange(_WINDOW)  # [B, windows, 3], of the rows
        with torch.no_grad():
            responses = embedding_bag(summands.flatten(0, 1), rows, mode="sum").view(*outside.shape, -1)
            winners = responses.masked_fill_(outside.unsqueeze(2), -torch.inf).max(1).indices
            summands = summands.gather(1, winners.unsqueeze(2).expand(-1, -1, _WINDOW)).movedim(2, 0)
        # Not by indexing, whose gradient torch adds up in whatever order its threads come.
        return rows.gather(0, summands.flatten(0, 1)).view(summands.shape).sum(0)

    def _separable(self, x: Tensor) -> bool:
        """Whether a word's embedding depends on that word alone, and windows may be taken apart."""
        plain = type(self.embedding) is nn.Embedding and not self.embedding.scale_grad_by_freq
        return plain and eager([self.embedding, *self.convolutions], x)
