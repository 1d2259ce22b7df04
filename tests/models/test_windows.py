"""Training on gray images by products over windows, against torch's layers one after another."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from rffl_pl.models import CIFAR10CNN, MNISTCNN, windows
from tests.conftest import TORCHTEXTS

pytestmark = pytest.mark.skipif(TORCHTEXTS, reason="torch 2.3 does not go this way")


def loss(network: nn.Module, x: Tensor) -> Tensor:
    """Against the classes in turn."""
    return cross_entropy(network(x), torch.arange(len(x)) % 10)


def gradients(network: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
    """Of the weights."""
    return torch.autograd.grad(loss(network, x), [*network.parameters()])


def plain(network: MNISTCNN) -> nn.Sequential:
    """The same layers in double precision, as torch computes them."""
    return nn.Sequential(*copy.deepcopy(network)).double()


@pytest.fixture
def went(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether networks went this way, call by call, as on a CPU without AVX-512."""
    monkeypatch.setattr(windows, "_WITHOUT_AVX512", True)
    taken: list[bool] = []
    takes = windows.takes

    def watched(layers: nn.Sequential, x: Tensor) -> bool:
        taken.append(takes(layers, x))
        return taken[-1]

    monkeypatch.setattr(windows, "takes", watched)
    return taken


@pytest.mark.parametrize("count", [1, 3, 32])
def test_gradients_where_windows_are_equal(count: int, went: list[bool]) -> None:
    """Digits are mostly blank: of four equal pixels the first passes the gradient on."""
    torch.manual_seed(count)
    network = MNISTCNN()
    x = (torch.rand(count, 1, 32, 32) > 0.8).float()
    x[..., :10, :] = 0
    with torch.no_grad():
        network.get_parameter("0.weight")[::2] = 1.0  # sums of few gray levels are equal though their windows are not
    for ours, torchs in zip(gradients(network, x), gradients(plain(network), x.double()), strict=True):
        assert (ours - torchs).norm() <= 1e-5 * torchs.norm()
    assert went == [True]


@pytest.mark.parametrize("frozen", ["0.weight", "0.bias", "3.weight"])
def test_gradients_of_what_is_not_frozen(frozen: str, went: list[bool]) -> None:
    """The others'; and where the convolution itself learns nothing it goes through oneDNN."""
    torch.manual_seed(1)
    network, x = MNISTCNN(), torch.randn(5, 1, 32, 32)
    expected = dict(zip(dict(network.named_parameters()), gradients(plain(network), x.double()), strict=True))
    network.get_parameter(frozen).requires_grad_(False)
    loss(network, x).backward()
    for name, parameter in network.named_parameters():
        if name == frozen:
            assert parameter.grad is None
        else:
            assert parameter.grad is not None
            assert (parameter.grad - expected[name]).norm() <= 1e-5 * expected[name].norm()
    assert went == [frozen != "0.weight"]


def test_gradients_twice_of_one_loss(went: list[bool]) -> None:
    """The same bits: nothing that a second time needs is written over."""
    torch.manual_seed(2)
    network = MNISTCNN()
    found, weights = loss(network, torch.randn(4, 1, 32, 32)), [*network.parameters()]
    first, second = (torch.autograd.grad(found, weights, retain_graph=True) for _ in range(2))
    assert all(map(torch.equal, first, second))
    assert went == [True]


def test_gray_images_for_a_network_of_colours() -> None:
    """They are refused as ever, not read as if the next image were a colour of the one before."""
    for gradients_asked_for in (False, True):
        with torch.set_grad_enabled(gradients_asked_for), pytest.raises(RuntimeError, match="channels"):
            CIFAR10CNN()(torch.randn(6, 1, 32, 32))


def test_evaluation_goes_through_onednn(went: list[bool]) -> None:
    """Which is as fast and needs less memory."""
    with torch.inference_mode():
        MNISTCNN()(torch.randn(4, 1, 32, 32))
    assert went == [False]


def test_with_avx512_all_goes_through_onednn(went: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is the faster there."""
    monkeypatch.setattr(windows, "_WITHOUT_AVX512", False)
    loss(MNISTCNN(), torch.randn(4, 1, 32, 32)).backward()
    assert went == [False]
