"""Who is who, who is hosted where, and on which device."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
import torch

from rffl_pl.datamodules.splits import power_law
from rffl_pl.errors import UserError, check_number
from rffl_pl.federation import Federation


@pytest.mark.parametrize(("honest", "adversaries"), [(1, 0), (2, 1), (10, 0), (10, 11)])
def test_everybody_has_one_host(honest: int, adversaries: int) -> None:
    """For every world size somebody is hosted twice or not at all, or one rank hosts two more than another."""
    federation = Federation(participants=honest, adversaries=adversaries)
    for world_size in range(1, federation.total + 1):
        blocks = [federation.hosted_by(rank, world_size) for rank in range(world_size)]
        assert all(block == sorted(block) for block in blocks)
        assert sorted(i for block in blocks for i in block) == list(range(honest + adversaries))
        assert max(map(len, blocks)) - min(map(len, blocks)) <= 1
    assert blocks == [[i] for i in range(honest + adversaries)]


def test_ten_participants_on_four_ranks() -> None:
    """From the last participant on, to and fro from the last rank."""
    federation = Federation(participants=10)
    assert [federation.hosted_by(rank, 4) for rank in range(4)] == [[5, 6], [4, 7], [0, 3, 8], [1, 2, 9]]


@pytest.mark.parametrize(("name", "value"), [("seed", 2), ("honest", 4), ("adversaries", 1), ("participation", 0.5)])
def test_a_federation_stays_as_it_was_made(name: str, value: float) -> None:
    """Whoever set the seed in a loop had shards and attacks of the first one, and was told nothing."""
    federation = Federation(participants=3)
    with pytest.raises(UserError, match=f"its {name} is to be {value}; make another one, with data and module"):
        setattr(federation, name, value)
    again = copy.deepcopy(federation)
    assert (again.seed, again.honest, again.adversaries, again.participation) == (0, 3, 0, 1.0)


@pytest.mark.parametrize(("world_size", "most"), [(2, 0.51), (4, 0.31)])
def test_ranks_have_about_as_much_to_train(world_size: int, most: float) -> None:
    """Of ten shards of a power law a rank has more than its share."""
    federation = Federation(participants=10)
    sizes = [len(shard) for shard in power_law(6000, 10, 600, torch.Generator())]
    loads = [sum(sizes[i] for i in federation.hosted_by(rank, world_size)) for rank in range(world_size)]
    assert max(loads) < most * sum(sizes)


def test_more_ranks_than_participants() -> None:
    """A rank without a participant is refused, with both numbers and both remedies."""
    with pytest.raises(UserError, match=r"5 ranks for 4 participants .*--nproc_per_node.*--federation.participants"):
        Federation(participants=3, adversaries=1).hosted_by(0, 5)


@pytest.mark.parametrize(("world_size", "adversaries", "honest"), [("1", 0, 1), ("4", 0, 4), ("4", 1, 3)])
def test_one_participant_per_rank_by_default(
    monkeypatch: pytest.MonkeyPatch, world_size: str, adversaries: int, honest: int
) -> None:
    """Without a number of participants, every rank hosts one, honest or not."""
    monkeypatch.setenv("WORLD_SIZE", world_size)
    federation = Federation(adversaries=adversaries)
    assert (federation.honest, federation.total) == (honest, int(world_size))
    assert all(len(federation.hosted_by(rank, int(world_size))) == 1 for rank in range(int(world_size)))


def test_a_single_process_is_one_participant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without torchrun there is one rank."""
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert Federation().total == 1


def test_a_given_number_of_participants_overrides_the_world_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Participants are not ranks."""
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert Federation(participants=10, adversaries=2).total == 12


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        ({"participants": 0}, "--federation.participants .*got 0"),
        ({"participants": -2}, "--federation.participants .*got -2"),
        ({"adversaries": -1}, "--federation.adversaries .*got -1"),
        ({"participants": 3, "adversaries": -1}, "--federation.adversaries .*got -1"),
        ({"adversaries": 2}, "2 rank.*--federation.adversaries 2.*--federation.participants"),
    ],
)
def test_impossible_federation(monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], option: str) -> None:
    """The message names the option and what it was given."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UserError, match=option):
        Federation(**arguments)


def test_numbers_of_numpys() -> None:
    """As good as Python's, and a record of a round can be written with them."""
    whole: Any = np.int64(3)
    federation = Federation(participants=whole, adversaries=whole, coalition=[whole], seed=whole)
    assert json.dumps([federation.total, federation.coalition, federation.seed, *federation.hosted_by(0, 1)])
    check_number("--data.batch_size", whole, 1)
    with pytest.raises(UserError, match="at least 4, but got 3"):
        check_number("--data.batch_size", whole, 4)


def test_the_honest_come_first() -> None:
    """Participants 0 .. N-1 are honest, N .. P-1 are not."""
    federation = Federation(participants=3, adversaries=2)
    assert [federation.is_honest(i) for i in range(5)] == [True, True, True, False, False]


def test_random_streams_are_unrelated() -> None:
    """Seeds differ by run seed, purpose, participant and round, and suit `manual_seed`."""
    seeds = [
        Federation(participants=3, seed=seed).seed_for(purpose, participant, round_index)
        for seed in range(3)
        for purpose in ("training", "attack")
        for participant in range(12)
        for round_index in range(12)
    ]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_random_streams_do_not_depend_on_the_company() -> None:
    """The same seed for the same participant, however many others there are."""
    alone, crowd = Federation(participants=1, seed=5), Federation(participants=50, adversaries=3, seed=5)
    assert alone.seed_for("training", 0, 7) == crowd.seed_for("training", 0, 7)


def test_random_streams_never_change() -> None:
    """Two pinned seeds: a run can be repeated with a later version."""
    assert Federation(participants=1, seed=0).seed_for("split") == 1947725093899964015
    assert Federation(participants=1, seed=1).seed_for("training", 3, 14) == 4734495564816719912


@pytest.mark.parametrize("coalition", [[0.5], ["0"], [True, None], [3], [-1], [0, 0]])
def test_a_coalition_that_is_of_no_participants(coalition: Any) -> None:
    """Half of a participant was participant 0, and a text a traceback; a stranger changes what a group is worth."""
    with pytest.raises(UserError, match=r"--federation.coalition to be different participants of 0 \.\. 2, but got"):
        Federation(participants=3, coalition=coalition)
