"""Some of the participants alone make a model: what the others would have added is not in it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from rffl_pl.adversaries import FreeRider
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from rffl_pl.servers import CFFL, CGSV, RFFL, FedAvg, Server
from tests.cli.folders import assert_same_bits
from tests.conftest import QUICK, Ended, only_run
from tests.ranks import forked
from tests.round.test_participation import OwnBias, Watch
from tests.runs import RecordedFedAvg, federate


def test_who_is_asked() -> None:
    """The members among them, in every round; of few by lot, some of those."""
    federation = Federation(participants=6, coalition=[5, 0, 2], seed=3)
    assert federation.asked(range(6), 0) == [0, 2, 5]
    assert federation.asked([1, 2, 3], 7) == [2]
    assert federation.asked([1, 3], 7) == []
    assert federation.asked_share == 0.5
    drawn = Federation(participants=6, coalition=[5, 0, 2], participation=0.4, seed=3)
    assert {tuple(drawn.asked(range(6), number)) for number in range(50)} == {(0,), (2,), (5,)}
    assert drawn.asked_share == pytest.approx(1 / 6)
    assert Federation(participants=6, coalition=[]).asked(range(6), 0) == []
    assert Federation(participants=2, adversaries=1, coalition=[2]).asked(range(3), 0) == [2]


def test_the_model_is_theirs_alone() -> None:
    """Against a plain loop over what they sent, by their shard sizes; everybody is measured with it."""
    server, watch = RecordedFedAvg(), Watch()
    module = federate(server, [FreeRider()], watch, rounds=4, coalition=[0, 3])
    assert [senders for _, senders in server.seen] == [[0, 3]] * 4
    sizes = torch.tensor([module.data.shard_sizes[i] for i in (0, 3)], dtype=torch.float64)
    model = watch.models[0][0].double()
    for uploads, _ in server.seen:
        model = model + (sizes / sizes.sum()) @ uploads.double()
    for row in watch.models[-1]:
        torch.testing.assert_close(row.double(), model, rtol=1e-5, atol=1e-6)


def test_what_they_send_is_what_they_send_among_all() -> None:
    """Their shards and their random streams depend on nobody else: in the first round the uploads are the same bits."""
    among_all, alone = RecordedFedAvg(), RecordedFedAvg()
    federate(among_all, [], rounds=1)
    federate(alone, [], rounds=1, coalition=[1, 4])
    assert torch.equal(alone.seen[0][0], among_all.seen[0][0][[1, 4]])


def test_all_of_them_and_none() -> None:
    """Everybody by name gives the bits of a run without names; of nobody the initial network is left."""
    plain, named, nobody = Watch(), Watch(), Watch()
    federate(FedAvg(), [FreeRider()], plain, rounds=3)
    federate(FedAvg(), [FreeRider()], named, rounds=3, coalition=[*range(6)])
    assert torch.equal(plain.models[-1], named.models[-1])
    federate(FedAvg(), [], nobody, rounds=2, coalition=[])
    assert torch.equal(nobody.models[0], nobody.models[-1])


REFUSED: dict[str, tuple[Callable[[], Server], float, str]] = {
    "RFFL": (RFFL, 0, "a --server with one shared model, such as FedAvg, with --federation.coalition, but got RFFL"),
    "CGSV": (CGSV, 0, "but got CGSV; leave one"),
    "CFFL": (CFFL, 0, "but got CFFL; leave one"),
    "released": (
        lambda: FedAvg(variant="released"),
        0,
        r"but got --server\.variant released, under which everybody's model is its own; leave that out\.",
    ),
    "own layers": (OwnBias, 0, "coalition, but OwnBias has participants keep entries that they do not send; leave one"),
    "personal": (FedAvg, 0.5, "--model.personal to be 0 with --federation.coalition, but got 0.5"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_where_models_are_each_ones_own(case: str) -> None:
    """It would be no federation without the others, whose reputations or models are there all the same."""
    server, personal, expected = REFUSED[case]
    with pytest.raises(UserError, match=expected):
        federate(server(), [], rounds=1, coalition=[0, 2], personal=personal)


def test_a_share_of_them_is_counted_once() -> None:
    """Rounded twice, the server would be told of another number than is asked."""
    for total, able, share in itertools.product((22, 35, 37), (15, 20), (0.25, 0.5, 0.75)):
        some = Federation(participants=total, coalition=[*range(able)], participation=share)
        assert round(some.asked_share * total) == len(some.asked(range(total), 3))
    whole = Federation(participants=37, participation=0.75)
    assert round(whole.asked_share * 37) == len(whole.asked(range(37), 3))


@pytest.mark.slow
@pytest.mark.parametrize("exchange", ["central", "sharded"])
def test_on_any_number_of_ranks(rffl: Callable[..., Ended], tmp_path: Path, exchange: str) -> None:
    """A rank of which nobody is asked, and a run that goes on, end with the same bits."""
    run = (
        "fit", "--config", "configs/digits.yaml", *QUICK, "--server", "FedAvg", "--federation.coalition", "[1, 5]",
    )  # fmt: skip
    assert rffl(*run, "--trainer.max_epochs", 3, "--run.root", tmp_path / "one").code == 0
    part = forked(3, *run, "--trainer.max_epochs", 2, "--exchange", exchange, root=tmp_path / "part")
    assert part.code == 0, part.err
    at = ("--ckpt_path", only_run(tmp_path / "part") / "checkpoints" / "last.ckpt")
    ended = forked(2, *run, "--trainer.max_epochs", 3, "--exchange", exchange, *at, root=tmp_path / "two")
    assert ended.code == 0, ended.err
    assert "other settings" not in ended.err
    one, two = only_run(tmp_path / "one"), only_run(tmp_path / "two")
    assert_same_bits(one, two)
    summaries = [json.loads((folder / "summary.json").read_text()) for folder in (one, two)]
    assert summaries[0] == summaries[1]
    assert len({*summaries[0]["final"]}) == 1
