"""The base of all data modules: a data set in, one private shard per participant out."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import astuple
from functools import cached_property, partial
from itertools import chain
from typing import Any, ClassVar, Literal, TypeVar, cast

import torch
from lightning.pytorch import LightningDataModule
from lightning.pytorch.utilities.rank_zero import rank_zero_warn
from torch import Tensor
from torch.utils.data import Dataset

from rffl_pl.configured import Configured
from rffl_pl.datamodules.augmenting import Augmentation, check_augment, check_made
from rffl_pl.datamodules.border import Part, groups_of, tensors_of
from rffl_pl.datamodules.classes import check_names_of_classes, take_number_of_classes
from rffl_pl.datamodules.identity import digests_of_own, digests_of_shards
from rffl_pl.datamodules.inputs import spread
from rffl_pl.datamodules.labelled import Groups
from rffl_pl.datamodules.measuring import Measuring
from rffl_pl.datamodules.own import Holding, Holdings, Own, by_participant, check_own, is_own
from rffl_pl.datamodules.preparing import called, held
from rffl_pl.datamodules.reading import Batch, Batches, Evaluated, Joint, Reader
from rffl_pl.datamodules.rounds import RoundLoader, Shard
from rffl_pl.datamodules.sentences import Sentences
from rffl_pl.datamodules.shards import UNASKED, divided, nobodys_class, set_aside
from rffl_pl.datamodules.sources import Sources
from rffl_pl.datamodules.splits import DIR, OWN, Split, named
from rffl_pl.datamodules.splits.dirichlet import check_alpha
from rffl_pl.errors import UserError, check_number
from rffl_pl.federation import Federation, check_federation
from rffl_pl.functional.fingerprints import fingerprints
from rffl_pl.functional.streams import Stream
from rffl_pl.launch import words

Watch = Literal["validation", "test"]
T = TypeVar("T")

_OURS = ("train_dataloader", "transfer_batch_to_device", "on_before_batch_transfer", "on_after_batch_transfer")
"""Lightning's hooks that participants' training goes without, in part or as a whole."""

MOST_WORKERS = 4096
"""More processes than a machine starts."""


class FederatedDataModule(Configured, LightningDataModule, ABC):
    """Divides a data set among participants. Your own data set is a subclass with `num_classes` and `load`.

    Args:
        federation: Who takes part.
        split: ``UNI`` equal shards; ``POW`` sizes after a power law; ``CLA`` more and more classes; ``DIR`` Dirichlet
            label skew; ``SHARDS`` a few pieces of what is sorted by class; ``MIX`` alike in part and sorted for the
            rest; ``GROUPS`` those that the data names; ``OWN`` what every participant brings; or a split of your own.
            See `rffl_pl.datamodules.splits`.
        examples_per_participant: Average size of the honest participants' shards; by default what there is, divided by
            their number N and rounded down, so that up to N - 1 examples are left over. Under ``OWN`` all there are;
            under ``GROUPS`` at most.
        dirichlet_alpha: Concentration of ``DIR`` where its own ``alpha`` does not say otherwise.
        adversary_examples: Examples that each adversary holds, outside the honest shards where enough are left; under
            ``OWN`` each brings its own, as everybody does.
        validation: Share of the training data that is held out for watching, and for a server that validates, unless
            the data set brings its own; 0, with ``watch`` ``test``, holds nothing out.
        watch: What accuracies are measured on during training: ``validation`` or ``test`` (for curves to compare
            with published ones; nothing is ever selected by them).
        batch_size: Examples per local mini-batch.
        augment: Changes training examples at random whenever they are trained on: `CropFlip`, or a class of your own.
        eval_batch_size: Examples per batch of validation, test and prediction.
        measurements: At most so many pairs of a participant and an example are measured at a time: with more, all
            participants are measured on the same share of the examples, drawn once, and the run says so; after a
            round, of which there are many, on half of that share; None for all. Of examples of their own all are
            measured on the same number, or those that there are.
        num_workers: Loader processes, for datasets that are not tensors in memory; as many for each participant where
            all train as one stack, or where all are measured on examples of their own.

    Raises:
        UserError: If an argument is out of range, in `setup` if the data does not fit them or cannot be trained or
            tested on, and from loaders if an example that is read turns out to be such.
    """

    _group: ClassVar[str] = "--data"

    num_classes: int
    class_names: Sequence[str] = ()
    """What the classes are called, if they have names."""

    places: Sequence[str] = ()
    """Options of the constructor that say where files lie, beside its bases'. Machines may differ in them; the labels
    that they read are compared."""

    validation_remedy: str = "give Sources(validation=...), or "
    """How a user brings validation examples, for the message where some are needed; empty where nobody can."""

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
        adversary_examples: int = UNASKED,
        validation: float = 0.1,
        watch: Watch = "validation",
        batch_size: int = 32,
        augment: Augmentation | None = None,
        eval_batch_size: int = 64,
        measurements: int | None = 250_000,
        num_workers: int = 0,
    ) -> None:
        super().__init__()
        check_federation(federation)
        for name, value in (
            ("examples_per_participant", 1 if examples_per_participant is None else examples_per_participant),
            ("adversary_examples", adversary_examples),
            ("batch_size", batch_size),
            ("eval_batch_size", eval_batch_size),
            ("measurements", 1 if measurements is None else measurements),
        ):
            check_number(f"--data.{name}", value, 1)
        check_number("--data.num_workers", num_workers, 0, MOST_WORKERS)
        if not 0 <= validation < 1 or (validation == 0 and watch == "validation"):
            raise UserError(
                f"Expected --data.validation to lie between 0 and 1, but got {validation}; try 0.1, or 0 with "
                "--data.watch test."
            )
        check_alpha("--data.dirichlet_alpha", dirichlet_alpha)
        check_made(augment)
        self.federation = federation
        self.split = named(split)
        if isinstance(self.split, DIR) and self.split.alpha is None:
            self.split = self.split.concentrated(dirichlet_alpha)
        self.examples_per_participant = examples_per_participant
        self.adversary_examples = adversary_examples
        self.validation_share = validation
        self.watch = watch
        self.batch_size = batch_size
        self.augment = augment
        self.eval_batch_size = eval_batch_size
        self.measurements = measurements
        self.num_workers = num_workers
        self.sources: Sources | None = None
        self._cut: dict[str, str] = {}
        self.shards: list[Tensor] = []
        self.held_out = torch.empty(0, dtype=torch.int64)
        self._parts_read: dict[str, Part] | None = None
        self._readers: dict[str, Reader] = {}
        self._asked: dict[object, Reader] = {}
        self._own: dict[str, Holdings] = {}
        self._told: dict[str, list[Holding]] = {}

    @abstractmethod
    def load(self) -> Sources:
        """Read the data set; called once on every rank. Download in `prepare_data`, which one process per node runs."""

    def setup(self, stage: str) -> None:
        """Read the data, see that it can be used, and cut the shards: the same on every rank, however many there are.

        Labels are read once, here; examples that are somebody's own where it is hosted, and of them all ranks are
        told how many there are, of how many classes, and a digest. A mistake that one rank meets ends all of them.
        """
        measured = {"fit": ["test", "val"], "validate": ["val"], "test": ["test"], "predict": ["predict"]}
        if stage not in measured:
            raise UserError(f"Expected setup of one of {', '.join(measured)}, but got {stage}; give setup('fit').")
        if not hasattr(self, "_readers"):
            raise UserError(
                f"Expected the constructor of {type(self).__name__} to call super().__init__(federation, **kwargs), "
                "but it does not; have it do so first."
            )
        for name in _OURS:
            if getattr(type(self), name) is not getattr(FederatedDataModule, name):
                raise UserError(
                    f"Expected {type(self).__name__} to leave {name} as it is, which participants' training goes "
                    "without; change examples in load, or at random with --data.augment."
                )
        words.keep_private(isinstance(self.split, OWN))
        strategy = None if self.trainer is None else self.trainer.strategy
        # Alone, in a notebook, there is nobody else.
        together = getattr(strategy, "together", lambda step: step())
        everybodys = getattr(strategy, "everybodys", lambda value: [value])
        together(self._set_up)
        if self._own and not self._told:
            mine = [(which, i, *astuple(told)) for which, own in self._own.items() for i, told in own.told.items()]
            self._told = by_participant(chain.from_iterable(everybodys(mine)), self.federation.total)
            self.shards = [torch.arange(holding.examples) for holding in self._told["training"]]
        for which in measured[stage]:
            together(partial(self._check_limit, which, stage))
        if stage == "fit":
            together(self._check_augment)
            self._tell_of_classes()
        if stage == "predict":
            together(self._check_places)

    def _set_up(self) -> None:
        if self.mistake is not None:
            raise self.mistake
        if not self._cut:
            sources = called(self.load, f"load() of {type(self).__name__} to read the data")
            self._take_in(sources)
            own = {which: examples for which, examples in sources.parts().items() if is_own(examples)}
            if own:
                self._hold(own, brought=sources.validation is not None)
            else:
                self._divide(groups_of(sources.groups, len(self._parts["training"]), type(self).__name__))
            self.sources, self._cut = sources, self._cut_by()
        elif changed := [option for option, now in self._cut_by().items() if self._cut.get(option) != now]:
            raise UserError(
                f"Expected {type(self).__name__} to be of the options by which its shards were cut, once and for all, "
                f"but {changed[0]} is another now; make a data module of its own for every run."
            )

    def _cut_by(self) -> dict[str, str]:
        """What decides the shards now, by option."""
        members = self.federation
        split = sorted(fingerprints(self.split).items()) if isinstance(self.split, Split) else self.split
        return {
            "--federation.seed": str(members.seed),
            "--federation.participants": str(members.honest),
            "--federation.adversaries": str(members.adversaries),
            "--data.split": f"{type(self.split).__name__} {split}",
            "--data.examples_per_participant": str(self.examples_per_participant),
            "--data.adversary_examples": str(self.adversary_examples),
            "--data.validation": str(self.validation_share),
        }

    @property
    def _parts(self) -> dict[str, Part]:
        """The datasets that are everybody's, by kind, once they have been read."""
        if self._parts_read is None:
            raise UserError(
                f"Expected {type(self).__name__} to have read its examples, but it has not; call setup('fit') first, "
                "and super().setup(stage) in a setup of your own."
            )
        return self._parts_read

    @property
    def hosted(self) -> list[int]:
        """The participants that this rank hosts: all, where there is no trainer."""
        rank, ranks = (0, 1) if self.trainer is None else (self.trainer.global_rank, self.trainer.world_size)
        return self.federation.hosted_by(rank, ranks)

    @property
    def shard_sizes(self) -> list[int]:
        """Number of training examples of every participant."""
        return [len(shard) for shard in self.shards]

    @property
    def shard_groups(self) -> list[str | None]:
        """What the group is called that each honest participant holds, None of adversaries; empty without names."""
        groups = None if self.sources is None else self.sources.groups
        if not isinstance(groups, Groups):
            return []
        held = [{groups[k] for k in shard.tolist()} for shard in self.shards[: self.federation.honest]]
        named = [groups.names[min(numbers)] if len(numbers) == 1 else None for numbers in held]
        return [*named, *[None] * self.federation.adversaries]

    @cached_property
    def classes(self) -> list[int]:
        """Number of different classes among every participant's training examples."""
        if self._told:
            return [told.classes for told in self._told["training"]]
        labels = self._parts["training"].labels
        return [len(labels[shard].unique()) for shard in self.shards]

    def settings(self, prefix: str = "") -> dict[str, str]:
        """As of everything configured, with what changes training examples."""
        changes = {} if self.augment is None else self.augment.settings(f"{prefix}.augment")
        return super().settings(prefix) | changes

    def identity(self) -> dict[str, str]:
        """What a checkpoint of this data must agree with, and other ranks: of inputs too, where anything tells them."""
        facts = {
            "data set": type(self).__name__,
            "classes": str(self.num_classes),
            "split": type(self.split).__name__,
        }
        return facts | {name: digest for name, digest in self._digests.items() if digest}

    @cached_property
    def _digests(self) -> dict[str, str]:
        """Of the examples, by what `identity` calls them; an empty text where there is nothing to tell."""
        if self._told:
            return digests_of_own(self._parts, self._told, self.class_names)
        return digests_of_shards(self._parts, self.shards, self.class_names)

    def train_dataloader(self) -> RoundLoader:
        """One item per epoch: the shards of the participants that this rank hosts."""
        return RoundLoader(
            {i: Shard(self._reader_of(i), self.shards[i], self.batch_size, self.augment) for i in self.hosted}
        )

    def val_dataloader(self) -> Evaluated:
        """What is watched during training; of what does not all fit ``measurements``, half as much as at the end."""
        watched = self._evaluated("test", part=2) if self.watch == "test" else self._held_out(part=2)
        assert watched is not None
        return watched

    def held_out_dataloader(self) -> Evaluated | None:
        """Examples that no participant trains on and that are no test examples; None where there are none."""
        return self._held_out()

    def root_examples(self) -> Shard | None:
        """Validation examples that are everybody's, in an order drawn at random, for a server to train on; or None.

        Accuracies are watched on them too. What is held out is in such an order already.
        """
        if "validation" in self._parts:
            generator = torch.Generator().manual_seed(self.federation.seed_for("root"))
            order = torch.randperm(len(self._parts["validation"]), generator=generator)
            return Shard(self._readers["validation"], order, self.batch_size)
        if not len(self.held_out):
            return None
        return Shard(self._readers["training"], self.held_out, self.batch_size)

    def apart(self, which: str) -> bool:
        """Whether of ``training``, ``validation`` or ``test`` examples every participant has its own."""
        return which in self._own

    def example(self, participant: int, count: int = 1) -> Batch:
        """The first training examples, as a batch, of a participant whose examples this rank reads."""
        return self._reader_of(participant).batch(self.shards[participant][:count])

    def own_examples(self, participant: int, count: int = 1) -> dict[str, Batch]:
        """Of the examples that are a hosted participant's own so many evenly spread of each kind, as a batch."""
        readers = {which: own.readers[participant] for which, own in self._own.items()}
        return {which: reader.batch(spread(len(reader), count)) for which, reader in readers.items()}

    @property
    def padded(self) -> bool:
        """Whether batches are filled up with zeros to their longest example, as those of sentences are."""
        return any(isinstance(reader.dataset, Sentences) for _, reader in self._every_reader())

    def _every_reader(self) -> Iterator[tuple[str, Reader]]:
        """What reads everybody's examples of each kind, and what reads the hosted participants' own."""
        yield from self._readers.items()
        for which, own in self._own.items():
            yield from ((which, reader) for reader in own.readers.values())

    def extremes(self) -> Iterator[tuple[str, Batch]]:
        """Of the examples of each kind that are whole numbers in memory those with the smallest and the largest.

        Of sentences the longest, and one with the largest id. As a batch; where a trainer predicts also of what it is
        asked for.
        """
        readers = [*self._every_reader()]
        if self.trainer is not None and self.trainer.predicting and (asked := self.asked) is not None:
            readers.append(("predicted", asked))
        for which, reader in readers:
            if isinstance(reader.dataset, Sentences):
                yield which, reader.batch(reader.dataset.extremes())
            elif (tensors := tensors_of(reader.dataset)) is not None and tensors[0].dtype in (torch.int64, torch.int32):
                every = tensors[0].flatten(1) if tensors[0].dim() > 1 else tensors[0].unsqueeze(1)
                yield which, reader.batch(torch.stack([every.amin(1).argmin(), every.amax(1).argmax()]))

    def common_examples(self, count: int, *, in_memory: bool = False) -> list[Batch]:
        """Of everybody's examples so many evenly spread of each kind, one by one.

        Args:
            count: Of a kind.
            in_memory: Also of what lies in memory.
        """
        read = [reader for reader in self._readers.values() if in_memory or not reader.in_memory]
        return [reader.batch(at.unsqueeze(0)) for reader in read for at in spread(len(reader), count)]

    def test_dataloader(self) -> Evaluated:
        """The test set, or the share of it that is measured on every rank: each evaluates who it hosts."""
        return self._evaluated("test")

    @property
    def test_sample(self) -> tuple[int, int]:
        """On how many test examples everybody is measured, of how many; where all have their own, who has most."""
        return self._measuring.sample(self._sizes("test"))

    @property
    def watched_sample(self) -> tuple[int, int]:
        """On how many of the examples that are watched during training everybody is measured, of how many."""
        return self._measuring.sample(self._sizes(self.watch), part=2)

    @property
    def asked(self) -> Reader | None:
        """Reads examples that are predicted in place of the test set; None where nobody asks for any."""
        return None

    def _read_once(self, place: T | None, read: Callable[[T], Dataset[Any]]) -> Reader | None:
        """The reader of examples at a place that a user names for `asked`, made once; None without a place."""
        if place is None:
            return None
        if place not in self._asked:
            self._asked = {place: Reader(read(place), self.num_workers)}
        return self._asked[place]

    def predict_dataloader(self) -> Evaluated:
        """The examples that classes are asked for, else the test set, or each participant's own; in its order."""
        parts = self._parts  # which are there once they are read
        warnings.filterwarnings("ignore", message=".*infer the batch indices.*")  # they are that order
        if (asked := self.asked) is not None:
            return asked.batches(torch.arange(len(asked)), self.eval_batch_size)
        if self.apart("test"):
            return self._measuring.all_apart(self._own["test"].readers, self._sizes("test"))
        count = len(parts["test"])
        return self._measuring.all_common(self._readers["test"], count)

    @staticmethod
    def predicted_places(participant: int, loader: object) -> list[str]:
        """Where each example comes from that is predicted for a hosted participant, in the order of predictions.

        Args:
            participant: Its number.
            loader: What gives the examples, `predict_dataloader`'s or one of somebody's own.

        Returns:
            Their `Batches.places`; none of one's own loader.
        """
        batches = loader.batches[participant] if isinstance(loader, Joint) else loader
        return batches.places if isinstance(batches, Batches) else []

    def _check_places(self) -> None:
        """See to it before anything is predicted."""
        loader = self.predict_dataloader()
        for participant in self.hosted if self.apart("test") else self.hosted[:1]:
            self.predicted_places(participant, loader)

    def teardown(self, stage: str) -> None:
        """Ends the worker processes; who reads on starts others."""
        self._end_workers()

    def on_exception(self, exception: BaseException) -> None:
        self._end_workers()

    def _end_workers(self) -> None:
        if not hasattr(self, "_readers"):
            return  # one's own without a call of super().__init__()
        for reader in (*(reader for _, reader in self._every_reader()), *self._asked.values()):
            reader.close()

    @property
    def _measuring(self) -> Measuring:
        return Measuring(self.federation, self.measurements, self.eval_batch_size)

    def _reader_of(self, participant: int) -> Reader:
        """What reads a participant's training examples."""
        return self._own["training"].readers[participant] if self._own else self._readers["training"]

    def _held_out(self, part: int = 1) -> Evaluated | None:
        if self.apart("validation") or "validation" in self._parts:
            return self._evaluated("validation", part)
        if not len(self.held_out):
            return None
        return self._measuring.common(self._readers["training"], self.held_out, "training", part)

    def _evaluated(self, which: str, part: int = 1) -> Evaluated:
        if self.apart(which):
            return self._measuring.apart(self._own[which].readers, self._sizes(which), which, part)
        everything = torch.arange(len(self._parts[which]))
        return self._measuring.common(self._readers[which], everything, which, part)

    def _sizes(self, which: str) -> list[int]:
        """How many such examples every participant can be measured on: the held-out ones where the data brings none."""
        if self.apart(which):
            return [told.examples for told in self._told[which]]
        return [len(self._parts.get(which, self.held_out))] * self.federation.total

    def _take_in(self, sources: Sources) -> None:
        """Check the datasets and make what reads them."""
        take_number_of_classes(self)
        check_names_of_classes(self)
        if not isinstance(sources, Sources):
            raise UserError(
                f"Expected load() of {type(self).__name__} to return Sources(train=..., test=...), but got "
                f"{type(sources).__name__}."
            )
        self._parts_read = {
            which: Part(
                cast("Dataset[Any]", dataset), which=which, owner=type(self).__name__, num_classes=self.num_classes
            )
            for which, dataset in sources.parts().items()
            if not is_own(dataset)
        }
        self._readers = {
            which: Reader(part.dataset, self.num_workers, part.check) for which, part in self._parts.items()
        }

    def _hold(self, own: Mapping[str, Own], *, brought: bool) -> None:
        """Read the hosted participants' own examples; whether there are validation examples, theirs or everybody's."""
        owner = type(self).__name__
        check_own(own, self.split, self.examples_per_participant, owner)
        if not brought and self.validation_share > 0:
            raise UserError(
                f"Expected {owner} to bring validation examples with --data.split OWN, which holds out nobody's, but "
                f"there are none; {self.validation_remedy}give --data.validation 0 and --data.watch test."
            )
        holdings = partial(Holdings, owner=owner, num_classes=self.num_classes, num_workers=self.num_workers)
        self._own = {which: holdings(read, self.hosted, which=which) for which, read in own.items()}

    def _divide(self, groups: Tensor | None) -> None:
        """Hold examples out, and have the rest be the participants' shards."""
        labels = self._parts["training"].labels
        generator = torch.Generator().manual_seed(self.federation.seed_for("split"))
        order = torch.randperm(len(labels), generator=generator)
        self.held_out, rest = set_aside(order, 0.0 if "validation" in self._parts else self.validation_share)
        self.shards = divided(
            labels, rest, self.federation, self.split, num_classes=self.num_classes,
            each=self.examples_per_participant, adversary_examples=self.adversary_examples, generator=generator,
            groups=groups, class_names=self.class_names,
        )  # fmt: skip

    def _tell_of_classes(self) -> None:
        """Warn of classes that are tested and that nobody trains on, of examples that are everybody's."""
        if self._own:
            return
        labels, tested, honest = self._parts["training"].labels, self._parts["test"].labels, self.federation.honest
        room = len(labels) - len(self.held_out)
        fewer = self.examples_per_participant is not None and self.examples_per_participant * honest < room
        told = nobodys_class(labels, tested, self.held_out, self.shards[:honest], names=self.class_names, fewer=fewer)
        if told is not None:
            rank_zero_warn(told)

    def _check_augment(self) -> None:
        """See that training examples can be changed as is asked for."""
        if self.augment is not None:
            with Stream(0):  # a dataset may draw at random
                x, _ = self.example(self.hosted[0])
            check_augment(self.augment, torch.cat([x, x]))

    def _check_limit(self, which: str, stage: str) -> None:
        """See that something is left of what is asked for, also of what is measured after training, or in the middle.

        Args:
            which: ``test``, ``val`` or ``predict``.
            stage: As of `setup`; who trains may watch nothing.

        Raises:
            UserError: If nothing is.
        """
        limit = 1.0 if self.trainer is None else getattr(self.trainer, f"limit_{which}_batches")
        if limit == 0 and (which, stage) == ("val", "fit"):
            return
        loader = getattr(self, f"{which}_dataloader")()
        if not isinstance(loader, Sized):  # one's own, of which Lightning says what is wrong
            return
        count = len(loader)
        if limit == 0 or (isinstance(limit, float) and limit * count < 1):
            raise UserError(
                f"Expected --trainer.limit_{which}_batches to leave at least one of {count} {which} batches, but got "
                f"{limit:g}; give a number from 1 on, or leave it out."
            )
