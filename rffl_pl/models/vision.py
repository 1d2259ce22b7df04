"""Networks for images.

Max-pooling comes before tanh and ReLU: the same values, since both are monotone, for less work. What pooling leaves out
of an odd number of rows and columns is not computed in the first place: the same values and gradients again.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rffl_pl.models import onednn, windows
from rffl_pl.models.sizes import check_room, check_sizes


class _Images(nn.Sequential):
    """Networks that make nothing of an image's rows and columns beyond the 30th: pooling drops an odd one behind them.

    Images that are not of 30 to 33 rows and columns are left as they are: they do not fit. So are those of who has put
    other layers in the place of these.
    """

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__(*layers)
        self._made = _layout(self)

    def forward(self, x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling() and self._fits(x):  # who compiles or exports reads the layers alone
            x = x[..., :30, :30]
            if onednn.takes(self, x):
                return windows.forward(self, x) if windows.takes(self, x) else onednn.forward(self, x)
        logits: Tensor = super().forward(x)  # type: ignore[no-untyped-call]
        return logits

    def _fits(self, x: Tensor) -> bool:
        """Whether these are images of that size, and no symbol of a tracer, and the layers those that were made."""
        sized = isinstance(x, Tensor) and x.dim() == 4 and all(30 <= size <= 33 for size in x.shape[2:])
        return sized and _layout(self) == self._made


def _layout(layers: nn.Sequential) -> list[tuple[object, ...]]:
    """What of layers says which pixels they read, and how they can be computed."""
    options = ("kernel_size", "stride", "padding", "dilation", "groups", "padding_mode", "ceil_mode")
    return [
        (type(layer), layer._parameters.get("bias") is None, *(vars(layer).get(name) for name in options))
        for layer in layers
    ]


class MNISTCNN(_Images):
    """The paper's network for MNIST: images ``[B, 1, 32, 32]`` to logits ``[B, classes]``.

    Convolution 1 to 64 (3x3), tanh, max-pool 2; convolution 64 to 16 (7x7), tanh, max-pool 2; 256 to 200, tanh; 200
    to ``classes``. With 10 classes D = 104,242.

    Args:
        classes: Number of classes.

    Raises:
        UserError: If a size is below 1, or they do not fit into memory.
    """

    def __init__(self, *, classes: int = 10) -> None:
        check_sizes(classes=classes)
        check_room("MNISTCNN", 200 * classes)
        super().__init__(
            nn.Conv2d(1, 64, 3),
            nn.MaxPool2d(2),
            nn.Tanh(),
            nn.Conv2d(64, 16, 7),
            nn.MaxPool2d(2),
            nn.Tanh(),
            nn.Flatten(),
            nn.Linear(256, 200),
            nn.Tanh(),
            nn.Linear(200, classes),
        )


class CIFAR10CNN(_Images):
    """The paper's network for CIFAR-10: images ``[B, 3, 32, 32]`` to logits ``[B, classes]``.

    Convolutions 3 to 32 to 64 to 64 (3x3), each with ReLU, max-pool 2 after the first two; 1024 to 64, ReLU; 64 to
    ``classes``.

    Args:
        classes: Number of classes.

    Raises:
        UserError: If a size is below 1, or they do not fit into memory.
    """

    def __init__(self, *, classes: int = 10) -> None:
        check_sizes(classes=classes)
        check_room("CIFAR10CNN", 64 * classes)
        super().__init__(
            nn.Conv2d(3, 32, 3),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(64, 64, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(1024, 64),
            nn.ReLU(),
            nn.Linear(64, classes),
        )


class Perceptron(nn.Sequential):
    """One hidden layer with tanh: inputs of any shape with ``inputs`` entries to logits ``[B, classes]``.

    Args:
        inputs: Entries of one input.
        hidden: Width of the hidden layer.
        classes: Number of classes.

    Raises:
        UserError: If a size is below 1 or they do not fit into memory.
    """

    def __init__(self, inputs: int = 64, hidden: int = 64, classes: int = 10) -> None:
        check_sizes(inputs=inputs, hidden=hidden, classes=classes)
        check_room("Perceptron", (inputs + classes) * hidden)
        super().__init__(nn.Flatten(), nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, classes))
