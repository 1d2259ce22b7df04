"""The job of `benchmarks.job` written for pfl-research (Apple), which has to be installed: ``pip install pfl``.

    RFFL_DATA_DIR=data OMP_NUM_THREADS=1 torchrun --nproc_per_node=2 benchmarks/pfl_job.py

8 rounds of FedAvg on MNIST, ten users with 600 images, one epoch in mini-batches of 32, with the network of `rffl_pl`
on images with channels last; in the end the model is measured on 6,000 training and all test images and saved.
"""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor
from torch.nn.functional import cross_entropy, pad
from torchvision.datasets import MNIST

from rffl_pl.models import MNISTCNN

ROUNDS, USERS, EXAMPLES = 8, 10, 600


class Network(MNISTCNN):
    """With the two methods that pfl asks for."""

    def forward(self, x: Tensor) -> Tensor:
        image = torch.empty_like(x, memory_format=torch.channels_last).copy_(x)
        return super().forward(image)

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(self.train()(x), y)

    @torch.no_grad()
    def metrics(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        logits = self.eval()(x)
        total = cross_entropy(logits, y, reduction="sum").item()
        correct = int((logits.argmax(1) == y).sum())
        return {"loss": Weighted(total, len(y)), "accuracy": Weighted(correct, len(y))}


def images(train: bool) -> tuple[Tensor, Tensor]:
    """Images ``[n, 1, 32, 32]``, standardised, and their classes."""
    found = MNIST(os.environ["RFFL_DATA_DIR"], train=train)
    pixels = pad(found.data.float().div_(255), (2, 2, 2, 2)).unsqueeze(1)
    return pixels.sub_(0.1).div_(0.3), found.targets


def main() -> None:
    torch.manual_seed(1)
    np.random.seed(1)
    x, y = images(train=True)
    order = torch.randperm(len(y))
    users = {k: order[k * EXAMPLES : (k + 1) * EXAMPLES] for k in range(USERS)}
    held_out = order[-6_000:]
    training = FederatedDataset(
        lambda k: Dataset(raw_data=(x[users[k]], y[users[k]]), user_id=str(k)),
        get_user_sampler("minimize_reuse", list(users)),
    )
    network = Network()
    model = PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), lr=1.0))
    size = NNEvalHyperParams(local_batch_size=64)
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=ROUNDS, evaluation_frequency=ROUNDS, train_cohort_size=USERS, val_cohort_size=0
        ),
        SimulatedBackend(training_data=training, val_data=training),
        model,
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=0.15, local_batch_size=32),
        size,
    )
    for data in (Dataset((x[held_out], y[held_out])), Dataset(images(train=False))):
        print(model.evaluate(data.get_worker_partition(), eval_params=size))
    with TemporaryDirectory() as folder:
        model.save(str(Path(folder)))


if __name__ == "__main__":
    main()
