"""The backdoor: what is poisoned and what is left alone, its success by hand, and what it cannot be put into."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from rffl_pl.adversaries import Backdoor, LabelFlip
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from rffl_pl.models import Perceptron
from tests.conftest import QUICK, Ended, only_run
from tests.runs import digits, whole

DIGITS = ("fit", "--config", "configs/digits.yaml", *QUICK, "--trainer.enable_checkpointing", "false")


def batch(count: int, *shape: int) -> tuple[Tensor, Tensor]:
    """Images and classes 0 .. 9 in turn."""
    x = torch.randn(count, *shape or (3, 8, 6), generator=torch.Generator().manual_seed(count))
    return x, torch.arange(count) % 10


def by_hand(x: Tensor, size: int, value: float) -> Tensor:
    """Images with the patch, pixel by pixel."""
    x = x.clone()
    _, channels, height, width = x.shape
    for image in x:
        for channel in range(channels):
            for row in range(height - size, height):
                for column in range(width - size, width):
                    image[channel, row, column] = value
    return x


@pytest.mark.parametrize(
    ("share", "count", "poisoned"),
    [(0.5, 16, 8), (0.5, 5, 3), (0.5, 1, 1), (0.2, 16, 3), (0.1, 4, 1), (0.29, 100, 29), (1.0, 7, 7), (0.5, 0, 0)],
)
@pytest.mark.parametrize(("size", "value"), [(2, 2.0), (1, -1.0), (6, 3.5)])
def test_poison(share: float, count: int, poisoned: int, size: int, value: float) -> None:
    """Other images than the first of a batch are poisoned, or none, or otherwise, or a batch is changed in place."""
    x, y = batch(count)
    given = x.clone(), y.clone()
    attack = Backdoor(target=4, share=share, size=size, value=value)
    seen, labels = attack.poison(x, y)
    assert torch.equal(seen, torch.cat([by_hand(x[:poisoned], size, value), x[poisoned:]]))
    assert labels.tolist() == [4] * poisoned + y[poisoned:].tolist()
    assert labels.dtype == y.dtype
    seen.zero_()
    labels.zero_()
    assert torch.equal(x, given[0])
    assert torch.equal(y, given[1])


def test_the_same_every_time() -> None:
    """What is poisoned depends on a random stream, or moves one."""
    before = torch.get_rng_state()
    first, again = (Backdoor().poison(*batch(9)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert torch.equal(torch.get_rng_state(), before)


def test_probe() -> None:
    """Examples of the target class count, one is seen without the trigger, or the test set is changed in place."""
    x, y = batch(30)
    given = x.clone()
    probed, claimed = Backdoor(target=7, size=3).probe(x, y)
    assert torch.equal(probed, by_hand(x[y != 7], 3, 2.0))
    assert claimed.tolist() == [7] * 27
    assert torch.equal(x, given)
    nothing, nobody = Backdoor(target=7).probe(x[y == 7], y[y == 7])
    assert (len(nothing), len(nobody)) == (0, 0)


def test_success_by_hand() -> None:
    """The share of the triggered images that are read as the target is another."""
    attack = Backdoor(target=2)
    (metric,) = attack.measures(10).values()
    _, claimed = attack.probe(*batch(20))
    answers = torch.tensor([2] * 5 + [0, 9, 1] * 4 + [2])
    metric.update(torch.eye(10)[answers[:4]], claimed[:4])
    metric.update(torch.eye(10)[answers[4:]], claimed[4:])
    assert float(metric.compute()) == pytest.approx(6 / 18)


@pytest.mark.slow
def test_success_in_a_run(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """What a run reports of every model is not what the exported model answers, or the adversary's own learns nothing.

    Batches of one test image each are empty of probes where it is of the target class.
    """
    attack = ("--adversaries", "[]", "--adversaries+=Backdoor", "--adversaries.target", 3, "--adversaries.size", 3)
    small = ("--data.eval_batch_size", 1)
    ended = rffl(*DIGITS, "--server", "Standalone", *attack, *small, "--trainer.max_epochs", 6)
    assert ended.code == 0, ended.err
    folder = only_run(tmp_path / "runs")
    reported = json.loads((folder / "summary.json").read_text())["measured"]["backdoor_success"]
    data, network, found = digits(Federation(participants=5)), Perceptron(64, 64, 10), []
    x, y = whole(data.test_dataloader())
    for participant in range(6):
        network.load_state_dict(torch.load(folder / "weights" / f"participant_{participant}.pt", weights_only=True))
        answers = network(by_hand(x[y != 3], 3, 2.0)).argmax(1)
        found.append((answers == 3).double().mean().item())
    assert reported == pytest.approx(found, abs=1e-6)
    assert found[5] > 0.9 > 0.5 > max(found[:5])
    assert "backdoor_success: mean" in ended.out
    assert "backdoor_success/mean" in (folder / "metrics.csv").read_text().splitlines()[0]


@pytest.mark.parametrize(
    ("x", "got"),
    [
        (torch.zeros(4, 30, dtype=torch.int64), r"int64 of shape \[B, 30\]"),
        (torch.zeros(4, 30), r"float32 of shape \[B, 30\]"),
        (torch.zeros(4, 8, 8), r"float32 of shape \[B, 8, 8\]"),
        (torch.zeros(4, 1, 8, 8, dtype=torch.uint8), r"uint8 of shape \[B, 1, 8, 8\]"),
        (torch.zeros(4, 1, 8, 1), r"float32 of shape \[B, 1, 8, 1\]"),
        (torch.zeros(4, 1, 1, 8), r"float32 of shape \[B, 1, 1, 8\]"),
        (torch.zeros(4), r"float32 of shape \[B\]"),
    ],
)
def test_what_is_no_image(x: Tensor, got: str) -> None:
    """Anything else is trained or measured with, or the sentence does not say what came."""
    sentence = rf"Backdoor to be given images \[B, C, H, W\] of floats, 2 x 2 pixels at least, but got {got}; .*size"
    for give in (Backdoor().poison, Backdoor().probe):
        with pytest.raises(UserError, match=sentence):
            give(x, torch.ones(4, dtype=torch.int64))


def test_what_is_no_image_in_a_run(rffl: Callable[..., Ended]) -> None:
    """A patch larger than the digits is refused in one sentence, before anything is trained."""
    attack = ("--adversaries", "[]", "--adversaries+=Backdoor", "--adversaries.size", 9)
    ended = rffl(*DIGITS, *attack)
    assert ended.code == 2
    assert ended.err.count("Error: Expected Backdoor to be given images") == 1
    assert "9 x 9 pixels at least, but got float32 of shape [B, 1, 8, 8]" in ended.err
    assert "Traceback" not in ended.err


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Backdoor(target=-1), "target of Backdoor .* got -1"),
        *((lambda x=x: Backdoor(share=x), f"share of Backdoor .* got {x}") for x in (0.0, -0.1, 1.1, NAN)),
        *((lambda x=x: Backdoor(size=x), f"size of Backdoor .* got {x}") for x in (0, -2)),
        *((lambda x=x: Backdoor(value=x), f"value of Backdoor .* got {x}") for x in (NAN, INF, -(10**39))),
        (
            lambda: Backdoor(target=3).prepare(3),
            r"target of Backdoor .* 0 \.\. 2, but got 3; give a class",
        ),
    ],
)
def test_numbers_that_mean_nothing(make: Callable[[], object], named: str) -> None:
    """An option out of its range is taken, or the sentence does not name the attack, the option and the value."""
    with pytest.raises(UserError, match=named):
        make()


def test_it_flips_nothing() -> None:
    """A backdoor reports under the names of a label flip, so that both cannot attack one run."""
    Backdoor(target=2).prepare(3)
    assert not Backdoor().measures(10).keys() & LabelFlip().measures(10).keys()
