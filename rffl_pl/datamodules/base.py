"""The base of all data modules: a data set in, one private shard per participant out."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

from rffl_pl.configured import Configured
from rffl_pl.datamodules import splits
from rffl_pl.datamodules.rounds import RoundLoader, Shard, batch_loader, bucketed
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation

Split = Literal["UNI", "POW", "CLA", "DIR"]
Watch = Literal["validation", "test"]


@dataclass(frozen=True, kw_only=True)
class Sources:
    """A data set as it comes: map-style datasets of (x, y), x a tensor and y a class from 0 on.

    Attributes:
        train: What the participants' shards are cut from.
        test: What final accuracies are measured on.
        validation: What accuracies are watched on during training; by default a share of ``train`` is held out.
    """

    train: Dataset[Any]
    test: Dataset[Any]
    validation: Dataset[Any] | None = None


class FederatedDataModule(Configured, LightningDataModule, ABC):
    """Divides a data set among participants. Your own data set is a subclass with `num_classes` and `load`.

    Args:
        federation: Who takes part.
        split: ``UNI`` equal shards; ``POW`` sizes after a power law; ``CLA`` more and more classes; ``DIR`` Dirichlet
            label skew. See `rffl_pl.datamodules.splits`.
        examples_per_participant: Average size of the honest participants' shards; by default all there are.
        dirichlet_alpha: Concentration of ``DIR``.
        adversary_examples: Examples that each adversary holds, outside the honest shards where enough are left.
        validation: Share of the training data that is held out for watching, and for a server that validates, unless
            the data set brings its own; 0, with ``watch`` ``test``, holds nothing out.
        watch: What accuracies are measured on during training: ``validation`` or ``test`` (for curves to compare
            with published ones; nothing is ever selected by them).
        batch_size: Examples per local mini-batch.
        eval_batch_size: Examples per batch of validation, test and prediction.
        num_workers: Loader processes, for datasets that are not tensors in memory.

    Raises:
        UserError: If an argument is out of range, and in `setup` if the data does not fit them.
    """

    num_classes: int
    class_names: Sequence[str] = ()
    """What the classes are called, if they have names."""

    def __init__(
        self,
        federation: Federation,
        *,
        split: Split = "POW",
        examples_per_participant: int | None = None,
        dirichlet_alpha: float = 0.5,
        adversary_examples: int = 600,
        validation: float = 0.1,
        watch: Watch = "validation",
        batch_size: int = 32,
        eval_batch_size: int = 64,
        num_workers: int = 0,
    ) -> None:
        super().__init__()
        for name, value in (
            ("examples_per_participant", 1 if examples_per_participant is None else examples_per_participant),
            ("adversary_examples", adversary_examples),
            ("batch_size", batch_size),
            ("eval_batch_size", eval_batch_size),
        ):
            if value < 1:
                raise UserError(f"Expected --data.{name} to be at least 1, but got {value}.")
        for name, choice, choices in (("split", split, get_args(Split)), ("watch", watch, get_args(Watch))):
            if choice not in choices:
                raise UserError(f"Expected --data.{name} to be one of {', '.join(choices)}, but got {choice}.")
        if num_workers < 0:
            raise UserError(f"Expected --data.num_workers to be 0 or more, but got {num_workers}.")
        if not 0 <= validation < 1 or (validation == 0 and watch == "validation"):
            raise UserError(
                f"Expected --data.validation to lie between 0 and 1, but got {validation}; try 0.1, or 0 with "
                "--data.watch test."
            )
        if not dirichlet_alpha > 0:
            raise UserError(f"Expected --data.dirichlet_alpha to be positive, but got {dirichlet_alpha}; try 0.5.")
        self.federation = federation
        self.split: Split = split
        self.examples_per_participant = examples_per_participant
        self.dirichlet_alpha = dirichlet_alpha
        self.adversary_examples = adversary_examples
        self.validation_share = validation
        self.watch = watch
        self.batch_size = batch_size
        self.eval_batch_size = eval_batch_size
        self.num_workers = num_workers
        self.sources: Sources | None = None
        self.shards: list[Tensor] = []
        self.held_out = torch.empty(0, dtype=torch.int64)

    @abstractmethod
    def load(self) -> Sources:
        """Read the data set; called once on every rank. Download in `prepare_data`, which one process per node runs."""

    def setup(self, stage: str) -> None:
        """Read the data and cut the shards: the same on every rank, whatever the number of ranks."""
        if self.sources is not None:
            return
        self.sources = self.load()
        if not hasattr(self, "num_classes"):
            raise UserError(
                f"Expected {type(self).__name__} to say its number of classes; set num_classes in the class."
            )
        labels = labels_of(self.sources.train)
        self._check_labels(labels, "training")
        self._check_labels(labels_of(self.sources.test), "test")
        generator = torch.Generator().manual_seed(self.federation.seed_for("split"))
        order = torch.randperm(len(labels), generator=generator)
        held_out = round(self.validation_share * len(labels)) if self.sources.validation is None else 0
        if self.sources.validation is None and self.validation_share > 0 and held_out == 0:
            raise UserError(
                f"Expected --data.validation to hold out at least one of {len(labels)} training examples, but "
                f"{self.validation_share} of them is none; raise it."
            )
        self.held_out, rest = order[:held_out], order[held_out:]
        honest = [rest[part] for part in self._cut(labels[rest], generator)]
        self.shards = honest + self._adversaries_shards(rest, honest, generator)
        for i, shard in enumerate(self.shards):
            if len(shard) == 0:
                raise UserError(
                    f"Expected every participant to hold examples, but split {self.split} of "
                    f"{sum(map(len, honest))} examples leaves participant {i} of {self.federation.honest} without any; "
                    "raise --data.examples_per_participant (or, for DIR, --data.dirichlet_alpha) or lower "
                    "--federation.participants."
                )

    @property
    def examples(self) -> list[int]:
        """Number of training examples of every participant."""
        return [len(shard) for shard in self.shards]

    @property
    def classes(self) -> list[int]:
        """Number of different classes among every participant's training examples."""
        assert self.sources is not None
        labels = labels_of(self.sources.train)
        return [len(labels[shard].unique()) for shard in self.shards]

    def identity(self) -> dict[str, str]:
        """What a checkpoint of this data must agree with."""
        assert self.sources is not None
        digest = hashlib.sha256(labels_of(self.sources.train).numpy().tobytes())
        digest.update(labels_of(self.sources.test).numpy().tobytes())
        for shard in self.shards:
            digest.update(shard.numpy().tobytes())
        return {
            "data set": type(self).__name__,
            "classes": str(self.num_classes),
            "split": self.split,
            "shards": digest.hexdigest()[:16],
        }

    def train_dataloader(self) -> RoundLoader:
        """One item per epoch: the shards of the participants that this rank hosts."""
        assert self.sources is not None
        assert self.trainer is not None
        hosted = self.federation.hosted_by(self.trainer.global_rank, self.trainer.world_size)
        train = self.sources.train
        return RoundLoader({i: Shard(train, self.shards[i], self.batch_size, self.num_workers) for i in hosted})

    def val_dataloader(self) -> DataLoader[Any]:
        """What is watched during training."""
        assert self.sources is not None
        watched = self.test_dataloader() if self.watch == "test" else self.held_out_dataloader()
        assert watched is not None
        return watched

    def held_out_dataloader(self) -> DataLoader[Any] | None:
        """Examples that no participant trains on and that are no test examples; None where there are none."""
        assert self.sources is not None
        if self.sources.validation is not None:
            return self._evaluated(self.sources.validation, torch.arange(_length(self.sources.validation)))
        if len(self.held_out) == 0:
            return None
        return self._evaluated(self.sources.train, self.held_out)

    def test_dataloader(self) -> DataLoader[Any]:
        """The whole test set, on every rank: each evaluates the participants it hosts."""
        assert self.sources is not None
        return self._evaluated(self.sources.test, torch.arange(_length(self.sources.test)))

    def predict_dataloader(self) -> DataLoader[Any]:
        """The test set, in its order."""
        assert self.sources is not None
        indices = torch.arange(_length(self.sources.test))
        return batch_loader(self.sources.test, indices, self.eval_batch_size, self.num_workers)

    def _evaluated(self, dataset: Dataset[Any], indices: Tensor) -> DataLoader[Any]:
        return batch_loader(dataset, bucketed(dataset, indices), self.eval_batch_size, self.num_workers)

    def _cut(self, labels: Tensor, generator: torch.Generator) -> list[Tensor]:
        participants = self.federation.honest
        each = self.examples_per_participant or max(1, len(labels) // participants)
        if self.split == "UNI":
            return splits.uniform(len(labels), participants, each, generator)
        if self.split == "POW":
            return splits.power_law(len(labels), participants, each, generator)
        if self.split == "CLA":
            return splits.by_class(labels, self.num_classes, participants, each, generator)
        return splits.dirichlet(labels, self.num_classes, participants, each, self.dirichlet_alpha, generator)

    def _adversaries_shards(self, rest: Tensor, honest: list[Tensor], generator: torch.Generator) -> list[Tensor]:
        """Shards of the adversaries: disjoint from the honest ones and each other where the data set allows."""
        if self.federation.adversaries == 0:
            return []
        left = rest[~torch.isin(rest, torch.cat(honest))]
        each = self.adversary_examples
        if len(left) >= each * self.federation.adversaries:
            order = torch.randperm(len(left), generator=generator)
            return list(left[order[: each * self.federation.adversaries]].split(each))
        return [rest[torch.randperm(len(rest), generator=generator)[:each]] for _ in range(self.federation.adversaries)]

    def _check_labels(self, labels: Tensor, which: str) -> None:
        outside = ((labels < 0) | (labels >= self.num_classes)).nonzero().flatten()
        if len(outside):
            first = int(outside[0])
            raise UserError(
                f"Expected labels of {type(self).__name__} to lie in 0 .. {self.num_classes - 1}, but {which} example "
                f"{first} has label {int(labels[first])} ({len(outside)} of {len(labels)} are outside); number the "
                "classes from 0 or set num_classes."
            )


def labels_of(dataset: Dataset[Any]) -> Tensor:
    """The class of every example, ``[n]`` int64: from ``targets`` or ``labels`` if the dataset has them."""
    count = _length(dataset)
    given = [dataset.tensors[1]] if isinstance(dataset, TensorDataset) else []
    for candidate in [*given, getattr(dataset, "targets", None), getattr(dataset, "labels", None)]:
        try:
            labels = torch.as_tensor(candidate)
        except (TypeError, ValueError, RuntimeError):
            continue  # names of classes, say
        if labels.shape == (count,):
            return labels.long()
    try:
        return torch.tensor([int(dataset[i][1]) for i in range(count)])
    except (TypeError, ValueError, IndexError) as error:
        raise UserError(
            f"Expected every example of {type(dataset).__name__} to be a pair (x, y) with y a class number, but got "
            f"{type(error).__name__}: {error}."
        ) from error


def _length(dataset: Dataset[Any]) -> int:
    return len(dataset)  # type: ignore[arg-type]  # torch types only iterable-style datasets as unsized
