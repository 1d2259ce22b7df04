"""Sparse gradients of embeddings: trained as dense ones, under whatever is added to them too."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from rffl_pl.datamodules.reading import Reader
from rffl_pl.datamodules.rounds import Shard
from rffl_pl.training.cohort import Cohort
from rffl_pl.training.schedule import Examples, Schedule
from tests.cohorts import CPU, seeded, sgd


def network() -> nn.Module:
    return nn.Sequential(nn.Embedding(30, 6, sparse=True), nn.Flatten(), nn.Linear(18, 3))


@pytest.mark.parametrize(("proximal", "scaffold"), [(0.0, False), (0.3, False), (0.0, True), (0.3, True)])
def test_sparse_gradients(proximal: float, scaffold: bool) -> None:
    """To what is sparse nothing can be added in place."""
    x = torch.randint(0, 30, (40, 3), generator=torch.Generator().manual_seed(0))
    examples: dict[int, Examples] = {0: Shard(Reader(TensorDataset(x, x.sum(1) % 3)), torch.arange(40), 8)}
    sparse = seeded(network)
    dense = copy.deepcopy(sparse)
    dense[0].sparse = False  # type: ignore[index]  # the layers of a Sequential
    trained: list[Tensor] = []
    for each in (sparse, dense):
        cohort = Cohort(each, range(1), sgd, CPU, scaffold=scaffold)
        for number in range(2):
            cohort.train_all(examples, Schedule(epochs=2, proximal=proximal), number, {0: number})
            cohort.download(0, cohort.take_update(0) / 2, whole=True)
        trained.append(cohort.weights.clone())
    torch.testing.assert_close(trained[0], trained[1], rtol=0, atol=1e-6)
    assert not torch.equal(trained[0][0], torch.cat([p.flatten() for p in sparse.parameters()]))
