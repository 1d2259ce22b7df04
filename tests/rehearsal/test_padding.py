"""Networks for sentences as users write them, which may read what fills a batch up to its longest."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from rffl_pl.models import TextCNN
from rffl_pl.rehearsal.network import warn_of_padding
from tests.conftest import QUICK, Ended, only_run


class Mean(nn.Module):
    """The mean over all places, or over words alone; for so many words, and so many in a sentence at most."""

    def __init__(self, *, masked: bool = False, vocabulary: int = 40, most: int = 1000) -> None:
        super().__init__()
        self.embedding, self.places = nn.Embedding(vocabulary, 8), nn.Embedding(most, 8)
        self.linear = nn.Linear(8, 2)
        self.masked = masked

    def forward(self, x: Tensor) -> Tensor:
        vectors = self.embedding(x) + self.places(torch.arange(x.shape[1]))
        counts = (x != 0).unsqueeze(2) if self.masked else torch.ones_like(x).unsqueeze(2)
        logits: Tensor = self.linear((vectors * counts).sum(1) / counts.sum(1))
        return logits


class Recurrent(nn.Module):
    """The last output of an LSTM, of each sentence's words or of the batch's places."""

    def __init__(self, *, packed: bool) -> None:
        super().__init__()
        self.embedding, self.layer = nn.Embedding(40, 8), nn.LSTM(8, 8, batch_first=True)
        self.linear = nn.Linear(8, 2)
        self.packed = packed

    def forward(self, x: Tensor) -> Tensor:
        vectors = self.embedding(x)
        if self.packed:
            vectors = pack_padded_sequence(vectors, (x != 0).sum(1), batch_first=True, enforce_sorted=False)
        _, (last, _) = self.layer(vectors)
        logits: Tensor = self.linear(last[-1])
        return logits


@pytest.mark.parametrize(
    ("network", "told"),
    [
        (lambda: TextCNN(vocabulary=40, width=8, kernels=4), False),
        (lambda: Mean(masked=True), False),
        (lambda: Mean(masked=True, most=7), False),
        (lambda: Recurrent(packed=True), False),
        (lambda: Recurrent(packed=False), True),
        (Mean, True),
    ],
)
def test_who_reads_padding(network: Callable[[], nn.Module], told: bool) -> None:
    """Of one that does not a user would look in vain for the fault; one for seven words is asked about no more."""
    torch.manual_seed(1)
    made = network()
    x = torch.randint(1, 40, (5, 7))
    x[1, 3:] = 0
    logits = made.eval()(x).detach()
    made.train()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_padding(made, x, logits)
    assert made.training
    assert [f"--model.network {type(made).__name__} gives a sentence other" in str(one.message) for one in caught] == [
        True
    ] * told


def words(folder: Path, *more: object) -> tuple[object, ...]:
    """Training of own sentences."""
    with (folder / "train.csv").open("w", newline="") as file:
        rows = [(f"a {('bad', 'good')[i % 2]} film{' of this year' * (i % 3)}", i % 2) for i in range(60)]
        csv.writer(file).writerows([("text", "label"), *rows])
    data = ("--data", "TextFile", "--data.train_file", folder / "train.csv", "--data.split", "UNI")
    optimizer = ("--model.optimizer", "SGD", "--model.optimizer.lr", 0.1, "--federation.participants", 2)
    return ("fit", *data, *more, *optimizer, "--trainer.max_epochs", 1, *QUICK)


def test_a_run_says_so(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """Its accuracies are others with another number of sentences in a batch, and those of predictions."""
    ended = rffl(*words(tmp_path, "--model.network", "tests.rehearsal.test_padding.Mean"))
    assert ended.code == 0, ended.err
    assert ended.err.count("Warning: --model.network Mean gives a sentence other logits with more padding") == 1
    masked = rffl(
        *words(tmp_path, "--model.network", "tests.rehearsal.test_padding.Mean", "--model.network.masked", True)
    )
    assert masked.code == 0, masked.err
    assert "padding" not in masked.err


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ("a zebra unseen by anybody", "of shape [2, 5] with numbers from 1 to 9"),
        ("film " * 50, "of shape [2, 50] with numbers from"),
    ],
)
def test_sentences_to_predict_that_a_network_does_not_take(
    rffl: Callable[..., Ended], tmp_path: Path, asked: str, told: str
) -> None:
    """With a number that no word of the data has, or longer than any: refused as what they are."""
    (tmp_path / "words.txt").write_text("a good bad film\nof this year\nzebra\n")  # which is number 9
    sizes = ("--model.network.vocabulary", 9, "--model.network.most", 20)
    network = ("--model.network", "tests.rehearsal.test_padding.Mean", *sizes)
    ended = rffl(
        *words(tmp_path, *network, "--model.network.masked", True, "--data.vocabulary_file", tmp_path / "words.txt")
    )
    assert ended.code == 0, ended.err
    run = only_run(tmp_path / "runs")
    (tmp_path / "asked.txt").write_text(f"{asked}\na good film\n")
    file = ("--data.predict_file", tmp_path / "asked.txt")
    checkpoint = ("--config", run / "config.yaml", "--ckpt_path", run / "checkpoints" / "last.ckpt")
    ended = rffl("predict", *checkpoint, *file)
    assert ended.code == 2, ended.err
    assert f"Mean to take inputs {told}" in ended.err
    assert "the predicted set's, but it fails: IndexError: index out of range in self" in ended.err
