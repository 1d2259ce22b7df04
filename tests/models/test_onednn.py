"""Networks for images in oneDNN's own layout, against torch's layers one after another."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.fx import symbolic_trace
from torch.nn.functional import cross_entropy

from rffl_pl.models import CIFAR10CNN, MNISTCNN, onednn, windows
from tests.conftest import TORCHTEXTS

NETWORKS: dict[str, tuple[Callable[[], nn.Sequential], int]] = {"MNIST": (MNISTCNN, 1), "CIFAR10": (CIFAR10CNN, 3)}
LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "channels last": lambda x: torch.empty_like(x, memory_format=torch.channels_last).copy_(x),
    "a part": lambda x: x[1:, :, 1:, :-1],
}


@pytest.fixture(params=[True, False], ids=["without AVX-512", "with AVX-512"])
def kind_of_cpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gray images are trained on in one way without and in another with these instructions."""
    monkeypatch.setattr(windows, "_WITHOUT_AVX512", request.param)


goes_this_way = pytest.mark.skipif(TORCHTEXTS, reason="torch 2.3 does not go this way")


def made(name: str, seed: int = 0) -> tuple[nn.Sequential, nn.Sequential, Tensor]:
    """A network, the same layers with the same weights as a plain chain, and images."""
    torch.manual_seed(seed)
    network = NETWORKS[name][0]()
    return network, nn.Sequential(*copy.deepcopy(network)), torch.randn(7, NETWORKS[name][1], 32, 32)


def gradients(network: nn.Module, x: Tensor) -> tuple[Tensor, ...]:
    """Of the weights."""
    return torch.autograd.grad(cross_entropy(network(x), torch.arange(len(x))), [*network.parameters()])


@pytest.fixture
def went(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether networks went this way, call by call."""
    taken: list[bool] = []
    takes = onednn.takes

    def watched(layers: nn.Sequential, x: Tensor) -> bool:
        taken.append(takes(layers, x))
        return taken[-1]

    monkeypatch.setattr(onednn, "takes", watched)
    return taken


@pytest.mark.usefixtures("kind_of_cpu")
@goes_this_way
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", NETWORKS)
def test_logits_and_gradients_are_torchs(name: str, layout: str, went: list[bool]) -> None:
    """To the rounding of sums, with and without a gradient; the images stay as they are."""
    network, plain, x = made(name)
    x = LAYOUTS[layout](x)
    before = x.clone()
    with torch.inference_mode():
        torch.testing.assert_close(network(x), plain(x), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(network(x), plain(x), rtol=1e-5, atol=1e-6)
    for ours, torchs in zip(gradients(network, x), gradients(plain, x), strict=True):
        assert (ours - torchs).norm() <= 2e-5 * torchs.norm()
    assert went == [True] * 3
    assert torch.equal(x, before)


@pytest.mark.usefixtures("kind_of_cpu")
@pytest.mark.parametrize("name", NETWORKS)
def test_the_same_bits_twice_and_in_any_memory(name: str) -> None:
    """Wherever weights and images lie: a participant's bits must not depend on its row."""
    network, _, x = made(name)
    found, expected = [], gradients(network, x)
    for shift in range(1, 4):
        other = copy.deepcopy(network)
        for p in other.parameters():
            p.data = torch.empty(shift + p.numel())[shift:].view(p.shape).copy_(p)
        found.append(gradients(other, torch.empty(shift + x.numel())[shift:].view(x.shape).copy_(x)))
    for one in found:
        assert all(map(torch.equal, one, expected))


@goes_this_way
@pytest.mark.parametrize("name", NETWORKS)
def test_in_bfloat16(name: str, went: list[bool]) -> None:
    """Under autocast, as under ``--trainer.precision bf16-mixed``: evaluation only, and only where the CPU can."""
    network, plain, x = made(name)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        ours, torchs = network(x), plain(x)
    assert ours.dtype == torchs.dtype == torch.bfloat16
    torch.testing.assert_close(ours.float(), torchs.float(), rtol=2e-2, atol=2e-2)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(network(x), plain(x))
    assert went == [torch.ops.mkldnn._is_mkldnn_bf16_supported(), False]
    with torch.inference_mode():  # without autocast, weights in bfloat16 too
        assert network.bfloat16()(x.bfloat16()).dtype == torch.bfloat16


@pytest.mark.slow
@goes_this_way
def test_elsewhere_they_go_torchs_way(went: list[bool], tmp_path: Path) -> None:
    """In double precision, without images, several models as one, and in a file for somebody else's machine."""
    network, plain, x = made("MNIST")
    with torch.no_grad():
        expected = plain(x)
        torch.testing.assert_close(vmap(network)(torch.stack([x, x]))[1], expected)
        assert network(x[:0]).shape == (0, 10)
        for strict in (False, True):
            torch.export.save(torch.export.export(network, (x,), strict=strict), tmp_path / "network.pt2")
            exported = torch.export.load(tmp_path / "network.pt2")
            assert "mkldnn" not in str(exported.graph)
            torch.testing.assert_close(exported.module()(x), expected)
        found = network.double()(x.double())
        torch.testing.assert_close(found, plain.double()(x.double()), rtol=1e-12, atol=1e-12)
    assert not any(went)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("where", ["weights", "images"])
def test_what_is_not_finite_shows(where: str, value: float) -> None:
    """As it does in torch's layers: a model that has diverged must not look sound."""
    network, plain, x = made("MNIST")
    with torch.no_grad():
        if where == "images":
            x[2, 0, 3, 3] = value
        else:
            for net in (network, plain):
                net.get_parameter("3.weight")[5] = value
        expected = plain(x)
        assert torch.equal(network(x).isnan(), expected.isnan())
    assert torch.equal(network(x).isnan(), expected.isnan())
    assert expected.isnan().any() == (value != value or where == "weights")


@pytest.mark.parametrize("scale", [1e15, 3e19, 1e30])
@pytest.mark.parametrize("name", NETWORKS)
def test_what_overflows_shows(name: str, scale: float) -> None:
    """As it does in torch's layers, though every weight is finite."""
    network, plain, x = made(name)
    with torch.no_grad():
        for net in (network, plain):
            for parameter in list(net.parameters())[:4]:
                parameter.mul_(scale)
        expected = plain(x)
        assert torch.equal(network(x).isfinite(), expected.isfinite())
    assert torch.equal(network(x).isfinite(), expected.isfinite())


def strided(layers: nn.Sequential) -> None:
    layers[6] = nn.Conv2d(64, 64, 3, padding=1)
    layers.insert(8, nn.AdaptiveMaxPool2d(4))


def without_bias(layers: nn.Sequential) -> None:
    layers[0] = nn.Conv2d(3, 32, 3, bias=False)


def other_activation(layers: nn.Sequential) -> None:
    layers[2] = nn.GELU()


@pytest.mark.parametrize("change", [strided, without_bias, other_activation])
def test_other_layers_in_their_place(change: Callable[[nn.Sequential], None], went: list[bool]) -> None:
    """Who puts some there has them computed, of whole images."""
    network, _, x = made("CIFAR10")
    torch.manual_seed(3)
    change(network)
    plain = nn.Sequential(*copy.deepcopy(network))
    assert torch.equal(network(x), plain(x))
    assert went == []


def test_hooks_and_other_derivatives(went: list[bool]) -> None:
    """Every hook is called, and who needs more than a gradient has it."""
    network, plain, x = made("MNIST")
    called: list[str] = []
    for layer in network:
        handle = layer.register_forward_hook(lambda layer, *_: called.append(type(layer).__name__))
        network(x)
        assert called == [type(layer).__name__]
        called.clear()
        handle.remove()
    assert not any(went)

    def loss(net: nn.Module, parameters: dict[str, Tensor], one: Tensor) -> Tensor:
        logits: Tensor = functional_call(net, parameters, (one.unsqueeze(0),))
        return logits.logsumexp(1).sum()

    found, expected = (
        vmap(grad(partial(loss, net)), in_dims=(None, 0))({k: p.detach() for k, p in net.named_parameters()}, x)
        for net in (network, plain)
    )
    for key in expected:
        torch.testing.assert_close(found[key], expected[key], rtol=1e-4, atol=1e-6)
    weights = [*network.parameters()]
    with torch.backends.mkldnn.flags(enabled=False):
        first, *_ = torch.autograd.grad(network(x).logsumexp(1).sum(), weights, create_graph=True)
        assert torch.autograd.grad(first.square().sum(), weights[2:3])[0].isfinite().all()
    (slope,) = torch.autograd.grad(network(x.requires_grad_()).logsumexp(1).sum(), x, create_graph=True)
    assert went[-1] is False
    assert torch.autograd.grad(slope.square().sum(), weights[2:3])[0].isfinite().all()  # a gradient penalty's
    assert symbolic_trace(network)(x).shape == (7, 10)
