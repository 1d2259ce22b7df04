"""What torch makes while somebody looks."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode


class Made(TorchFunctionMode):
    """Counts the entries and the bytes of every tensor that is made."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[int] = []
        self.bytes: list[int] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(made, Tensor):
            self.entries.append(made.numel())
            self.bytes.append(made.numel() * made.element_size())
        return made
