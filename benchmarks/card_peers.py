"""Rounds of `benchmarks/gpu.py` as others play them: in the manner of the paper's authors' script, and by pfl-research.

Nothing of that script is copied: `Script` does in plain torch what it does in a round. One model trains after another,
mini-batch by mini-batch from a loader of its own that collates examples on the CPU; the server goes through the uploads
tensor by tensor; in the end every model is measured on the held-out examples, and on the training examples of everybody
too, of which nothing is kept. pfl-research plays FedAvg where it is installed.
"""

from __future__ import annotations

import contextlib
import copy
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, cross_entropy
from torch.utils.data import DataLoader, TensorDataset

Loader = DataLoader[tuple[Tensor, ...]]


def layer_by_layer() -> nn.Module:
    """The paper's network for MNIST as its text has it."""
    return nn.Sequential(
        nn.Conv2d(1, 64, 3), nn.Tanh(), nn.MaxPool2d(2), nn.Conv2d(64, 16, 7), nn.Tanh(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(256, 200), nn.Tanh(), nn.Linear(200, 10),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Task:
    """What both have in common.

    Attributes:
        shards: Everybody's training examples.
        held_out: What every model is measured on.
        device: Where models are; examples are brought there a batch at a time.
        batch: Of training, and of the script's measuring.
        epochs: Of local training in a round.
        rate: The learning rate.
    """

    shards: list[TensorDataset]
    held_out: TensorDataset
    device: torch.device
    batch: int
    epochs: int
    rate: float


class Script:
    """A federation in the manner of the authors' released code, with its figures for MNIST."""

    GAMMA, ALPHA, DECAY, REMOVAL_FROM = 0.5, 0.95, 0.977, 10

    def __init__(self, task: Task) -> None:
        self.task = task
        torch.manual_seed(0)
        first = layer_by_layer().to(task.device)
        self.models = [copy.deepcopy(first) for _ in task.shards]
        self.loaders: list[Loader] = [DataLoader(own, batch_size=task.batch, shuffle=True) for own in task.shards]
        self.held_out: Loader = DataLoader(task.held_out, batch_size=task.batch)
        self.optimizers = [torch.optim.SGD(model.parameters(), lr=task.rate) for model in self.models]
        self.decays = [torch.optim.lr_scheduler.ExponentialLR(each, self.DECAY) for each in self.optimizers]
        sizes = torch.tensor([len(own) for own in task.shards], dtype=torch.float32, device=task.device)
        self.shares, self.reputations = sizes / sizes.sum(), torch.zeros_like(sizes)
        self.members, self.rounds = set(range(len(sizes))), 0

    def train(self) -> list[list[Tensor]]:
        """Local training of everybody; the uploads, tensor by tensor."""
        uploads = []
        for model, loader, optimizer, decay in zip(
            self.models, self.loaders, self.optimizers, self.decays, strict=True
        ):
            before = copy.deepcopy(model)
            model.train()
            for _ in range(self.task.epochs):
                for x, y in loader:
                    optimizer.zero_grad()
                    loss = cross_entropy(model(x.to(self.task.device)), y.to(self.task.device))
                    loss.backward()
                    optimizer.step()
                decay.step()
            uploads.append(self._clipped(model, before))
        return uploads

    @torch.no_grad()
    def _clipped(self, model: nn.Module, before: nn.Module) -> list[Tensor]:
        """What a model has moved, no longer than Γ, with which it goes on."""
        pairs = list(zip(model.parameters(), before.parameters(), strict=True))
        update = [now - then for now, then in pairs]
        length = torch.cat([part.flatten() for part in update]).norm()
        if length > self.GAMMA:
            update = [part * self.GAMMA / (length + 1e-7) for part in update]
            for (now, then), part in zip(pairs, update, strict=True):
                now.copy_(then + part)
        return update

    @torch.no_grad()
    def serve(self, uploads: list[list[Tensor]]) -> None:
        """The aggregate, reputations, removals, and everybody's reward."""
        weights = self.reputations if self.rounds else self.shares
        whole = [sum(w * part for w, part in zip(weights, parts, strict=True)) for parts in zip(*uploads, strict=True)]
        flat = torch.cat([part.flatten() for part in whole])
        for i, upload in enumerate(uploads):
            found = cosine_similarity(flat, torch.cat([part.flatten() for part in upload]), 0, 1e-10)
            self.reputations[i] = (
                self.ALPHA * self.reputations[i] + (1 - self.ALPHA) * found if i in self.members else 0
            )
        self.reputations /= self.reputations.sum()
        if self.rounds >= self.REMOVAL_FROM:
            bound = 1 / (3 * len(self.members))
            for i in [i for i in self.members if self.reputations[i] < bound]:
                self.members.remove(i)
                self.reputations[i] = 0
            self.reputations /= self.reputations.sum()
        for i, model in enumerate(self.models):
            quota = float(self.reputations[i] / self.reputations.max())
            for parameter, part in zip(model.parameters(), whole, strict=True):
                parameter.add_(strongest(part, quota))
        self.rounds += 1

    @torch.no_grad()
    def measure(self, loader: Loader) -> list[tuple[float, float]]:
        """Loss and accuracy of every model on some examples."""
        found = []
        for model in self.models:
            model.eval()
            loss, right, count = 0.0, 0.0, 0
            for x, y in loader:
                x, y = x.to(self.task.device), y.to(self.task.device)
                logits = model(x)
                loss += cross_entropy(logits, y, reduction="sum").item()
                right += (logits.argmax(1) == y).sum().item()
                count += len(y)
            found.append((loss / count, right / count))
        return found


def strongest(values: Tensor, share: float) -> Tensor:
    """The share of a tensor's entries that is largest in magnitude, zeros elsewhere."""
    if share <= 0:
        return torch.zeros_like(values)
    count = min(values.numel(), -int(-values.numel() * share // 1))
    bound = values.abs().flatten().topk(count).values[-1]
    return values * (values.abs() >= bound)


@dataclass(frozen=True)
class Played:
    """Seconds of a round's parts.

    Attributes:
        training: Local training of everybody.
        serving: All else but measuring.
        measuring: Every model on the held-out examples.
        wasted: What is measured beside, and not kept.
    """

    training: float
    serving: float
    measuring: float
    wasted: float


def script_round(script: Script, now: Callable[[], float]) -> Played:
    """One round in the manner of the script, timed by a clock that waits for the device."""
    begun = now()
    uploads = script.train()
    trained = now()
    script.serve(uploads)
    served = now()
    script.measure(script.held_out)
    measured = now()
    for loader in script.loaders:
        script.measure(loader)
    return Played(trained - begun, served - trained, measured - served, now() - measured)


def pfl_rounds(task: Task, network: nn.Module, now: Callable[[], float]) -> Callable[[int], float]:
    """Plays so many rounds of FedAvg by pfl-research and says how many seconds they took; nothing is measured in them.

    Args:
        task: Data and schedule; the examples of every user are on the device beforehand.
        network: What is trained.
        now: A clock that waits for the device.

    Raises:
        ImportError: If pfl-research, or what it needs, is not installed.
    """
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
    from pfl.model.pytorch import PyTorchModel

    class Network(nn.Module):
        """With the methods that pfl asks for."""

        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def loss(self, x: Tensor, y: Tensor) -> Tensor:
            return cross_entropy(self.network.train()(x), y)

        def metrics(self, x: Tensor, y: Tensor) -> dict[str, Any]:
            return {}

    held = [tuple(part.to(task.device) for part in own.tensors) for own in task.shards]
    users = FederatedDataset(
        lambda k: Dataset(raw_data=held[k], user_id=str(k)), get_user_sampler("minimize_reuse", list(range(len(held))))
    )
    made = Network().to(task.device)
    model = PyTorchModel(made, torch.optim.SGD, torch.optim.SGD(made.parameters(), lr=1.0))
    backend = SimulatedBackend(training_data=users, val_data=users)
    training = NNTrainHyperParams(
        local_num_epochs=task.epochs, local_learning_rate=task.rate, local_batch_size=task.batch
    )

    def played(rounds: int) -> float:
        params = NNAlgorithmParams(
            central_num_iterations=rounds, evaluation_frequency=rounds + 1, train_cohort_size=len(held),
            val_cohort_size=0,
        )  # fmt: skip
        begun = now()
        with contextlib.redirect_stdout(io.StringIO()):  # it tells of every round
            FederatedAveraging().run(params, backend, model, training, NNEvalHyperParams(local_batch_size=64))
        return now() - begun

    return played
