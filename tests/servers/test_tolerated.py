"""One number of bad uploads for every rule that asks for one, where its own option does not say."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from rffl_pl.servers import ARC, NNM, Bucketing, Bulyan, Consensus, DnC, FedOpt, Median, MultiKrum, TrimmedMean, Verdict
from tests.cli.folders import Run, assert_same_bits
from tests.conftest import QUICK, only_run
from tests.functional.reference import uploads
from tests.ranks import forked
from tests.servers.tasks import assert_equal, assert_refused, shards, spoil, task
from tests.servers.test_consensus import step_of

P, D = 11, 40
RULES: dict[str, Callable[..., Consensus]] = {
    "krum": lambda f=None: MultiKrum(byzantine=f),
    "one": lambda f=None: MultiKrum(byzantine=f, selected=1),
    "dnc": lambda f=None: DnC(byzantine=f, filtering=1.5),
    "nnm": lambda f=None: NNM(tolerated=f),
    "arc": lambda f=None: ARC(tolerated=f, rule=NNM(tolerated=f, rule=MultiKrum(byzantine=f))),
    "trimmed_mean": lambda f=None: TrimmedMean(trim=f if f is None else f / P),
    "mixed": lambda f=None: NNM(tolerated=f, rule=TrimmedMean(trim=f if f is None else f / P)),
    "by an optimizer": lambda f=None: FedOpt(rule=DnC(byzantine=f)),
}


def played(server: Consensus, rounds: int = 2, **told: Any) -> Verdict:
    """The last verdict of a server on uploads of which three are far from the others."""
    server.start(task(shards(P), [D], **told))
    for seed in range(rounds):
        rows = uploads(P, D, seed)
        rows[:3] *= 9
        verdict = server.step(rows, range(P))
    return verdict


@pytest.mark.parametrize("kind", RULES)
def test_every_rule_is_told(kind: str) -> None:
    """One of them is judged in a study by a number of adversaries that it was not told of."""
    steps = []
    for f in range(5):
        verdict = played(RULES[kind](), tolerated=f)
        assert_equal(verdict, played(RULES[kind](f)))
        steps.append(step_of(verdict))
    if kind != "one":
        assert all(not torch.equal(one, other) for one, other in itertools.pairwise(steps))


@pytest.mark.parametrize("kind", RULES)
def test_its_own_option_wins(kind: str) -> None:
    """Whoever says 1 gets another number without a word."""
    assert_equal(played(RULES[kind](1), tolerated=4), played(RULES[kind](1)))


@pytest.mark.parametrize("kind", RULES)
def test_without_it_a_fifth(kind: str) -> None:
    """A run that was made before comes out otherwise."""
    assert_equal(played(RULES[kind]()), played(RULES[kind](2)))


def test_a_share_that_is_given_is_that_share() -> None:
    """A fifth is taken for nothing, since it is the default."""
    assert_equal(played(TrimmedMean(trim=0.2), tolerated=4), played(TrimmedMean()))


@pytest.mark.parametrize("left", [11, 9, 6, 5, 2, 1])
def test_a_trimmed_mean_of_few(left: int) -> None:
    """Where an upload is set aside, one of the bad is kept; or nothing is left of two."""
    server = TrimmedMean()
    server.start(task(shards(P), [D], tolerated=4))
    rows = spoil(uploads(P, D, 3), range(P - left), "NaN")
    step = step_of(server.step(rows, range(P)))
    out = min(4, (left - 1) // 2)
    expected = np.sort(rows[P - left :].double().numpy(), axis=0)[out : left - out].mean(0)
    np.testing.assert_allclose(step.double().numpy(), expected, rtol=1e-5, atol=1e-6)


def test_a_trimmed_mean_of_buckets() -> None:
    """As many buckets may be bad as uploads: 3 of 6, or 27 % of them, are another number."""
    trimmed, told = (Bucketing(rule=rule) for rule in (TrimmedMean(trim=2 / 6), TrimmedMean()))
    assert_equal(played(told, tolerated=2), played(trimmed))


def test_what_a_checkpoint_says_of_the_share() -> None:
    """A run of an earlier release goes on with a warning that its share is another."""
    for server, told, said in (
        (TrimmedMean(), None, "0.2"),
        (TrimmedMean(trim=0.3), None, "0.3"),
        (TrimmedMean(trim=0.3), 2, "0.3"),
        (TrimmedMean(), 2, "None"),
    ):
        played(server, tolerated=told)
        assert server.settings("--server")["--server.trim"] == said
    assert NNM(rule=TrimmedMean()).settings("--server")["--server.rule.trim"] == "0.2"


REFUSED: list[tuple[Callable[[], Consensus], int, tuple[str, ...]]] = [
    (MultiKrum, 5, ("--federation.tolerated f with f >= 0 and 2f + 2 < P", "f = 5 and P = 11", "at most 4")),
    (DnC, 6, ("--federation.tolerated f", "f = 6 and P = 11", "at most 5")),
    (Bulyan, 3, ("--federation.tolerated f", "f = 0, or f > 0 and 4f + 3 <= P", "f = 3 and P = 11", "at most 2")),
    (lambda: Bucketing(rule=Bulyan()), 1, ("--federation.tolerated f", "f = 1 and P = 6 mixed uploads", "at most 0")),
    (NNM, 6, ("--federation.tolerated f", "f = 6 and P = 11", "at most 5")),
    (TrimmedMean, 6, ("--federation.tolerated f", "f = 6 and P = 11", "at most 5", "or --server.trim")),
    (lambda: Bucketing(rule=TrimmedMean()), 3, ("f = 3 and P = 6 mixed uploads", "at most 2", "or --server.rule.trim")),
    (lambda: Bucketing(rule=MultiKrum()), 3, ("--federation.tolerated f", "f = 3 and P = 6 mixed", "at most 1")),
    (lambda: Bucketing(rule=MultiKrum(byzantine=2)), 1, ("--server.rule.byzantine f", "f = 2 and P = 6 mixed")),
]


@pytest.mark.parametrize(("made", "f", "named"), REFUSED)
def test_more_than_a_rule_withstands(made: Callable[[], Consensus], f: int, named: tuple[str, ...]) -> None:
    """The message names an option that nobody gave."""
    assert_refused(lambda: made().start(task(shards(P), [D], tolerated=f)), *named)


@pytest.mark.parametrize(
    ("kind", "option", "most"),
    [
        (MultiKrum, "byzantine", 1),
        (Bulyan, "byzantine", 0),
        (DnC, "byzantine", 2),
        (NNM, "tolerated", 2),
        (ARC, "tolerated", 2),
    ],
)
def test_unasked_it_is_no_more_than_a_rule_withstands(kind: Callable[..., Consensus], option: str, most: int) -> None:
    """On five buckets of fifty uploads it is refused for the default of an option that nobody gave, or tolerates less.

    For ten of fifty may be bad.
    """
    rows = uploads(50, D, 1)
    verdicts = []
    for settings in ({}, {option: most}):
        server = Bucketing(rule=kind(**settings), bucket=10)
        server.start(task(shards(50), [D]))
        verdicts.append(server.step(rows, range(50)))
    assert_equal(*verdicts)


@pytest.mark.parametrize(
    ("others", "least", "most"),
    [({}, -1, 5), ({"participation": 0.5}, -1, 3), ({"coalition": [0, 1, 2, 9]}, -1, 2), ({"participants": 1}, -1, 2)],
    ids=str,
)
def test_a_number_that_no_rule_withstands(others: dict[str, Any], least: int, most: int) -> None:
    """A half is tolerated, or less than none."""
    members = {"participants": 7, "adversaries": 3, **others}
    for refused in (least, most):
        sentence = (
            f"--federation.tolerated to be 0 or more and less than half .* got {refused}; give at most {most - 1}"
        )
        with pytest.raises(UserError, match=sentence):
            Federation(**members, tolerated=refused)
    for taken in (0, most - 1, None):
        assert Federation(**members, tolerated=taken).tolerated == taken


@pytest.mark.parametrize("rule", [Median(), MultiKrum(byzantine=1)])
def test_who_asks_for_none_hears_of_none(rule: Consensus) -> None:
    """A study's rule without a number is refused."""
    assert_equal(played(rule, tolerated=5), played(rule))


@pytest.mark.slow
@pytest.mark.distributed
def test_it_is_the_same_run(rffl: Run, tmp_path: Path) -> None:
    """The command line loses it, ranks do not know it, or it is forgotten by who goes on."""
    usual = ("fit", "--config", "configs/digits.yaml", *QUICK, "--federation.adversaries", 1, "--server", "ARC")
    own = ("--server.tolerated", 1, "--server.rule", "TrimmedMean", "--server.rule.trim", 0.17)
    told = ("--server.rule", "TrimmedMean", "--federation.tolerated", 1)
    four, two = ("--trainer.max_epochs", 4), ("--trainer.max_epochs", 2)
    assert rffl(*usual, *own, *four, "--run.root", tmp_path / "own").code == 0
    assert rffl(*usual, *told, *four, "--run.root", tmp_path / "told").code == 0
    begun = forked(4, *usual, *told, *two, root=tmp_path / "begun")
    assert begun.code == 0, begun.err
    last = only_run(tmp_path / "begun") / "checkpoints" / "last.ckpt"
    on = forked(2, *usual, *told, *four, "--ckpt_path", last, root=tmp_path / "on")
    assert on.code == 0, on.err
    assert "other settings" not in on.err
    runs = {name: only_run(tmp_path / name) for name in ("own", "told", "on")}
    assert_same_bits(runs["own"], runs["told"])
    assert_same_bits(runs["told"], runs["on"])
