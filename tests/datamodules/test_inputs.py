"""What tells inputs from others: a checkpoint of other inputs is another run's, and ranks read the same."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from rffl_pl.datamodules import inputs
from rffl_pl.datamodules.inputs import digest_of_inputs, spread
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from rffl_pl.runs.identity import Identity, check_identity, identity
from tests.callbacks.own import FromFile
from tests.datamodules.small import ready


def test_examples_that_are_spread_over_a_large_data_set() -> None:
    """In single precision the last one lies behind its end."""
    for count in (1, 2, 20_000_004, 2**31 + 7):
        assert spread(count, 5)[[0, -1]].tolist() == [0, count - 1]


def test_what_changes_a_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    """One entry, a shape, a type or an order that nobody sees; of large data every k-th example counts."""
    x = torch.arange(24.0).view(6, 4)
    changed = x.clone()
    changed[4, 2] += 1e-6
    given = [[x], [changed], [x.view(4, 6)], [x.double()], [x.flip(0)], [x, x], [x[:3], x[3:]], []]
    assert len({digest_of_inputs(each) for each in given}) == len(given)
    assert digest_of_inputs([x.t().contiguous().t()]) == digest_of_inputs([x])
    monkeypatch.setattr(inputs, "_MOST", 50)  # of 96 bytes every other example
    assert digest_of_inputs([changed]) != digest_of_inputs([x])
    changed[4] = x[4]
    changed[5] = 0
    assert digest_of_inputs([changed]) == digest_of_inputs([x])


@pytest.mark.parametrize(("count", "expected"), [(1, [0]), (3, [0, 1, 2]), (9, [0, 4, 8]), (1000, [0, 500, 999])])
def test_a_spread_sample(count: int, expected: list[int]) -> None:
    """From the first to the last, each at most once."""
    found = spread(count, 3).tolist()
    assert found == expected or (count == 1000 and found == [0, 499, 999])


def of(path: Path, x: Tensor, *, single: bool = False) -> Identity:
    """The identity of a run on these inputs, whose labels are always the same."""
    torch.save((x, torch.arange(80) % 2), path)
    data = ready(FromFile(federation=Federation(participants=3), path=str(path), single=single))
    network = nn.Linear(2, 2)
    return identity(network, data.federation, data.identity(), torch.optim.SGD(network.parameters(), lr=0.1))


@pytest.mark.parametrize("at", [0, 37, 79])
def test_a_checkpoint_of_other_inputs(tmp_path: Path, at: int) -> None:
    """It goes on with other examples than it began with, of the same classes, without a word."""
    x = torch.randn(80, 2, generator=torch.Generator().manual_seed(1))
    other = x.clone()
    other[at, 1] += 1
    saved, here = (of(tmp_path / "data.pt", each) for each in (x, other))
    with pytest.raises(UserError, match=r"data: inputs is .* there and .* here"):
        check_identity(saved, here, training=True)
    check_identity(saved, of(tmp_path / "data.pt", x), training=True)
    del saved["data"]["inputs"]  # as earlier versions have it
    check_identity(saved, here, training=True)
    check_identity(here, of(tmp_path / "data.pt", x, single=True), training=True)
