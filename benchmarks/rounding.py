"""Down to which length an update says something: the same local training in float32 and in float64.

    python -m benchmarks.rounding

Both start from the same weights, of a network that has been trained for a while, and see the same mini-batches of the
digits. Where the learning rate sinks, the update in float32 comes to the level of rounding of the weights and turns
away from the one in float64. For every number of local steps and falling learning rates: the length of the float32
update as a multiple of `rffl_pl.functional.rounding.rounding_level`, and the cosine between the two.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy
from torch.utils.data import TensorDataset

from rffl_pl.datamodules import Digits
from rffl_pl.federation import Federation
from rffl_pl.functional.rounding import rounding_level
from rffl_pl.models import Perceptron
from rffl_pl.training.parameters import flat_parameters

BATCH, FALL = 16, 0.7
Kind = type[torch.optim.SGD] | type[torch.optim.Adam]
OPTIMIZERS: dict[Kind, float] = {torch.optim.SGD: 0.1, torch.optim.Adam: 0.003}
TRAININGS = ((12, 3), (100, 3), (400, 3), (400, 20))  # examples, local epochs


def update(network: nn.Module, x: Tensor, y: Tensor, kind: Kind, rate: float, epochs: int) -> Tensor:
    """The update ``[D]``, float64, of a network that is trained in place."""
    before = flat_parameters(network).double()
    optimizer = kind(network.parameters(), lr=rate)
    generator = torch.Generator().manual_seed(1)
    for _ in range(epochs):
        for rows in torch.randperm(len(x), generator=generator).split(BATCH):
            optimizer.zero_grad()
            cross_entropy(network(x[rows]), y[rows]).backward()
            optimizer.step()
    return flat_parameters(network).double() - before


def main() -> None:
    train = Digits(Federation(participants=1)).load().train
    assert isinstance(train, TensorDataset)
    x, y = train[:]
    for kind, rate in OPTIMIZERS.items():
        torch.manual_seed(0)
        network = Perceptron(64, 64, 10)
        update(network, x[:400], y[:400], kind, rate, 20)
        level = float(rounding_level(flat_parameters(network)))
        for examples, epochs in TRAININGS:
            print(f"{kind.__name__}, {epochs * -(-examples // BATCH)} steps:", end=" ")
            ratio, now = float("inf"), rate
            while ratio > 1:
                single, double = copy.deepcopy(network), copy.deepcopy(network).double()
                u = update(single, x[:examples], y[:examples], kind, now, epochs)
                v = update(double, x[:examples].double(), y[:examples], kind, now, epochs)
                ratio, cosine = float(u.norm()) / level, float(cosine_similarity(u, v, dim=0))
                if cosine < 0.995:
                    print(f"{ratio:.1f}: {cosine:.2f}", end="  ", flush=True)
                now *= FALL
            print()


if __name__ == "__main__":
    main()
