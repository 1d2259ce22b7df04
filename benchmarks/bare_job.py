"""The job of `benchmarks.job` as a plain loop in one process: what PyTorch alone takes for it.

    RFFL_DATA_DIR=data OMP_NUM_THREADS=2 python benchmarks/bare_job.py

8 rounds of FedAvg on MNIST, ten participants with 600 images, one epoch in mini-batches of 32, with the network of
`rffl_pl` in its layout; in the end the model is measured on 6,000 training and all test images and saved.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad
from torchvision.datasets import MNIST

from rffl_pl.cli.process import keep_freed_memory
from rffl_pl.models import MNISTCNN

ROUNDS, PARTICIPANTS, EXAMPLES, BATCH, RATE, DECAY = 8, 10, 600, 32, 0.15, 0.977


def images(train: bool) -> tuple[Tensor, Tensor]:
    """Images ``[n, 1, 32, 32]``, bytes, and their classes."""
    found = MNIST(os.environ["RFFL_DATA_DIR"], train=train)
    return pad(found.data, (2, 2, 2, 2)).unsqueeze(1), found.targets


def placed(x: Tensor) -> Tensor:
    """Images standardised, with channels last."""
    return x.float().div_(255).sub_(0.1).div_(0.3).contiguous(memory_format=torch.channels_last)


@torch.no_grad()
def give(network: nn.Module, model: list[Tensor]) -> None:
    """Have a network's parameters be those."""
    for parameter, value in zip(network.parameters(), model, strict=True):
        parameter.copy_(value)


def main() -> None:
    keep_freed_memory()
    torch.manual_seed(1)
    x, y = images(train=True)
    order = torch.randperm(len(y))
    network = MNISTCNN().to(memory_format=torch.channels_last)
    model = [value.detach().clone() for value in network.parameters()]
    for now in range(ROUNDS):
        total = [torch.zeros_like(value) for value in model]
        for participant in range(PARTICIPANTS):
            shard = order[participant * EXAMPLES : (participant + 1) * EXAMPLES]
            give(network, model)
            optimizer = torch.optim.SGD(network.parameters(), lr=RATE * DECAY**now)
            network.train()
            for batch in shard[torch.randperm(EXAMPLES)].split(BATCH):
                optimizer.zero_grad()
                cross_entropy(network(placed(x[batch])), y[batch]).backward()
                optimizer.step()
            for one, value in zip(total, network.parameters(), strict=True):
                one += value.detach()
        model = [value / PARTICIPANTS for value in total]
    give(network, model)
    network.eval()
    held_out = order[-6_000:]
    for inputs, classes in ((x[held_out], y[held_out]), images(train=False)):
        with torch.inference_mode():
            found = torch.cat([network(placed(part)).argmax(1) for part in inputs.split(64)])
        print(f"accuracy {(found == classes).double().mean():.4f} of {len(classes)}")
    with TemporaryDirectory() as folder:
        torch.save(network.state_dict(), Path(folder) / "model.pt")


if __name__ == "__main__":
    main()
