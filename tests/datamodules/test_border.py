"""Bad data is said where it comes in."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from lightning.pytorch import Trainer
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from rffl_pl.datamodules import FederatedDataModule, Sources
from rffl_pl.datamodules.border import labels_of
from rffl_pl.datamodules.reading import Reader
from rffl_pl.datamodules.sentences import Sentences
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from tests.conftest import QUICK, Ended
from tests.datamodules.small import CLASSES, TEST, TRAIN, Plain, tensors
from tests.own_data import Jittered


def labels(dataset: Dataset[Any]) -> Tensor:
    """As a data module has them."""
    return labels_of(dataset, "example", type(dataset).__name__)


class Mislabelled(FederatedDataModule):
    """One label of the training or of the test data is replaced."""

    num_classes = CLASSES

    def __init__(self, federation: Federation, *, where: str, index: int, label: int) -> None:
        super().__init__(federation)
        self.where, self.index, self.label = where, index, label

    def load(self) -> Sources:
        sources = Sources(train=tensors(TRAIN), test=tensors(TEST))
        labels(getattr(sources, self.where))[self.index] = self.label
        return sources


@pytest.mark.parametrize("label", [4, 9, -1])
@pytest.mark.parametrize(("where", "word"), [("train", "training"), ("test", "test")])
def test_label_outside_the_classes(where: str, word: str, label: int) -> None:
    """The message has the example, its label, the range and how many there are."""
    data = Mislabelled(Federation(participants=2), where=where, index=7, label=label)
    with pytest.raises(UserError, match=rf"in 0 \.\. 3, but {word} example 7 has label {label} \(1 of (200|37)"):
        data.setup("fit")


def test_labels_of_every_kind_of_data_set() -> None:
    """Classes are found in tensors, in `targets` or `labels`, or example by example, always as int64."""
    expected = torch.arange(9) % CLASSES
    listed, array, labelled = Plain(9), Plain(9), Plain(9)
    listed.targets = expected.tolist()  # type: ignore[attr-defined]
    array.targets = np.array(expected.tolist(), dtype=np.uint8)  # type: ignore[attr-defined]
    labelled.labels = expected.int()  # type: ignore[attr-defined]
    in_memory = TensorDataset(torch.zeros(9, 1), expected.to(torch.uint8))
    for dataset in (listed, array, labelled, in_memory, tensors(9), Plain(9), Subset(tensors(20), range(9))):
        assert torch.equal(labels(dataset), expected)
        assert labels(dataset).dtype == torch.int64


class Counted(Plain):
    """Counts how often an example is read."""

    def __init__(self, n: int) -> None:
        super().__init__(n)
        self.read = 0

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        self.read += 1
        return super().__getitem__(index)


def test_targets_save_reading_every_example() -> None:
    """With `targets`, few examples are read for their labels: else images on a disk are all decoded before a run."""
    dataset = Counted(1000)
    dataset.targets = torch.arange(1000) % CLASSES  # type: ignore[attr-defined]
    assert torch.equal(labels(dataset), torch.arange(1000) % CLASSES)
    assert dataset.read <= 32
    dataset.exact_targets = True  # type: ignore[attr-defined]
    before = dataset.read
    labels(dataset)
    assert dataset.read == before


def test_labels_that_are_read_leave_the_runs_own_streams_alone() -> None:
    """Where each rank reads whom it hosts, what is drawn later would depend on who that is."""

    def drawn(read: bool) -> tuple[float, float, float]:
        torch.manual_seed(1)
        random.seed(2)
        np.random.seed(3)
        if read:
            labels(Jittered(80))
        return float(torch.rand(())), random.random(), float(np.random.rand())

    assert drawn(True) == drawn(False)


def test_targets_of_examples_that_cannot_be_read() -> None:
    """A damaged image ends setup without its number, or has every other one read."""

    class Unreadable(Plain):
        targets: ClassVar[list[int]] = [3, 1, 2]

        def __getitem__(self, index: int) -> tuple[Tensor, int]:
            raise AssertionError(index)

    assert labels(Unreadable(3)).tolist() == [3, 1, 2]


class Mapped(Plain):
    """Examples that come with other classes than its `targets` are."""

    def __init__(self, n: int, classes: Callable[[int], int], **attributes: Any) -> None:
        super().__init__(n)
        self.targets = [i % CLASSES for i in range(n)]
        self.classes = classes
        vars(self).update(attributes)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        x, _ = super().__getitem__(index)
        return x, self.classes(index)


@pytest.mark.filterwarnings("ignore:No honest participant")
def test_labels_are_those_that_training_sees() -> None:
    """Splits and checks go by other classes than training, where a data set maps its `targets` as it is read."""
    data = with_part("train", Mapped(TRAIN, lambda i: i % CLASSES // 2))
    data.setup("fit")
    assert torch.equal(data._parts["training"].labels, torch.arange(TRAIN) % CLASSES // 2)
    assert data.classes == [2, 2]
    data = with_part("test", Mapped(TEST, lambda i: i % CLASSES + 1))
    with pytest.raises(UserError, match=r"but test example 3 has label 4 \(9 of 37 are outside\)"):
        data.setup("fit")


def test_a_target_transform_has_every_label_read() -> None:
    """A class that is rare and mapped to another is among none of a few examples."""
    dataset = Mapped(1000, lambda i: 0 if i == 7 else i % CLASSES, target_transform=None)
    assert labels(dataset)[7] == 7 % CLASSES
    dataset.target_transform = int  # type: ignore[attr-defined]
    assert labels(dataset)[7] == 0


class Halved(TensorDataset):
    """Tensors with a transform of one example, as people add it: a batch of them it does not take."""

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        x, y, *_ = self.tensors
        return x[index] / 2, y[int(index)] // 2


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.filterwarnings("ignore:No honest participant")
def test_tensors_with_a_transform_are_read_one_by_one(count: int) -> None:
    """It would be given many numbers at once, or be left out, and labels be those before it."""
    rows = torch.arange(40)
    data = with_part("train", Halved(rows.float().unsqueeze(1), rows % CLASSES, *[rows] * (count - 2)))
    data.num_workers = 1
    data.setup("fit")
    assert data.classes == [2, 2]
    reader = data._readers["training"]
    assert (reader.in_memory, reader.num_workers, reader.batches(rows, 8).tensors) == (False, 1, None)
    x, y = reader.batch(torch.tensor([5, 2, 39]))
    assert (x.tolist(), y.tolist()) == ([[2.5], [1.0], [19.5]], [0, 1, 1])
    everything = with_part("train", TensorDataset(rows.float().unsqueeze(1), rows % CLASSES // 2))
    everything.setup("fit")
    assert data.identity()["shards"] == everything.identity()["shards"]
    assert data.identity()["inputs"] != everything.identity()["inputs"]  # of the test set alone


def test_tensors_under_another_name() -> None:
    """A class of one's own that reads as its base would be slowed down for its name."""

    class Named(TensorDataset):
        pass

    assert Reader(Named(*tensors(9).tensors)).in_memory
    assert Reader(Sentences([[2], [3, 4]], [0, 1])).in_memory


class Given(FederatedDataModule):
    """Whatever datasets it is given."""

    num_classes = CLASSES

    def __init__(self, sources: Sources, **options: Any) -> None:
        super().__init__(Federation(participants=2), **{"split": "UNI", **options})
        self.given = sources

    def load(self) -> Sources:
        return self.given


class Altered(Plain):
    """Examples one at a time, one of which is something else."""

    def __init__(self, n: int, index: int, example: Any, targets: bool = False) -> None:
        super().__init__(n)
        self.index, self.example = index, example
        if targets:
            self.targets = [i % CLASSES for i in range(n)]

    def __getitem__(self, index: int) -> Any:
        return self.example if index == self.index else super().__getitem__(index)


def with_part(which: str, dataset: Any) -> Given:
    return Given(Sources(**{"train": tensors(TRAIN), "test": tensors(TEST), which: dataset}))


WHICH = [("train", "training"), ("validation", "validation"), ("test", "test")]
every_part = pytest.mark.parametrize(("part", "word"), WHICH)


def told(data: FederatedDataModule) -> str:
    """The one sentence that setup ends with."""
    with pytest.raises(UserError) as caught:
        data.setup("fit")
    assert str(caught.value).count(". ") == 0
    return str(caught.value)


@every_part
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_an_input_in_memory_that_is_not_finite(part: str, word: str, value: float) -> None:
    """Setup names the data set, the part, the first such example and how many there are."""
    x = torch.randn(50, 3, 4)
    x[[7, 33], 1, 2] = value
    sentence = told(with_part(part, TensorDataset(x, torch.arange(50) % CLASSES)))
    assert f"finite inputs of Given, but {word} example 7 has NaN or infinity (2 of 50" in sentence


def test_large_and_whole_inputs_are_fine() -> None:
    """Inputs whose sum overflows are finite all the same; token ids and bytes are never infinite."""
    for x in (torch.full((40, 2), 3e38), torch.full((40, 2), 60000.0).half(), torch.ones(40, 2, dtype=torch.int64)):
        with_part("train", TensorDataset(x, torch.arange(40) % CLASSES)).setup("fit")


@every_part
@pytest.mark.parametrize("one_by_one", [True, False])
@pytest.mark.parametrize(("value", "shown"), [(0.25, "0.25"), (2.5, "2.5"), (float("nan"), "nan")])
def test_labels_that_are_no_whole_numbers(part: str, word: str, one_by_one: bool, value: float, shown: str) -> None:
    """Floats between classes are refused; they would all become the class below."""
    labels = [float(i % CLASSES) for i in range(40)]
    labels[9] = labels[21] = value
    rows: Any = TensorDataset(torch.zeros(40, 1), torch.tensor(labels))
    sentence = told(with_part(part, Subset(rows, range(40)) if one_by_one else rows))
    assert f"labels of Given to be whole numbers, but {word} example 9 has label {shown} (2 of 40" in sentence


@pytest.mark.parametrize("labels", [torch.arange(40) % 2 == 1, torch.arange(40).float() % 2, torch.arange(40) % 2])
@pytest.mark.filterwarnings("ignore:No honest participant")
def test_labels_that_are_whole_numbers(labels: Tensor) -> None:
    """Booleans and whole floats are classes."""
    data = with_part("train", TensorDataset(torch.zeros(40, 1), labels))
    data.setup("fit")
    assert data.classes == [2, 2]


@every_part
@pytest.mark.parametrize("dataset", [tensors(0), Plain(0)], ids=["tensors", "plain"])
def test_no_examples(part: str, word: str, dataset: Any) -> None:
    """An empty part is said in setup, not as NaN in a summary."""
    assert f"Expected Given to have {word} examples, but there is none" in told(with_part(part, dataset))


@every_part
@pytest.mark.parametrize(
    "example",
    [("a string", 1), (object(), 1), (torch.zeros(1), torch.zeros(2)), (torch.zeros(1), 1, 2), torch.zeros(1)],
)
def test_an_example_that_is_no_pair_of_tensors(part: str, word: str, example: Any) -> None:
    """The first example of every part is looked at in setup."""
    sentence = told(with_part(part, Altered(40, 0, example, targets=True)))
    assert f"Expected {word} examples of Given to be pairs (x, y)" in sentence
    assert "batch with example 0" in sentence


def test_data_sets_of_another_kind() -> None:
    """Without a length, or with other than two tensors, nothing can be divided."""

    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(())

    assert "map-style dataset, with __len__ and __getitem__, but got Stream" in told(with_part("test", Stream()))
    for count in (1, 3):
        rows = TensorDataset(*[torch.zeros(9)] * count)
        assert f"TensorDataset has {count} tensor(s)" in told(with_part("train", rows))
    column = TensorDataset(torch.zeros(9, 1), torch.zeros(9, 1))
    assert "to be pairs (x, y)" in told(with_part("train", column))


BROKEN = {
    "NaN": ((torch.tensor([float("nan")]), 1), "finite inputs of Given, but training example 14 has NaN"),
    "another label": ((torch.zeros(1), 0.5), "whole numbers, but training example 14 has label 0.5"),
    "another class": ((torch.zeros(1), 7), "in 0 .. 3, but training example 14 has label 7"),
    "another shape": (
        (torch.zeros(2), 1),
        "every x of one shape, but training example 14 is not (it is of shape [2], most are of shape [1]);",
    ),
    "no tensor": ((object(), 1), "training example 14 is not (it is of type object, most are of shape [1]);"),
    "no pair": (torch.zeros(1), "training example 14 is not (it is no pair, most are of shape [1]);"),
}


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("fault", BROKEN)
def test_an_example_that_is_read_later(fault: str, num_workers: int) -> None:
    """What setup does not see is said, in one sentence, by the pass that reads it, in whichever process."""
    example, expected = BROKEN[fault]
    data = with_part("train", Altered(TRAIN, 14, example, targets=True))
    data.setup("fit")
    reader = Reader(data._parts["training"].dataset, num_workers, data._parts["training"].check)
    walked: list[Any] = []
    with pytest.raises(UserError) as caught:
        walked.extend(reader.batches(torch.arange(TRAIN), 8))
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(walked) == 1
    del caught  # and with its traceback the pass that was left, whose workers the next one takes over
    assert len(list(reader.batches(torch.arange(20, 60), 8))) == 5


@pytest.mark.parametrize("num_workers", [0, 1])
@pytest.mark.parametrize("together", [False, True])
def test_an_example_that_cannot_be_read(num_workers: int, together: bool) -> None:
    """A user would mend the first one of its batch, with which nothing is wrong."""

    class Torn(Altered):
        def __getitem__(self, index: int) -> Any:
            if index == self.index:
                raise OSError("disk gone")
            return super().__getitem__(index)

    dataset = Torn(TRAIN, 14, None, targets=True)
    if together:
        dataset.__getitems__ = lambda indices: [dataset[i] for i in indices]  # type: ignore[attr-defined]
    data = with_part("train", dataset)
    data.setup("fit")
    reader = Reader(dataset, num_workers, data._parts["training"].check)
    with pytest.raises(UserError, match=r"but training example 14 is not \(OSError: disk gone\); convert") as caught:
        list(reader.batches(torch.tensor([4, 5, 14, 6]), 4))
    reader.close()
    if not num_workers:
        assert isinstance(caught.value.__cause__.__cause__, OSError)  # type: ignore[union-attr]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_sequences_that_their_dataset_pads(num_workers: int) -> None:
    """One that makes its batches itself pads each to its longest; one by one they are of unlike length."""

    class Sequences(Plain):
        def __getitem__(self, index: int) -> Any:
            return torch.full((1 + index % 5,), float(index)), index % CLASSES

        def __getitems__(self, indices: list[int]) -> Any:
            x, y = zip(*(self[i] for i in indices), strict=True)
            return list(zip(pad_sequence(list(x), batch_first=True), y, strict=True))

    dataset = Sequences(TRAIN)
    data = with_part("train", dataset)
    data.setup("fit")
    reader = Reader(dataset, num_workers, data._parts["training"].check)
    (short, _), (long, y) = reader.batches(torch.tensor([0, 5, 4, 1]), 2)
    reader.close()
    assert short.tolist() == [[0.0], [5.0]]
    assert long.tolist() == [[4.0] * 5, [1.0, 1.0, 0.0, 0.0, 0.0]]
    assert y.tolist() == [4 % CLASSES, 1 % CLASSES]


@pytest.mark.parametrize(("order", "named"), [([13, 4, 5], 13), ([4, 13], None), ([4, 13, 5], 13)])
def test_the_example_that_is_blamed(order: list[int], named: int | None) -> None:
    """A user would mend another example: torch compares all with the first, whichever that is."""
    data = with_part("train", Altered(TRAIN, 13, (torch.zeros(2), 1), targets=True))
    data.setup("fit")
    part = data._parts["training"]
    reader = Reader(part.dataset, 0, part.check)
    with pytest.raises(UserError, match=f"but training example {named} is" if named else "but a batch with example 4"):
        reader.batch(torch.tensor(order))


def test_whoever_meets_a_bad_example_in_training_is_told(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """A run ends with the sentence and exit code 2: nobody is removed for data that nobody can train on."""
    network = ("--model.network", "Perceptron", "--model.network.inputs", 2, "--model.network.classes", 2)
    ended = rffl("fit", "--data", "tests.own_data.OneBroken", *network, *QUICK, "--federation.participants", 3)
    assert ended.code == 2
    assert "Error: Expected finite inputs of OneBroken, but training example 17 has NaN or infinity" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("stage", ["fit", "validate"])
def test_watching_on_nothing(stage: str) -> None:
    """Lightning told so in the round that was watched first, with all rounds before it played."""
    data = with_part("test", tensors(TEST))
    data.trainer = Trainer(limit_val_batches=0.01, accelerator="cpu", logger=False, enable_checkpointing=False)
    with pytest.raises(UserError, match=r"--trainer\.limit_val_batches .*one of 1 val batches, but got 0\.01;"):
        data.setup(stage)
    data.setup("test")
    data.trainer = Trainer(limit_val_batches=0, accelerator="cpu", logger=False, enable_checkpointing=False)
    data.setup("fit")  # who trains may watch nothing
    setattr(data, "val_dataloader", lambda: iter(()))  # noqa: B010  # mypy takes no method
    data.setup("validate")  # one's own without a length
    delattr(data, "val_dataloader")
    with pytest.raises(UserError, match=r"--trainer\.limit_val_batches .*one of 1 val batches, but got 0;"):
        data.setup("validate")


@pytest.mark.parametrize("limit", [0, 0.01])
@pytest.mark.parametrize("stage", ["fit", "test"])
def test_testing_on_nothing(limit: float, stage: str) -> None:
    """A limit that leaves no test batch is refused before training, not reported as NaN after it."""
    data = with_part("test", tensors(TEST))
    data.trainer = Trainer(limit_test_batches=limit, accelerator="cpu", logger=False, enable_checkpointing=False)
    with pytest.raises(UserError, match=rf"--trainer\.limit_test_batches .*one of 1 test batches, but got {limit:g};"):
        data.setup(stage)
    data.setup("validate")


def test_labels_are_read_once() -> None:
    """A data set without `targets` is read whole in setup alone, not again for classes or every checkpoint."""
    dataset = Counted(TRAIN)
    data = with_part("train", dataset)
    data.setup("fit")
    after_setup = dataset.read
    assert TRAIN <= after_setup <= TRAIN + 1
    assert data.identity() == data.identity()
    assert data.classes == data.classes
    assert dataset.read == after_setup


@pytest.mark.parametrize("given", [np.int64(4), torch.tensor(4), torch.tensor([4]), np.array(4)], ids=repr)
def test_a_number_of_classes_that_was_counted(given: Any) -> None:
    """`y.max() + 1` is refused, or is no number that a checkpoint or a network's size can take."""
    data = with_part("train", tensors(TRAIN))
    data.num_classes = given
    data.setup("fit")
    assert (type(data.num_classes), data.num_classes) == (int, 4)
    assert data.identity()["classes"] == "4"


class Property(Given):
    """Counts its classes whenever it is asked."""

    num_classes = property(lambda self: np.int64(4))


@pytest.mark.parametrize(
    ("given", "what"), [(4.0, "float"), (np.float64(4), "float64"), (torch.ones(2, 2), "Tensor"), ("4", "str")]
)
def test_a_number_of_classes_that_is_no_whole_number(given: Any, what: str) -> None:
    """The sentence shows a 4 and says that it is none."""
    data = with_part("train", tensors(TRAIN))
    data.num_classes = given
    assert told(data) == (
        f"Expected Given to say its number of classes, but got one of type {what}; set num_classes in the class to an "
        "int."
    )
    counted = Property(Sources(train=tensors(TRAIN), test=tensors(TEST)))
    assert "Expected Property to say its number of classes, but got one of type int64;" in told(counted)


class Failing(Given):
    """Counts classes that it cannot count."""

    num_classes = property(lambda self: len(3))  # type: ignore[arg-type]  # which is its mistake


class Unnamed(Given):
    """Reads the names of its classes from where there are none."""

    class_names = property(lambda self: vars(self)["names"])


class Nowhere(Plain):
    """Likewise where its examples come from."""

    places = property(lambda self: vars(self)["places"])


def test_names_and_places_that_cannot_be_read() -> None:
    named = Unnamed(Sources(train=tensors(TRAIN), test=tensors(TEST)))
    assert told(named).startswith("Expected Unnamed to say what its classes are called, but KeyError: 'names'")
    with pytest.raises(
        UserError, match=r"^Expected Nowhere to say where its examples come from, but KeyError: 'places'"
    ):
        with_part("test", Nowhere(TEST)).setup("predict")


def test_a_number_of_classes_that_cannot_be_counted() -> None:
    counted = Failing(Sources(train=tensors(TRAIN), test=tensors(TEST)))
    assert told(counted).startswith("Expected Failing to say its number of classes, but TypeError: object of type")


@pytest.mark.parametrize(
    ("given", "got"),
    [(("a", "b"), "2 names"), ("abcd", "'abcd'"), (("a", "a", "b", "c"), "a twice"), ((1, 2, 3, 4), r"(1, 2, 3, 4)")],
)
def test_names_that_are_not_those_of_the_classes(given: Any, got: str) -> None:
    """They show when predictions are written: a traceback, or two classes with one name."""
    data = with_part("train", tensors(TRAIN))
    data.class_names = given
    assert told(data) == (
        f"Expected class_names of Given to be a list of 4 different texts, one for each class, or empty, but got {got}."
    )
    data.class_names = ["a", "b", "c", "d"]
    data.setup("fit")


@pytest.mark.parametrize("given", [0, -2])
def test_no_classes(given: int) -> None:
    """Nobody would know how many outputs a network needs."""
    data = with_part("train", tensors(TRAIN))
    data.num_classes = given
    assert f"to say its number of classes, but got {given}; set" in told(data)
