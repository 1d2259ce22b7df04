"""Layers that take less time in evaluation, against torch's own, in every layout and wherever they are used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.func import vmap

from rffl_pl.models import MNISTCNN
from rffl_pl.models.layers import MaxPool2d, Tanh

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "channels last": lambda x: x.contiguous(memory_format=torch.channels_last),
    "a part": lambda x: x[:, :, 1:, :-1],
    "a later part": lambda x: torch.stack([x, x])[1],
    "transposed": lambda x: x.transpose(1, 2),
}


def images(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(3, 6, 8, 9, generator=torch.Generator().manual_seed(1)).mul(3).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_pooling_is_torchs_to_the_bit(layout: str, dtype: torch.dtype) -> None:
    """Of odd and even sizes, and what is not a number stays none."""
    x = LAYOUTS[layout](images(dtype))
    x[0, 0, 0, 0] = torch.nan
    x[1, 1, 2, 3] = torch.inf
    expected = nn.MaxPool2d(2)(x)
    assert torch.equal(MaxPool2d()(x).nan_to_num(7), expected.nan_to_num(7))
    with torch.inference_mode():
        assert torch.equal(MaxPool2d()(x).nan_to_num(7), expected.nan_to_num(7))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tanh_is_tanh_to_a_unit_in_the_last_place(layout: str) -> None:
    """In single precision; of lower precision it is torch's to the bit, and strides are those of the input."""
    x = LAYOUTS[layout](images())
    with torch.no_grad():
        found = Tanh()(x)
        assert found.stride() == torch.tanh(x).stride()
        torch.testing.assert_close(found.double(), x.double().tanh(), rtol=2e-7, atol=0)
        assert torch.equal(Tanh()(x.bfloat16()), x.bfloat16().tanh())
        assert torch.equal(Tanh()(x.double()), x.double().tanh())
    assert torch.equal(x, LAYOUTS[layout](images()))


def test_tanh_of_small_and_large_numbers() -> None:
    """Relative precision holds down to what single precision has, and it saturates."""
    x = torch.cat([torch.logspace(-37, 38, 100_001), torch.tensor([0.0, torch.inf])])
    x = torch.cat([x, -x])
    with torch.no_grad():
        found = Tanh()(x)
        torch.testing.assert_close(found.double(), x.double().tanh(), rtol=2e-7, atol=0)
        assert Tanh()(torch.tensor([torch.nan])).isnan().all()
        assert Tanh()(torch.empty(0, 3)).shape == (0, 3)
        assert Tanh()(torch.tensor(0.5)) == pytest.approx(torch.tensor(0.5).tanh())


def test_where_gradients_are_asked_for_they_are_torchs() -> None:
    """To the bit, values and gradients."""
    for ours, torchs in ((Tanh(), nn.Tanh()), (MaxPool2d(), nn.MaxPool2d(2))):
        both = [images().requires_grad_() for _ in range(2)]
        values = [layer(x) for layer, x in zip((ours, torchs), both, strict=True)]
        assert torch.equal(*values)
        for value in values:
            value.square().sum().backward()
        one, other = (x.grad for x in both)
        assert one is not None
        assert other is not None
        assert torch.equal(one, other)


def test_several_models_as_one_and_exported(tmp_path: Path) -> None:
    """Where oneDNN cannot go: under vmap, and in a file for somebody else's machine."""
    network, x = MNISTCNN().eval(), torch.randn(4, 1, 32, 32)
    with torch.no_grad():
        expected = network(x)
        torch.testing.assert_close(vmap(network)(torch.stack([x, x]))[1], expected)
        torch.export.save(torch.export.export(network, (x,)), tmp_path / "network.pt2")
        exported = torch.export.load(tmp_path / "network.pt2")
        assert "mkldnn" not in str(exported.graph)
        torch.testing.assert_close(exported.module()(x), expected)
