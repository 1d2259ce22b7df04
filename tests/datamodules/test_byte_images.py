"""Images that stay bytes: what is read of them, and by what they are standardised."""

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

from rffl_pl.datamodules.byte_images import ByteImages, Standardise
from rffl_pl.datamodules.reading import Reader
from rffl_pl.datamodules.rounds import Shard
from rffl_pl.models import Perceptron
from rffl_pl.training.cohort import Cohort
from rffl_pl.training.schedule import Schedule
from tests.cohorts import CPU, seeded, sgd


def some(count: int, channels: int, side: int, seed: int = 1) -> torch.Tensor:
    """Images whose channels differ in brightness and contrast."""
    drawn = np.random.default_rng(seed).normal(60, 40, (count, channels, side, side))
    drawn += 50 * np.arange(channels)[:, None, None]
    return torch.from_numpy(drawn.clip(0, 255).astype(np.uint8))


@pytest.mark.parametrize("frame", [0, 2])
@pytest.mark.parametrize("channels", [1, 3])
def test_standardised_as_by_definition(channels: int, frame: int) -> None:
    """Inputs are not (b / 255 - mean) / deviation per channel in float64, or the frame does not count as background."""
    pixels, others = some(50, channels, 6), some(9, channels, 6, seed=2)
    wide = np.pad(pixels.numpy() / 255, ((0, 0), (0, 0), (frame,) * 2, (frame,) * 2))
    theirs = np.pad(others.numpy() / 255, ((0, 0), (0, 0), (frame,) * 2, (frame,) * 2))
    mean, deviation = wide.mean((0, 2, 3), keepdims=True), wide.std((0, 2, 3), keepdims=True, ddof=1)
    standardise = Standardise(pixels, frame)
    np.testing.assert_allclose(standardise(others).numpy(), (theirs - mean) / deviation, rtol=1e-5, atol=1e-6)
    assert standardise(others).dtype == torch.float32


def test_the_bits_of_all_at_once() -> None:
    """Mean or deviation are not torch's in double precision, or a batch has other bits than all images at once."""
    pixels = some(200, 3, 8)
    standardise = Standardise(pixels)
    deviation, mean = torch.std_mean(pixels.float().div(255).double(), dim=(0, 2, 3))
    assert torch.equal(standardise.mean.flatten(), mean.float())
    assert torch.equal(standardise.deviation.flatten(), deviation.float())
    images = ByteImages(pixels, torch.arange(200) % 5, standardise)
    everything = standardise(pixels)
    for index in (torch.tensor([7, 3, 3, 199]), slice(10, 20), 5):
        x, y = images[index]
        assert torch.equal(x, everything[index])
        assert torch.equal(y, torch.arange(200)[index] % 5)
    assert images.tensors[0].dtype == torch.uint8
    assert len(images) == 200


def test_they_lie_in_memory() -> None:
    """They are read one by one, or by worker processes."""
    images = ByteImages(some(20, 1, 4), torch.arange(20) % 3, Standardise(some(20, 1, 4)))
    reader = Reader(images, num_workers=2)
    assert reader.num_workers == 0
    ((x, y),) = reader.batches(torch.arange(20), 20)
    assert torch.equal(x, images[:][0])
    assert y.tolist() == [i % 3 for i in range(20)]


@pytest.mark.parametrize("stacked", [False, True])
def test_trained_as_numbers_are(stacked: bool) -> None:
    """Weights are not to the bit those of training on the same inputs as float32, one by one or as a stack."""
    pixels, classes = some(40, 1, 4), torch.arange(40) % 3
    standardise = Standardise(pixels)
    found = []
    for dataset in (ByteImages(pixels, classes, standardise), TensorDataset(standardise(pixels), classes)):
        cohort = Cohort(seeded(lambda: Perceptron(16, 8, 3)), range(2), sgd, CPU, stacked=stacked)
        shards = {i: Shard(Reader(dataset), torch.arange(20) + 20 * i, 8) for i in range(2)}
        cohort.train_all(shards, Schedule(epochs=2, decay=0.9), 0, {0: 1, 1: 2})
        found.append(torch.stack([cohort.weights[0], cohort.weights[1]]))
    assert torch.equal(found[0], found[1])
