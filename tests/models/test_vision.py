"""The networks for images compute what the paper's do, with less work."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from rffl_pl.models import CIFAR10CNN, MNISTCNN
from rffl_pl.training.parameters import layer_sizes


def test_size_of_the_papers_network() -> None:
    """D = 104,242 for MNIST."""
    assert sum(layer_sizes(MNISTCNN())) == 104242


PAPER_MNIST = ["Conv2d", "Tanh", "MaxPool2d"] * 2 + ["Flatten", "Linear", "Tanh", "Linear"]
PAPER_CIFAR10 = ["Conv2d", "ReLU", "MaxPool2d"] * 2 + ["Conv2d", "ReLU", "Flatten", "Linear", "ReLU", "Linear"]


@pytest.mark.parametrize("size", [30, 31, 32, 33])
@pytest.mark.parametrize(
    ("network", "channels", "layers"),
    [(MNISTCNN(), 1, PAPER_MNIST), (CIFAR10CNN(), 3, PAPER_CIFAR10)],
    ids=["MNIST", "CIFAR10"],
)
def test_less_work_gives_the_same_values(network: nn.Sequential, channels: int, layers: list[str], size: int) -> None:
    """The paper's order, activation before pooling, of whole images: the same logits and gradients of the same weights.

    The gradients in double precision, where no rounding turns a tie of the pooling over.
    """
    modules = list(network)
    for i, module in enumerate(modules[:-1]):
        if isinstance(module, nn.MaxPool2d):
            modules[i : i + 2] = [modules[i + 1], module]
    assert [type(module).__name__ for module in modules] == layers
    paper = nn.Sequential(*modules)
    x = torch.randn(4, channels, size, size, generator=torch.Generator().manual_seed(0))
    assert network(x).shape == (4, 10)
    assert torch.allclose(network(x), paper(x), atol=1e-6)
    with torch.inference_mode():
        assert torch.allclose(network(x), paper(x), atol=1e-6)
    try:
        found, expected = (
            torch.autograd.grad(cross_entropy(net.double()(x.double()), torch.arange(4)), list(network.parameters()))
            for net in (network, paper)
        )
    finally:
        network.float()
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("size", [29, 34])
def test_images_of_another_size_do_not_fit(size: int) -> None:
    """They are not cut to what does."""
    for network, channels in ((MNISTCNN(), 1), (CIFAR10CNN(), 3)):
        with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
            network(torch.zeros(2, channels, size, size))
