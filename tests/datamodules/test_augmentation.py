"""Training examples that change whenever they are trained on, `--data.augment`."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from torch.utils.data import TensorDataset
from torchvision.transforms.v2 import functional as vision

from rffl_pl import UserError
from rffl_pl.adversaries import LabelFlip
from rffl_pl.adversaries.cast import Poisoned
from rffl_pl.callbacks import StandaloneReference
from rffl_pl.datamodules import Augmentation, CropFlip, Digits
from rffl_pl.datamodules.reading import Reader
from rffl_pl.datamodules.rounds import Shard
from rffl_pl.federation import Federation
from rffl_pl.servers import FedAvg
from rffl_pl.training.cohort import Cohort
from rffl_pl.training.schedule import Examples, Schedule
from tests.cli.folders import assert_same_bits
from tests.cohorts import CPU, seeded, sgd
from tests.conftest import QUICK, Ended, only_run
from tests.datamodules.small import InMemory, OneAtATime
from tests.ranks import assert_goes_on
from tests.runs import federate

RUN = (
    "fit", "--config", "configs/digits.yaml", "--federation.participants", 3, "--federation.adversaries", 1,
    "--adversaries", "[LabelFlip]", "--data.split", "POW", "--data.examples_per_participant", 60,
    "--data.adversary_examples", 40, "--data.augment", "CropFlip", "--data.augment.padding", 1,
    "--data.augment.flip", "false", "--trainer.max_epochs", 3, *QUICK,
)  # fmt: skip


class Noise(Augmentation):
    """Draws from every stream that there is, and changes what it is given in place."""

    def __call__(self, x: Tensor) -> Tensor:
        return x.add_(0.3 * torch.randn_like(x) + 0.1 * random.random() + 0.1 * float(np.random.rand()))


class Counting(Augmentation):
    """Remembers how often it was called, or draws from a stream of its own."""

    def __init__(self, what: str) -> None:
        self.calls, self.stream = 0, torch.Generator()
        self.what = what

    def __call__(self, x: Tensor) -> Tensor:
        if self.what == "calls":
            self.calls += 1
            return x + self.calls
        return x + torch.rand(1, generator=self.stream)


_OWN = np.random.default_rng(0)


class Drawing(Augmentation):
    """Draws from a generator that is no attribute of its own, and goes on from call to call."""

    def __call__(self, x: Tensor) -> Tensor:
        return x + float(_OWN.random())


class Learnt(Augmentation):
    """A layer, whose outputs would want a gradient, and what is prepared when it is first called."""

    def __init__(self) -> None:
        self.layer, self.prepared = nn.Linear(8, 8), False

    def __call__(self, x: Tensor) -> Any:
        self.prepared = True
        return self.layer(x)


class Wrong(Augmentation):
    """Does what it is told to."""

    def __init__(self, does: Callable[[Tensor], Any]) -> None:
        self.does = does

    def __call__(self, x: Tensor) -> Any:
        return self.does(x)


def images(count: int, height: int = 5, width: int = 7) -> Tensor:
    """Images ``[count, 2, height, width]`` of which every value is another, none of them 0."""
    return torch.arange(1.0, 1 + count * 2 * height * width).view(count, 2, height, width)


@pytest.mark.parametrize(("padding", "flip"), [(0, True), (1, False), (1, True), (2, False), (2, True)])
def test_every_crop_is_as_likely(padding: int, flip: bool) -> None:
    """Each image is one of torchvision's crops, drawn by itself, and every one of them comes about as often."""
    one, copies = images(1), 6000
    places = [(top, left) for top in range(2 * padding + 1) for left in range(2 * padding + 1)]
    framed = pad(one[0], (padding,) * 4)
    crops = {(place, False): vision.crop(framed, *place, 5, 7) for place in places}
    if flip:
        crops |= {(place, True): vision.horizontal_flip(crops[place, False]) for place in places}
    known = {tuple(crop.flatten().tolist()): name for name, crop in crops.items()}
    torch.manual_seed(0)
    found = CropFlip(padding=padding, flip=flip)(one.expand(copies, -1, -1, -1).clone())
    names = [known[tuple(image.flatten().tolist())] for image in found]
    often = Counter(names)
    assert often.keys() == crops.keys()
    expected = copies / len(crops)
    # So rarely is chi-squared farther off: five deviations of it.
    free = max(1, len(crops) - 1)
    assert sum((often[name] - expected) ** 2 for name in crops) / expected < free + 5 * (2 * free) ** 0.5
    if len(crops) > 2:  # neighbours in a batch have nothing to do with each other
        same = sum(a == b for a, b in pairwise(names)) / copies
        assert abs(same - 1 / len(crops)) < 5 * (1 / len(crops) / copies) ** 0.5


def test_images_keep_their_own_pixels() -> None:
    """Of a batch of different images each is cut from itself, in all channels alike."""
    x = images(40)
    torch.manual_seed(1)
    found = CropFlip(padding=2)(x.clone())
    for image, before in zip(found, x, strict=True):
        there = image[0] != 0
        assert torch.isin(image[0][there], before[0]).all()
        assert torch.equal(image[1][there] - image[0][there], torch.full_like(image[0][there], 35))


def network() -> nn.Module:
    return seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3)))


@pytest.mark.parametrize("steps", [None, 5])
@pytest.mark.parametrize("augment", [CropFlip(padding=1), Noise()])
def test_a_stack_trains_as_the_loop_does(augment: Augmentation, steps: int | None) -> None:
    """Beside others who train on their examples as they are, and on both they draw the same."""
    sizes = {0: 3, 1: 28, 2: 40, 3: 17}

    def cohort(stacked: bool, changes: Augmentation | None) -> Cohort:
        shards: dict[int, Examples] = {}
        for i, n in sizes.items():
            generator = torch.Generator().manual_seed(i)
            x, y = torch.randn(n, 1, 8, 8, generator=generator), torch.arange(n) % 3
            shards[i] = Shard(Reader(TensorDataset(x, y)), torch.arange(n), 8, changes if i else None)
        shards[2] = Poisoned(shards[2], lambda x, y: (x, 2 - y))
        made = Cohort(network(), list(sizes), sgd, CPU, stacked=stacked)
        for number in range(3):
            seeds = {i: 10 * number + i for i in sizes}
            made.train_all(shards, Schedule(epochs=2, steps=steps, decay=0.9), number, seeds)
        return made

    one, other, plain = cohort(False, augment), cohort(True, augment), cohort(False, None)
    torch.testing.assert_close(other.weights, one.weights, rtol=1e-5, atol=1e-5)
    assert torch.equal(one.weights[0], plain.weights[0])
    assert all(not torch.equal(one.weights[i], plain.weights[i]) for i in (1, 2, 3))


@pytest.mark.parametrize("kind", [InMemory, OneAtATime])
def test_nothing_else_changes(kind: type[InMemory] | type[OneAtATime]) -> None:
    """Of what lies in memory, and of what is read one at a time, training examples alone, and not what they are."""
    federation = Federation(participants=2)
    data = kind(federation, augment=Noise(), examples_per_participant=30)
    data.setup("fit")
    shard = next(iter(data.train_dataloader()))[1]
    whole = {float(i) for i in range(237)}

    def read(batches: Any) -> set[float]:
        return {value for x, _ in batches for value in x.flatten().tolist()}

    assert not read(shard.epoch()) & whole
    assert not read(shard.epoch()) & read(shard.epoch())
    for batches in (shard.in_order(), data.val_dataloader(), data.test_dataloader(), data.predict_dataloader()):
        assert read(batches) <= whole
    root = data.root_examples()
    assert root is not None
    assert read(root.epoch()) <= whole
    assert sorted(y.item() for _, batch in shard.epoch() for y in batch) == sorted(
        y.item() for _, batch in shard.in_order() for y in batch
    )


@pytest.mark.slow
def test_the_reference_is_trained_so_too(tmp_path: Path) -> None:
    """Training alone goes through the same changes, and by others is another reference."""
    for augment in (None, CropFlip(padding=1, flip=False), CropFlip(padding=1), CropFlip(padding=2)):
        federate(FedAvg(), [LabelFlip()], StandaloneReference(cache_dir=str(tmp_path)), rounds=2, augment=augment)
    assert len([*tmp_path.iterdir()]) == 4


@pytest.mark.slow
def test_two_ranks_and_going_on(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """What is drawn depends neither on who else is hosted nor on how a run began."""
    checkpoint = assert_goes_on(rffl, RUN, tmp_path)
    other = rffl(*RUN, "--data.augment.padding", 2, "--ckpt_path", checkpoint, "--run.root", tmp_path / "other")
    assert other.code == 0
    assert "--data.augment.padding 1 -> 2" in other.err
    with pytest.raises(AssertionError):
        assert_same_bits(only_run(tmp_path / "whole"), only_run(tmp_path / "other"))


@pytest.mark.parametrize(
    ("augment", "expected"),
    [
        (
            Wrong(lambda x: x[:, :, 1:]),
            "inputs of the same shape and type, of .* but got .2, 1, 7, 8. torch.float32",
        ),
        (Wrong(lambda x: x.double()), "of the same shape and type, .* but got .2, 1, 8, 8. torch.float64; return such"),
        (Wrong(lambda x: None), "but got NoneType; return such a tensor"),
        (Wrong(lambda x: x / 0), "to make finite inputs, but got NaN or infinity; mend it"),
        (Wrong(lambda x: int("a")), r"Wrong to change inputs .2, 1, 8, 8., but ValueError: invalid .*test_augment"),
        (
            Counting("calls"),
            "Counting not to change itself during use, since one object .*, but its attribute calls changes",
        ),
        (
            Drawing(),
            "Drawing to draw from the streams around it, .* but it makes something else of the same inputs where",
        ),
        (
            Counting("stream"),
            "not to change itself .*, but its attribute stream changes; have it draw from the surrounding",
        ),
    ],
)
def test_refused_before_training(augment: Any, expected: str) -> None:
    """What no network could be trained with is one sentence."""
    data = Digits(Federation(participants=2), augment=augment)
    with pytest.raises(UserError, match=expected):
        data.setup("fit")
    data.setup("test")  # for which it does not matter


@pytest.mark.parametrize("given", [CropFlip, "CropFlip", lambda x: x])
def test_what_is_none(given: Any) -> None:
    """A class, a name or a function is told so when the data is made, for a test too."""
    with pytest.raises(
        UserError, match=r"--data.augment to be an instance of Augmentation, CropFlip\(\) or one of you"
    ):
        Digits(Federation(participants=2), augment=given)


def test_a_layer_of_ones_own() -> None:
    """Its weights are nobody's to train."""
    data = Digits(Federation(participants=2), augment=Learnt(), examples_per_participant=20)
    data.setup("fit")
    assert not any(x.requires_grad for x, _ in next(iter(data.train_dataloader()))[0].epoch())


def test_no_images() -> None:
    """Numbers in a row cannot be moved or mirrored."""
    with pytest.raises(UserError, match=r"images .* for --data.augment CropFlip, but examples have shape \[1\]; leave"):
        InMemory(Federation(participants=2), augment=CropFlip(), examples_per_participant=5).setup("fit")
