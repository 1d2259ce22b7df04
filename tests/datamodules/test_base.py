"""The base of all data modules, by data sets small enough to see through."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from rffl_pl.datamodules import Digits, FederatedDataModule, Sources
from rffl_pl.datamodules.shards import adversaries_shards
from rffl_pl.datamodules.splits import DIR, UNI
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from tests.datamodules.small import (
    CLASSES,
    TEST,
    TRAIN,
    InMemory,
    OneAtATime,
    Plain,
    WithValidation,
    both_kinds,
    common,
    contents,
    ready,
    tensors,
)


@both_kinds
@pytest.mark.parametrize("split", ["UNI", "POW", "CLA", "DIR"])
def test_validation_is_held_out_of_every_shard(kind: type[FederatedDataModule], split: Any) -> None:
    """The share asked for is held out; no participant ever trains on it, and nobody shares an example."""
    data = ready(kind(Federation(participants=3), split=split, examples_per_participant=20, validation=0.2))
    held_out, shards = set(data.held_out.tolist()), [set(shard.tolist()) for shard in data.shards]
    assert len(held_out) == len(data.held_out) == 40
    assert sum(data.shard_sizes) == len(set.union(*shards)) == 60
    assert held_out.isdisjoint(set.union(*shards))
    assert contents(data.val_dataloader()) == data.held_out.tolist()


@both_kinds
def test_loaders_of_the_test_set_keep_its_order(kind: type[FederatedDataModule]) -> None:
    """Testing and prediction see the whole test set in order, in batches of the size asked for."""
    data = ready(kind(Federation(participants=2), split="UNI", eval_batch_size=10))
    assert contents(data.test_dataloader()) == contents(data.predict_dataloader()) == list(range(TEST))
    assert [len(y) for _, y in common(data.test_dataloader())] == [10, 10, 10, 7]


@both_kinds
def test_very_many_are_measured_on_a_share(kind: type[FederatedDataModule]) -> None:
    """The same examples for everybody, drawn once, in their order, half of them after a round; of predictions all."""
    federation = Federation(participants=8, adversaries=2)
    data = ready(kind(federation, split="UNI", examples_per_participant=3, adversary_examples=3, measurements=100))
    measured = contents(data.test_dataloader())
    assert len(measured) == 10
    assert measured == sorted(set(measured)) == contents(data.test_dataloader())
    assert max(measured) > 10
    assert data.test_sample == (10, TEST)
    held_out, watched = contents(data.held_out_dataloader()), contents(data.val_dataloader())
    assert (len(held_out), len(watched)) == (10, 5)
    assert set(watched) < set(held_out)
    assert len(contents(data.predict_dataloader())) == TEST
    for enough in (10 * TEST, None):
        assert len(contents(ready(kind(federation, split="UNI", measurements=enough)).test_dataloader())) == TEST


def test_both_kinds_of_data_sets_give_the_same_shards() -> None:
    """Shards depend on labels, split and seed, not on how the data set is stored."""
    one, other = (
        ready(kind(Federation(participants=3), split="CLA", examples_per_participant=9))
        for kind in (InMemory, OneAtATime)
    )
    assert all(torch.equal(a, b) for a, b in zip(one.shards, other.shards, strict=True))


def test_all_there_is_without_examples_per_participant() -> None:
    """Left out, the training data less validation is divided among all."""
    data = ready(InMemory(Federation(participants=3), split="UNI", examples_per_participant=None))
    assert data.shard_sizes == [60, 60, 60]


def test_own_validation_set_leaves_the_training_data_whole() -> None:
    """A data set that brings its own validation data holds nothing out."""
    data = ready(WithValidation(Federation(participants=2), split="UNI"))
    assert len(data.held_out) == 0
    assert data.shard_sizes == [100, 100]
    assert contents(data.val_dataloader()) == list(range(11))


def test_watching_the_test_set() -> None:
    """`watch: test` measures on the test set during training; the validation share stays held out."""
    data = ready(InMemory(Federation(participants=2), split="UNI", watch="test"))
    assert contents(data.val_dataloader()) == list(range(TEST))
    assert data.shard_sizes == [90, 90]


@pytest.mark.parametrize("watch", ["validation", "test"])
def test_examples_held_out_for_the_server(watch: Any) -> None:
    """The held-out share, in its order, whatever is watched."""
    data = ready(InMemory(Federation(participants=2), split="UNI", watch=watch, eval_batch_size=8))
    held_out = data.held_out_dataloader()
    assert held_out is not None
    assert contents(held_out) == data.held_out.tolist()
    assert [len(y) for _, y in common(held_out)] == [8, 8, 4]
    assert not set(data.held_out.tolist()) & set(torch.cat(data.shards).tolist())


@pytest.mark.parametrize(("watch", "validation"), [("validation", 0.1), ("test", 0.1), ("test", 0.0)])
def test_own_validation_set_is_held_out(watch: Any, validation: float) -> None:
    """A data set's own validation examples are the ones held out, whatever is watched and whatever the share."""
    data = ready(WithValidation(Federation(participants=2), split="UNI", watch=watch, validation=validation))
    held_out = data.held_out_dataloader()
    assert held_out is not None
    assert contents(held_out) == list(range(11))
    assert data.shard_sizes == [100, 100]


@both_kinds
@pytest.mark.parametrize("split", ["UNI", "POW"])
def test_nothing_held_out(kind: type[FederatedDataModule], split: Any) -> None:
    """With validation 0 and the test set watched, every training example is somebody's and nothing is held out."""
    data = ready(kind(Federation(participants=4), split=split, validation=0, watch="test"))
    assert data.held_out_dataloader() is None
    assert len(data.held_out) == 0
    assert sorted(torch.cat(data.shards).tolist()) == list(range(TRAIN))
    assert contents(data.val_dataloader()) == list(range(TEST))


def test_nothing_held_out_but_watched() -> None:
    """With validation 0 there is nothing to watch by default: one sentence that offers both ways out."""
    with pytest.raises(
        UserError, match=r"--data\.validation .*but got 0; try 0\.1, or 0 with --data\.watch test"
    ) as told:
        InMemory(Federation(participants=2), validation=0)
    assert str(told.value).count(". ") == 0


@both_kinds
@pytest.mark.parametrize("split", ["UNI", "POW", "CLA", "DIR"])
def test_classes_of_every_participant(kind: type[FederatedDataModule], split: Any) -> None:
    """Different true classes among a participant's examples, the adversaries' too."""
    data = ready(
        kind(Federation(participants=4, adversaries=1), split=split, examples_per_participant=20, adversary_examples=5)
    )
    assert data.classes == [len({int(i) % CLASSES for i in shard}) for shard in data.shards]
    assert len(data.classes) == 5
    if split == "CLA":
        assert data.classes[:4] == [1, 2, 3, 4]


def test_setup_happens_once() -> None:
    """`fit` followed by `test` keeps the shards."""
    data = ready(InMemory(Federation(participants=2)))
    shards = data.shards
    data.setup("test")
    assert data.shards is shards


@pytest.mark.parametrize(
    ("whose", "name", "value", "told"),
    [
        ("data", "federation", Federation(participants=3, seed=2), "--federation.seed"),
        ("data", "federation", Federation(participants=4, seed=1), "--federation.participants"),
        ("data", "federation", Federation(participants=3, adversaries=1, seed=1), "--federation.adversaries"),
        ("data", "split", UNI(), "--data.split"),
        ("data", "split", DIR(alpha=0.2), "--data.split"),
        ("data", "split", "UNI", "--data.split"),
        ("split", "alpha", 0.3, "--data.split"),
        ("data", "examples_per_participant", 10, "--data.examples_per_participant"),
        ("data", "adversary_examples", 10, "--data.adversary_examples"),
        ("data", "validation_share", 0.2, "--data.validation"),
    ],
)
def test_options_that_change_when_shards_are_cut(whose: str, name: str, value: Any, told: str) -> None:
    """Nothing was cut anew, and runs of three seeds, say, had one split without a word."""
    data = ready(InMemory(Federation(participants=3, seed=1), split=DIR(alpha=0.5), examples_per_participant=20))
    data.split, data.batch_size = DIR(alpha=0.5), 4  # the same again, and what no shard depends on
    data.setup("fit")
    setattr({"data": data, "split": data.split}[whose], name, value)
    with pytest.raises(UserError, match=f"but {told} is another now; make a data module of its own for every run"):
        data.setup("fit")


def test_adversaries_hold_examples_of_their_own_where_enough_are_left() -> None:
    """Adversaries' shards have their size and share nothing with the honest, each other or validation."""
    data = ready(
        InMemory(
            Federation(participants=4, adversaries=2), split="UNI", examples_per_participant=20, adversary_examples=30
        )
    )
    assert data.shard_sizes == [20, 20, 20, 20, 30, 30]
    assert len(torch.cat([*data.shards, data.held_out]).unique()) == 80 + 60 + 20


def test_adversaries_share_where_too_few_are_left() -> None:
    """Otherwise they draw from the whole training pool, without repetition and never from validation."""
    data = ready(
        InMemory(
            Federation(participants=4, adversaries=2), split="UNI", examples_per_participant=40, adversary_examples=30
        )
    )
    for shard in data.shards[4:]:
        assert len(shard.unique()) == len(shard) == 30
        assert not torch.isin(shard, data.held_out).any()


def test_adversaries_do_not_change_honest_shards() -> None:
    """The honest participants hold the same examples with and without adversaries."""
    alone, beside = (
        ready(InMemory(Federation(participants=3, adversaries=a), examples_per_participant=20, adversary_examples=10))
        for a in (0, 2)
    )
    assert all(torch.equal(a, b) for a, b in zip(alone.shards, beside.shards[:3], strict=True))


def test_participant_without_examples() -> None:
    """A split that leaves somebody with nothing says who, how many there are, and what to turn."""
    data = InMemory(Federation(participants=20), split="POW", examples_per_participant=2)
    with pytest.raises(UserError, match=r"POW of 40 .* participant 18 of 20 .*--data.examples_per_participant"):
        data.setup("fit")


def test_more_examples_than_there_are() -> None:
    """The validation share is not available to participants."""
    data = InMemory(Federation(participants=2), split="UNI", examples_per_participant=95)
    with pytest.raises(UserError, match=r"at least 190 training examples .* there are 180"):
        data.setup("fit")


@both_kinds
def test_validation_share_that_holds_nothing_out(kind: type[FederatedDataModule]) -> None:
    """A share of less than half an example leaves nothing to watch: said so, instead of NaN or a traceback later."""
    data = kind(Federation(participants=2), split="UNI", validation=0.001)
    with pytest.raises(UserError, match=r"--data\.validation"):
        data.setup("fit")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *[(name, value) for name in ("examples_per_participant", "adversary_examples") for value in (0, -5)],
        *[(name, value) for name in ("batch_size", "eval_batch_size", "measurements") for value in (0, -1)],
        *[("validation", value) for value in (0.0, 1.0, -0.1, 1.5, float("nan"))],
        *[("dirichlet_alpha", value) for value in (0.0, -1.0)],
    ],
)
def test_argument_out_of_range(option: str, value: Any) -> None:
    """The message names the option and the value."""
    with pytest.raises(UserError, match=f"--data.{option} .*but got {value}"):
        InMemory(Federation(participants=2), **{option: value})


@pytest.mark.parametrize(
    ("option", "value"),
    [("split", "pow"), ("watch", "val"), ("num_workers", -1), ("dirichlet_alpha", float("nan"))],
)
def test_argument_that_is_no_choice(option: str, value: Any) -> None:
    """A misspelt split is not silently Dirichlet, and the like: whoever builds the module in Python is told too."""
    with pytest.raises(UserError, match=f"--data.{option} "):
        InMemory(Federation(participants=2), **{option: value})


def test_identity_tells_data_apart() -> None:
    """A checkpoint's data are known by data set, split, shards and seed."""

    def identity(seed: int = 0, kind: type[FederatedDataModule] = InMemory, **options: Any) -> dict[str, str]:
        return ready(kind(Federation(participants=3, seed=seed), **options)).identity()

    assert identity() == identity()
    others = [identity(seed=1), identity(split="UNI"), identity(examples_per_participant=9), identity(kind=OneAtATime)]
    assert all(other != identity() for other in others)
    assert identity(seed=1)["shards"] != identity()["shards"]
    assert identity(split="UNI")["split"] == "UNI"


def test_shards_beside_adversaries() -> None:
    """Where nobody says how large they are, the honest have smaller ones as soon as there are adversaries."""
    federation = Federation(participants=3, adversaries=2)
    data = ready(InMemory(federation, split="UNI", examples_per_participant=None))
    assert data.shard_sizes[:3] == [60, 60, 60]


@pytest.mark.parametrize(("most", "tested", "watched"), [(100, 10, 5), (10 * TEST, TEST, TEST)])
def test_how_many_are_watched(most: int, tested: int, watched: int) -> None:
    """After a round as many as in the end, or fewer than all where there is room for just all."""
    federation = Federation(participants=8, adversaries=2)
    small: dict[str, Any] = {"examples_per_participant": 3, "adversary_examples": 3}
    data = ready(InMemory(federation, split="UNI", measurements=most, watch="test", **small))
    assert len(contents(data.test_dataloader())) == tested
    assert len(contents(data.val_dataloader())) == watched


def test_adversaries_that_just_fit() -> None:
    """They share examples with the honest where there are just enough of their own."""
    generator = torch.Generator().manual_seed(0)
    found = adversaries_shards(2, 3, torch.arange(10), [torch.arange(4)], generator)
    assert sorted(torch.cat(found).tolist()) == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize(("asked", "adversaries"), [(181, 1), (181, 0), (180, 1), (600, 1)])
def test_adversaries_who_ask_for_more_than_there_is(asked: int, adversaries: int) -> None:
    """They get all there is, less what is held out, and it is told, but of the default, for which nobody asked."""
    federation = Federation(participants=8, adversaries=adversaries)
    data = InMemory(federation, split="UNI", examples_per_participant=3, adversary_examples=asked, validation=0.1)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ready(data)
    assert data.shard_sizes == [3] * 8 + [180] * adversaries
    assert [str(one.message) for one in told] == [
        "--data.adversary_examples asks for 181 training examples for each adversary, but there are 180, all of which "
        "each of them holds; lower it."
    ] * (adversaries if asked == 181 else 0)


def test_before_it_has_read_anything() -> None:
    """As in a notebook, where nobody calls what a trainer does."""
    data = Digits(Federation(participants=3))
    asked = (data.val_dataloader, data.test_dataloader, data.predict_dataloader, data.root_examples, data.identity)
    for ask in (*asked, lambda: data.classes):  # a property
        with pytest.raises(UserError, match=r"Digits to have read its examples, but it has not; call setup\('fit'\)"):
            ask()
    with pytest.raises(UserError, match="setup of one of fit, validate, test, predict, but got train"):
        data.setup("train")
    data.setup("fit")
    assert list(next(iter(data.train_dataloader()))) == [0, 1, 2]


class Told(Plain):
    """Examples that say where they come from."""

    def __init__(self, n: int, places: object) -> None:
        super().__init__(n)
        self.places = places


@pytest.mark.parametrize(
    ("places", "told"),
    [([f"p{i}" for i in range(TEST)], "p3"), ((), None), (7, None), ("near", None), (torch.ones(TEST), None)],
    ids=["texts", "none", "a number", "a text", "a tensor"],
)
def test_where_examples_of_ones_own_come_from(places: object, told: str | None) -> None:
    """Predictions had no more than a number; an attribute of that name may be something else."""

    class Own(InMemory):
        def load(self) -> Sources:
            return Sources(train=tensors(TRAIN), test=Told(TEST, places))

    data = ready(Own(Federation(participants=2)))
    found = data.predicted_places(0, data.predict_dataloader())
    assert (found[3] if found else None) == told
    assert data.predicted_places(0, DataLoader(tensors(5))) == []  # somebody's own loader has other examples


def test_not_a_place_for_each_example() -> None:
    """Predictions would stand beside the places of others."""

    class Own(InMemory):
        def load(self) -> Sources:
            return Sources(train=tensors(TRAIN), test=Told(TEST, ["here"]))

    with pytest.raises(UserError, match="places of Told to have a text for each of its 37 examples, but there are 1;"):
        Own(Federation(participants=2)).setup("predict")


class Rare(FederatedDataModule):
    """200 examples, of which two at random places are of the last class, and so is one of eight test examples."""

    num_classes, class_names = 3, ("often", "usual", "rare")

    def load(self) -> Sources:
        y = torch.arange(200) % 2
        y[[17, 111]] = 2
        train = TensorDataset(torch.randn(200, 1), y)
        return Sources(train=train, test=TensorDataset(torch.randn(8, 1), torch.tensor([0, 1, 0, 1, 0, 1, 2, 1])))


def warned(seed: int, **options: Any) -> tuple[Rare, str]:
    """The data, and what is told of it."""
    data = Rare(Federation(participants=2, adversaries=1, seed=seed), **{"split": "UNI", **options})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        data.setup("fit")
    return data, "".join(str(one.message) for one in caught)


@pytest.mark.parametrize("options", [{"validation": 0.5}, {"examples_per_participant": 20}])
def test_a_class_that_nobody_trains_on(options: dict[str, Any]) -> None:
    """It vanished where all of its few examples were held out or left over, and a run said nothing."""
    silent = 0
    for seed in range(12):
        data, told = warned(seed, **options)
        y = data._parts["training"].labels
        trained = {*y[torch.cat(data.shards[:2])].tolist()}
        if 2 in trained:
            silent += 1
            assert not told
            continue
        assert "example of class rare, which 1 of 8 test examples have: no model learns it; " in told
        aside = int((y[data.held_out] == 2).sum())
        assert (f"lower --data.validation, which holds out {aside} of its 2 examples, or " in told) == (aside > 0)
        raised = f"raise --data.examples_per_participant, which leaves {2 - aside} out, or "
        assert (raised in told) == (aside < 2 and "examples_per_participant" in options)
        assert told.endswith("take another --data.split or --seed_everything.")
    assert silent < 12


def test_classes_that_training_examples_lack() -> None:
    """A run said nothing, and its accuracies were low for no visible reason."""

    class Lacking(InMemory):
        def load(self) -> Sources:
            x, y = tensors(TRAIN).tensors
            return Sources(train=TensorDataset(x, y.clamp_max(1)), test=tensors(TEST))

    with pytest.warns(
        UserWarning,
        match=r"class 2, which 9 of 37 test examples have, nor of 1 more: no model learns it; bring training examples",
    ):
        ready(Lacking(Federation(participants=2)))


@both_kinds
@pytest.mark.parametrize("participants", [2, 5, 20])
@pytest.mark.parametrize("split", ["UNI", "POW", "CLA", "DIR", "SHARDS", "MIX"])
def test_nothing_to_tell_of_classes(kind: type[FederatedDataModule], participants: int, split: Any) -> None:
    """The warning would be taken for noise."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Split CLA drew")
        warnings.filterwarnings("error", message="No honest participant")
        ready(kind(Federation(participants=participants), split=split))


class Located(InMemory):
    """Has an option that is called as what the package reads."""

    def __init__(self, federation: Federation, *, sources: str, **options: Any) -> None:
        super().__init__(federation, **options)
        self.sources: Any = sources


def test_an_option_that_is_called_sources() -> None:
    """It passed for data that were read, and a seed that nobody touched was said to be another."""
    data = ready(Located(Federation(participants=2), sources="here", split="UNI"))
    assert len(data.shards) == 2
