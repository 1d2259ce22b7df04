"""The base of all data modules: a data set in, one private shard per participant out."""

from __future__ import annotations

import hashlib
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Literal, get_args

import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import Dataset

from rffl_pl.configured import Configured
from rffl_pl.datamodules.border import Part
from rffl_pl.datamodules.own import Holding, Holdings, Own
from rffl_pl.datamodules.preparing import called, held
from rffl_pl.datamodules.reading import Batch, Batches, Reader
from rffl_pl.datamodules.rounds import RoundLoader, Shard, bucketed
from rffl_pl.datamodules.shards import adversaries_shards, shards_of
from rffl_pl.datamodules.splits import DIR, OWN, Pool, Split, named
from rffl_pl.datamodules.splits.dirichlet import check_alpha
from rffl_pl.errors import UserError, check_number
from rffl_pl.federation import Federation

Watch = Literal["validation", "test"]

MOST_WORKERS = 4096
"""More processes than a machine starts."""


@dataclass(frozen=True, kw_only=True)
class Sources:
    """A data set as it comes: map-style datasets of (x, y), x a tensor and y a class from 0 on.

    Inputs must be finite and classes whole numbers; `FederatedDataModule` refuses what is not.

    Attributes:
        train: What the participants' shards are cut from; or, for the split ``OWN``, a function from a participant's
            number to the examples that are its own, called on the rank that hosts it alone.
        test: What final accuracies are measured on.
        validation: What accuracies are watched on during training; by default a share of ``train`` is held out, of
            examples that are somebody's own none.
    """

    train: Dataset[Any] | Own
    test: Dataset[Any]
    validation: Dataset[Any] | None = None


class FederatedDataModule(Configured, LightningDataModule, ABC):
    """Divides a data set among participants. Your own data set is a subclass with `num_classes` and `load`.

    Args:
        federation: Who takes part.
        split: ``UNI`` equal shards; ``POW`` sizes after a power law; ``CLA`` more and more classes; ``DIR`` Dirichlet
            label skew; ``OWN`` what every participant brings; or a split of your own. See `rffl_pl.datamodules.splits`.
        examples_per_participant: Average size of the honest participants' shards; by default all there are,
            and under ``OWN`` always.
        dirichlet_alpha: Concentration of ``DIR`` where its own ``alpha`` does not say otherwise.
        adversary_examples: Examples that each adversary holds, outside the honest shards where enough are left; under
            ``OWN`` each brings its own, as everybody does.
        validation: Share of the training data that is held out for watching, and for a server that validates, unless
            the data set brings its own; 0, with ``watch`` ``test``, holds nothing out.
        watch: What accuracies are measured on during training: ``validation`` or ``test`` (for curves to compare
            with published ones; nothing is ever selected by them).
        batch_size: Examples per local mini-batch.
        eval_batch_size: Examples per batch of validation, test and prediction.
        measurements: At most so many pairs of a participant and an example are measured at a time: with more, all
            participants are measured on the same share of the examples, drawn once, and the run says so; after a
            round, of which there are many, on half of that share; None for all.
        num_workers: Loader processes, for datasets that are not tensors in memory; as many for each participant where
            all train as one stack.

    Raises:
        UserError: If an argument is out of range, in `setup` if the data does not fit them or cannot be trained or
            tested on, and from loaders if an example that is read turns out to be such.
    """

    num_classes: int
    class_names: Sequence[str] = ()
    """What the classes are called, if they have names."""

    places: Sequence[str] = ()
    """Options of the constructor that say where files lie, beside its bases'. Machines may differ in them; the labels
    that they read are compared."""

    mistake: UserError | None = None
    """What `prepare_data` met on this rank while the others waited."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.places = tuple({place: None for kind in cls.__mro__ for place in vars(kind).get("places", ())})
        if "prepare_data" in vars(cls):
            setattr(cls, "prepare_data", held(vars(cls)["prepare_data"]))  # noqa: B010  # mypy takes no method

    def __init__(
        self,
        federation: Federation,
        *,
        split: Split | str = "POW",
        examples_per_participant: int | None = None,
        dirichlet_alpha: float = 0.5,
        adversary_examples: int = 600,
        validation: float = 0.1,
        watch: Watch = "validation",
        batch_size: int = 32,
        eval_batch_size: int = 64,
        measurements: int | None = 250_000,
        num_workers: int = 0,
    ) -> None:
        super().__init__()
        for name, value in (
            ("examples_per_participant", 1 if examples_per_participant is None else examples_per_participant),
            ("adversary_examples", adversary_examples),
            ("batch_size", batch_size),
            ("eval_batch_size", eval_batch_size),
            ("measurements", 1 if measurements is None else measurements),
        ):
            check_number(f"--data.{name}", value, 1)
        if watch not in get_args(Watch):
            raise UserError(f"Expected --data.watch to be one of {', '.join(get_args(Watch))}, but got {watch}.")
        check_number("--data.num_workers", num_workers, 0, MOST_WORKERS)
        if not 0 <= validation < 1 or (validation == 0 and watch == "validation"):
            raise UserError(
                f"Expected --data.validation to lie between 0 and 1, but got {validation}; try 0.1, or 0 with "
                "--data.watch test."
            )
        check_alpha("--data.dirichlet_alpha", dirichlet_alpha)
        self.federation = federation
        self.split = named(split)
        if isinstance(self.split, DIR) and self.split.alpha is None:
            self.split = DIR(alpha=dirichlet_alpha)
        self.examples_per_participant = examples_per_participant
        self.adversary_examples = adversary_examples
        self.validation_share = validation
        self.watch = watch
        self.batch_size = batch_size
        self.eval_batch_size = eval_batch_size
        self.measurements = measurements
        self.num_workers = num_workers
        self.sources: Sources | None = None
        self.shards: list[Tensor] = []
        self.held_out = torch.empty(0, dtype=torch.int64)
        self._own: Holdings | None = None
        self._told: list[Holding] = []

    @abstractmethod
    def load(self) -> Sources:
        """Read the data set; called once on every rank. Download in `prepare_data`, which one process per node runs."""

    def setup(self, stage: str) -> None:
        """Read the data, see that it can be used, and cut the shards: the same on every rank, however many there are.

        Labels are read once, here; examples that are somebody's own where it is hosted, and of them all ranks are
        told how many there are, of how many classes, and a digest. A mistake that one rank meets ends all of them.
        """
        strategy = None if self.trainer is None else self.trainer.strategy
        # Alone, in a notebook, there is nobody else.
        together = getattr(strategy, "together", lambda step: step())
        everybodys = getattr(strategy, "everybodys", lambda value: [value])
        together(lambda: self._set_up(stage))
        if self._own is not None and not self._told:
            mine = [(i, *astuple(told)) for i, told in self._own.told.items()]
            self._told = [Holding(*told) for _, *told in sorted(chain.from_iterable(everybodys(mine)))]
            self.shards = [torch.arange(told.examples) for told in self._told]

    def _set_up(self, stage: str) -> None:
        if self.mistake is not None:
            raise self.mistake
        if self.sources is None:
            sources = called(self.load, f"load() of {type(self).__name__} to read the data")
            self._take_in(sources)
            if callable(sources.train):
                self._hold(sources.train)
            else:
                self._cut(torch.Generator().manual_seed(self.federation.seed_for("split")))
            self.sources = sources
        if stage in ("fit", "test"):
            self._check_test_limit()

    @property
    def hosted(self) -> list[int]:
        """The participants that this rank hosts: all, where there is no trainer."""
        rank, ranks = (0, 1) if self.trainer is None else (self.trainer.global_rank, self.trainer.world_size)
        return self.federation.hosted_by(rank, ranks)

    @property
    def readable(self) -> Sequence[int]:
        """The participants whose training examples this rank can read: all, or under ``OWN`` those it hosts."""
        return range(self.federation.total) if self._own is None else list(self._own.readers)

    @property
    def shard_sizes(self) -> list[int]:
        """Number of training examples of every participant."""
        return [len(shard) for shard in self.shards]

    @cached_property
    def classes(self) -> list[int]:
        """Number of different classes among every participant's training examples."""
        if self._told:
            return [told.classes for told in self._told]
        labels = self._parts["training"].labels
        return [len(labels[shard].unique()) for shard in self.shards]

    def identity(self) -> dict[str, str]:
        """What a checkpoint of this data must agree with."""
        return {
            "data set": type(self).__name__,
            "classes": str(self.num_classes),
            "split": type(self.split).__name__,
            "shards": self._digest,
        }

    @cached_property
    def _digest(self) -> str:
        """Of labels and shards."""
        if self._told:  # ranks read files of their own: what is common to them is told too
            common = b"".join(part.labels.numpy().tobytes() for part in self._parts.values())
            words = [*self.class_names, *(told.digest for told in self._told)]
            return hashlib.sha256(common + "/".join(words).encode()).hexdigest()[:16]
        tensors = [self._parts["training"].labels, self._parts["test"].labels, *self.shards]
        return hashlib.sha256(b"".join(tensor.numpy().tobytes() for tensor in tensors)).hexdigest()[:16]

    def train_dataloader(self) -> RoundLoader:
        """One item per epoch: the shards of the participants that this rank hosts."""
        assert self.trainer is not None
        return RoundLoader({i: Shard(self._reader_of(i), self.shards[i], self.batch_size) for i in self.hosted})

    def val_dataloader(self) -> Batches:
        """What is watched during training; of what does not all fit ``measurements``, half as much as at the end."""
        watched = self._evaluated("test", part=2) if self.watch == "test" else self._held_out(part=2)
        assert watched is not None
        return watched

    def held_out_dataloader(self) -> Batches | None:
        """Examples that no participant trains on and that are no test examples; None where there are none."""
        return self._held_out()

    def example(self, participant: int) -> Batch:
        """The first training example, as a batch, of a participant whose examples this rank reads."""
        return self._reader_of(participant).batch(self.shards[participant][:1])

    def test_dataloader(self) -> Batches:
        """The test set, or the share of it that is measured on every rank: each evaluates who it hosts."""
        return self._evaluated("test")

    @property
    def test_sample(self) -> tuple[int, int]:
        """On how many test examples everybody is measured, of how many."""
        everything = torch.arange(len(self._parts["test"]))
        return len(self._measured("test", everything)), len(everything)

    def predict_dataloader(self) -> Batches:
        """The test set, in its order."""
        warnings.filterwarnings("ignore", message=".*infer the batch indices.*")  # they are that order
        return self._readers["test"].batches(torch.arange(len(self._parts["test"])), self.eval_batch_size)

    def _reader_of(self, participant: int) -> Reader:
        """What reads a participant's training examples."""
        return self._readers["training"] if self._own is None else self._own.readers[participant]

    def _held_out(self, part: int = 1) -> Batches | None:
        if "validation" in self._parts:
            return self._evaluated("validation", part=part)
        return self._evaluated("training", self.held_out, part) if len(self.held_out) else None

    def _evaluated(self, which: str, indices: Tensor | None = None, part: int = 1) -> Batches:
        indices = torch.arange(len(self._parts[which])) if indices is None else indices
        measured = self._measured(which, indices, part)
        return self._readers[which].batches(bucketed(self._parts[which].dataset, measured), self.eval_batch_size)

    def _measured(self, which: str, indices: Tensor, part: int = 1) -> Tensor:
        """Those of some examples that everybody is measured on, in their order: all, or what fits and of it a part."""
        if self.measurements is None or self.federation.total * len(indices) <= self.measurements:
            return indices
        generator = torch.Generator().manual_seed(self.federation.seed_for("measured", which))
        drawn = torch.randperm(len(indices), generator=generator)
        return indices[drawn[: max(1, self.measurements // (part * self.federation.total))].sort().values]

    def _take_in(self, sources: Sources) -> None:
        """Check the datasets and make what reads them."""
        classes = getattr(self, "num_classes", None)
        if not isinstance(classes, int) or classes < 1:
            raise UserError(
                f"Expected {type(self).__name__} to say its number of classes, but got {classes}; set num_classes in "
                "the class."
            )
        if not isinstance(sources, Sources):
            raise UserError(
                f"Expected load() of {type(self).__name__} to return Sources(train=..., test=...), but got "
                f"{type(sources).__name__}."
            )
        training = {} if callable(sources.train) else {"training": sources.train}
        validation = {} if sources.validation is None else {"validation": sources.validation}
        datasets = {**training, **validation, "test": sources.test}
        self._parts = {
            which: Part(dataset, which=which, owner=type(self).__name__, num_classes=self.num_classes)
            for which, dataset in datasets.items()
        }
        self._readers = {
            which: Reader(part.dataset, self.num_workers, part.check) for which, part in self._parts.items()
        }

    def _hold(self, own: Own) -> None:
        """Read the hosted participants' own examples."""
        owner = type(self).__name__
        if not isinstance(self.split, OWN):
            raise UserError(
                f"Expected --data.split OWN for {owner}, whose participants have examples of their own, but got "
                f"{type(self.split).__name__}."
            )
        if self.examples_per_participant is not None:
            raise UserError(
                "Expected no --data.examples_per_participant with --data.split OWN, where everybody trains on all that "
                f"is its own, but got {self.examples_per_participant}; leave it out, or give null."
            )
        if "validation" not in self._parts and self.validation_share > 0:
            raise UserError(
                f"Expected {owner} to bring validation examples with --data.split OWN, which holds out nobody's, but "
                "there are none; give Sources(validation=...), or --data.validation 0 and --data.watch test."
            )
        self._own = Holdings(own, self.hosted, owner=owner, num_classes=self.num_classes, num_workers=self.num_workers)

    def _cut(self, generator: torch.Generator) -> None:
        """Hold examples out and divide the rest."""
        labels = self._parts["training"].labels
        order = torch.randperm(len(labels), generator=generator)
        brought = "validation" in self._parts
        held_out = 0 if brought else round(self.validation_share * len(labels))
        if not brought and self.validation_share > 0 and held_out == 0:
            raise UserError(
                f"Expected --data.validation to hold out at least one of {len(labels)} training examples, but "
                f"{self.validation_share} of them is none; raise it."
            )
        self.held_out, rest = order[:held_out], order[held_out:]
        if self.federation.total > len(rest):
            raise UserError(
                f"Expected at least one training example for each of {self.federation.total} participants, but there "
                f"are {len(rest)}; lower --federation.participants or --federation.adversaries."
            )
        pool = Pool(
            labels=labels[rest],
            num_classes=self.num_classes,
            participants=self.federation.honest,
            each=self.examples_per_participant or max(1, len(rest) // self.federation.honest),
            generator=generator,
        )
        honest = [rest[shard] for shard in shards_of(self.split, pool)]
        adversaries, each = self.federation.adversaries, self.adversary_examples
        self.shards = honest + adversaries_shards(adversaries, each, rest, honest, generator)

    def _check_test_limit(self) -> None:
        """Final accuracies are measured in the end: without a batch there would be none."""
        limit = 1.0 if self.trainer is None else self.trainer.limit_test_batches
        count = len(self.test_dataloader())
        if limit == 0 or (isinstance(limit, float) and limit * count < 1):
            raise UserError(
                f"Expected --trainer.limit_test_batches to leave at least one of {count} test batches, but got "
                f"{limit:g}; give a number from 1 on, or leave it out."
            )
