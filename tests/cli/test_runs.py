"""What a run leaves, and what is done with it: testing, prediction, the standalone reference, callbacks."""

from __future__ import annotations

import csv
import json
import re
import warnings
from pathlib import Path

import pytest
import torch
import yaml
from lightning.pytorch import Callback, LightningModule, Trainer

from rffl_pl.cli.arguments import made
from rffl_pl.cli.resolve import OnlyParsed
from rffl_pl.cli.typed import tell_of_overlaid
from rffl_pl.launch.fork import take_ranks
from rffl_pl.runs import RunFolder
from tests.cli.folders import DIGITS, Run, rows
from tests.conftest import QUICK, only_run
from tests.runs import kept_in

BARE = (
    "fit", "--data", "Digits", "--model.network", "Perceptron", "--model.network.inputs", 64,
    "--model.network.classes", 10, "--model.optimizer", "SGD", "--model.optimizer.lr", 0.1,
)  # fmt: skip
"""No configuration: nothing says how many participants there are."""


def test_a_run_leaves_a_complete_folder(rffl: Run, tmp_path: Path) -> None:
    """The demo's folder has everything README names, and its numbers agree with each other."""
    ended = rffl("fit", "--config", "configs/digits.yaml", "--trainer.max_epochs", 13)
    assert ended.code == 0, ended.err
    folder = only_run(tmp_path / "runs")
    names = {"config.yaml", "metrics.csv", "summary.json"}
    names |= {f"{picture}.{kind}" for picture in ("reputation", "accuracy", "fairness") for kind in ("png", "pdf")}
    assert names <= {path.name for path in folder.iterdir()}
    assert (folder / "checkpoints" / "last.ckpt" / "run.pt").is_file()
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["removed_in_round"] == [None] * 5 + [11]
    assert summary["attacks"] == [None] * 5 + ["FreeRider"]
    assert summary["fairness"] > 0.9
    assert summary["mean"] == pytest.approx(sum(summary["final"][:5]) / 5)
    assert f"fairness {summary['fairness']:.3f}" in ended.out
    assert "wandb sync" in ended.out
    metrics = rows(folder / "metrics.csv")
    assert [int(float(row["round"])) for row in metrics] == list(range(1, 14))
    assert [row["step"] for row in metrics] == [str(i) for i in range(1, 14)]
    for row in metrics:
        down = [float(row[f"bytes_down/participant_{i}"]) for i in range(6)]
        assert sum(down) == float(row["bytes_down/total"])
        removed = int(row["step"]) >= 11
        assert (down[5] == 0) == removed
        assert [float(row[f"member/participant_{i}"]) for i in range(6)] == [1] * 5 + [not removed]
        if int(row["step"]) > 11:
            assert float(row["bytes_up/participant_5"]) == 0
            assert float(row["reputation/participant_5"]) == 0
    assert yaml.safe_load((folder / "config.yaml").read_text())["federation"]["participants"] == 5


def test_exported_weights_load_into_the_bare_network(rffl: Run, tmp_path: Path) -> None:
    """A finished run's weights are plain state_dicts that give the reported accuracy without this package."""
    assert rffl(*DIGITS, "--trainer.max_epochs", 3).code == 0
    folder = only_run(tmp_path / "runs")
    from sklearn.datasets import load_digits

    x, y = (torch.tensor(part) for part in load_digits(return_X_y=True))
    x, test = x.float(), torch.arange(len(y)) % 5 == 4
    x = (x - x[~test].mean()) / x[~test].std()
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 10))
    final = json.loads((folder / "summary.json").read_text())["final"]
    for i, accuracy in enumerate(final):
        network.load_state_dict(torch.load(folder / "weights" / f"participant_{i}.pt", weights_only=True))
        assert (network(x[test]).argmax(1) == y[test]).float().mean().item() == pytest.approx(accuracy)


def test_callbacks_watch_the_mean_accuracy(rffl: Run, tmp_path: Path) -> None:
    """Lightning's own callbacks keep the best round and stop without progress, by the accuracy that is logged."""
    watching = ("--trainer.callbacks.monitor", "accuracy/mean", "--trainer.callbacks.mode", "max")
    ended = rffl(
        *DIGITS, *QUICK, "--trainer.max_epochs", 30, "--trainer.callbacks+=ModelCheckpoint", *watching,
        "--trainer.callbacks+=EarlyStopping", *watching, "--trainer.callbacks.patience", 2,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    folder = only_run(tmp_path / "runs")
    (kept,) = (folder / "checkpoints").iterdir()
    rows = csv.DictReader((folder / "metrics.csv").open())
    accuracies = [float(row["accuracy/mean"]) for row in rows]
    best = accuracies.index(max(accuracies)) + 1
    assert kept_in(kept)["federation"]["round"] == best
    assert len(accuracies) == best + 2 < 30
    why = f"EarlyStopping watches accuracy/mean, at best {max(accuracies):.4f}"
    assert f"training ended after {best + 2} of 30 rounds: {why}\n" in ended.out


def test_only_rounds_that_are_measured_are_kept_by_their_accuracy(rffl: Run, tmp_path: Path) -> None:
    """One that was not would be kept by the accuracy of the round before, in place of one that was."""
    ended = rffl(
        *DIGITS, "--trainer.max_epochs", 7, "--trainer.check_val_every_n_epoch", 3,
        "--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.monitor", "accuracy/mean",
        "--trainer.callbacks.mode", "max", "--trainer.callbacks.save_top_k", 2,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    kept = only_run(tmp_path / "runs").glob("checkpoints/epoch*")
    assert sorted(kept_in(checkpoint)["federation"]["round"] for checkpoint in kept) == [3, 6]


@pytest.mark.parametrize("counted", ["step", "epoch"])
def test_checkpoints_by_what_lightning_counts(rffl: Run, tmp_path: Path, counted: str) -> None:
    """Its way to keep the last ones: nobody logs that."""
    ended = rffl(
        *DIGITS, "--trainer.max_epochs", 3, "--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.monitor",
        counted, "--trainer.callbacks.mode", "max", "--trainer.callbacks.save_top_k", 2,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert len(list(only_run(tmp_path / "runs").glob("checkpoints/epoch*"))) == 2


@pytest.mark.slow
def test_a_callback_whose_option_is_an_enumeration(rffl: Run, tmp_path: Path) -> None:
    """Lightning's Timer ends the run in time, and the configuration that is kept has it run again."""
    timer = ("--trainer.callbacks+=Timer", "--trainer.callbacks.duration", "00:00:00:01")
    ended = rffl(*DIGITS, "--trainer.max_epochs", 100_000, *timer)
    assert ended.code == 0, ended.err
    assert re.search(r"training ended after \d+ of 100000 rounds: its Timer has run out\n", ended.out)
    folder = only_run(tmp_path / "runs")
    assert rffl("fit", "--config", folder / "config.yaml", "--run.root", tmp_path / "again").code == 0


def test_time_that_is_over_before_a_round(rffl: Run, trained: Path) -> None:
    """To the very second, as where there is none: it was said that a callback asked for the end."""
    ended = rffl(*DIGITS, "--trainer.max_epochs", 3, "--trainer.max_time", "00:00:00:00", "--ckpt_path", "last")
    assert (ended.code, len(rows(trained / "metrics.csv"))) == (0, 2), ended.err
    assert "training ended after 2 of 3 rounds: its Timer has run out\n" in ended.out


def test_a_callback_that_is_no_list(rffl: Run, tmp_path: Path) -> None:
    """Lightning takes one for a list of it; from words it becomes one, from a file it did not."""
    (tmp_path / "one.yaml").write_text("trainer: {callbacks: {class_path: ModelSummary, init_args: {max_depth: 2}}}")
    ended = rffl(*DIGITS, "--config", tmp_path / "one.yaml", "--trainer.max_epochs", 1)
    assert ended.code == 0, ended.err
    assert only_run(tmp_path / "runs").is_dir()


def test_words_that_print_something() -> None:
    """Those alone take the other ranks away; a name that ends like one of them does not."""
    for words in (["-h"], ["--help"], ["--server.help", "RFFL"], ["--print_config"], ["--print_config=skip_null"]):
        assert take_ranks(["--ranks", "2", *words]) == (1, words)
    for words in (["--run.name", "run-h"], ["--run.name=a.help"], ["--run.name", "a--help"]):
        assert take_ranks(["--ranks", "2", *words]) == (2, words)


def test_what_is_printed_once(rffl: Run) -> None:
    """Every rank prints it into the file that it is meant for."""
    ended = rffl("fit", "--ranks", 2, "--config", "configs/digits.yaml", "--print_config=skip_null")
    assert ended.code == 0, ended.err
    assert ended.out.count("seed_everything: ") == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [((), True), (("--federation.adversaries", 0), False), (("--federation.adversaries=0",), False)],
    ids=["forgotten", "typed", "typed with ="],
)
def test_attacks_that_nobody_plays_are_told_of(rffl: Run, words: tuple[object, ...], told: bool) -> None:
    """An overlay says what adversaries do, not how many there are: without the warning the run looks robust."""
    attacked = ("--config", "configs/adversaries/alie.yaml", "--federation.participants", 2)
    ended = rffl(*BARE, *attacked, *words, *QUICK, "--trainer.max_epochs", 1)
    assert ended.code == 0, ended.err
    assert ("Nobody plays ALIE: --federation.adversaries is 0; give how many" in ended.err) == told


def test_options_of_one_run_are_not_the_next_ones() -> None:
    """A process builds its parser once: what is added to a default, or set in what it made, stays where it was."""
    words = [str(word) for word in BARE]
    first = made(OnlyParsed, words)
    before = first.config
    asked = before.clone()
    added = made(OnlyParsed, [*words, "--adversaries+=ALIE", "--trainer.callbacks+=Timer"])
    assert [attack.class_path for attack in added.config["fit"].adversaries] == ["rffl_pl.ALIE"]
    before["fit"].adversaries.append("nobody")
    before["fit"].data.init_args["batch_size"] = before["fit"].server.init_args["alpha"] = 99
    again = made(OnlyParsed, words)
    assert again.config == asked != before
    assert again.parser is first.parser


@pytest.mark.parametrize(
    ("words", "told"), [((), True), (("--federation.participants", 1), False)], ids=["forgotten", "typed"]
)
def test_who_trains_alone_is_told(rffl: Run, words: tuple[object, ...], told: bool) -> None:
    """In one process, what a configuration does not say of the number of participants makes one of them."""
    ended = rffl(*BARE, *words, *QUICK, "--trainer.max_epochs", 1)
    assert ended.code == 0, ended.err
    assert ("There is one participant, which trains alone" in ended.err) == told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--server.gamma", 3, "--server", "FedAvg"), "--server.gamma: FedAvg"),
        (("--server.init_args.gamma", 3, "--server", "FedAvg"), "--server.gamma: FedAvg"),
        (("--adversaries.scale", 3, "--adversaries", "[SignRandom]"), "--adversaries.scale: SignRandom"),
        (("--server.gamma", 3, "--server", "RFFL", "--adversaries.scale", 3, "--adversaries", "[FreeRider]"), ""),
        (("--model.optimizer.lr", 0.05), ""),
        (("--data.split", "DIR", "--model.optimizer.nesterov", "no", "--adversaries", "[SignRandom]"), ""),
        (("--adversaries.scale", "1e-3", "--adversaries", "[{class_path: FreeRider, init_args: {scale: 0.001}}]"), ""),
        (("--data.split", "DIR", "--data.split.alpha", 0.2, "--data.split", "UNI"), "--data.split.alpha: UNI"),
        (
            ("--server", "NNM", "--server.rule", "TrimmedMean", "--server.rule.trim", 0.1, "--server.rule", "Median"),
            "--server.rule.trim: Median",
        ),
        (
            ("--adversaries.scale=3", "--adversaries=[Mimic, FreeRider]", "--federation.adversaries=2"),
            "--adversaries.scale: Mimic and FreeRider",
        ),
    ],
)
def test_an_option_before_another_class_is_told_of(rffl: Run, words: tuple[object, ...], told: str) -> None:
    """The parser drops it in silence."""
    ended = rffl(*DIGITS, "--trainer.max_epochs", 1, *words)
    assert ended.code == 0, ended.err
    assert ("has no effect" in ended.err) == bool(told)
    if told:
        option, names = told.split(": ")
        assert re.search(
            f"{option} has no effect: {names}, given after it, (ha(s|ve) no such option|are others)", ended.err
        )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--adversaries", "[FreeRider, FreeRider]", "--adversaries.scale", 3), True),
        (("--adversaries", "[Mimic, FreeRider]", "--adversaries.scale", 3), False),
        (("--adversaries", "[FreeRider, FreeRider]", "--adversaries.scale", 1), False),
        (("--adversaries", "[FreeRider]", "--adversaries+=FreeRider", "--adversaries.scale", 3), False),
    ],
)
def test_an_option_of_the_last_of_several_is_told_of(rffl: Run, words: tuple[object, ...], told: bool) -> None:
    """The parser gives it to one, and the experiment is another than who typed it believes."""
    ended = rffl(*DIGITS, "--trainer.max_epochs", 1, "--federation.adversaries", 2, *words)
    assert ended.code == 0, ended.err
    sentence = "--adversaries.scale is of the last of FreeRider and FreeRider alone; give each its own in the list"
    assert (sentence in " ".join(ended.err.split())) == told


@pytest.mark.parametrize(
    ("before", "behind", "told"),
    [
        (("--trainer.max_epochs", "1"), (), "--trainer.max_epochs 1: a configuration given after it says 30;"),
        (("--trainer.max_epochs=30",), (), ""),
        (("--server=RFFL",), ("--config", "{server: {init_args: {gamma: 0.7}}}"), ""),
        (("--model.optimizer.lr=0.5e-1",), ("--config", "{model: {optimizer: {init_args: {lr: 0.05}}}}"), ""),
        (("--trainer.max_epochs", "1"), ("--trainer.max_epochs=2",), ""),
        (
            ("--server=FedAvg", "--run.wandb", "false"),
            (),
            "--server FedAvg: a configuration given after it says rffl_pl.",
        ),
        (("--server", "RFFL", "--adversaries", "[FreeRider]", "--run.root", "a: b: c"), (), ""),
        (("--adversaries", "[Mimic]"), (), "--adversaries [Mimic]: a configuration given after it says ['FreeRider'];"),
        (("--adversaries+=Mimic",), (), "--adversaries Mimic: a configuration given after it says ['FreeRider'];"),
        (
            ("--trainer.callbacks+=EarlyStopping",),
            ("--config", "{trainer: {callbacks: [{class_path: Timer}]}}"),
            "--trainer.callbacks EarlyStopping: a configuration given after it says ['Timer'];",
        ),
        (
            (),
            ("--trainer.max_epochs", "1", "--config", "{trainer: {max_epochs: 2}}"),
            "--trainer.max_epochs 1: a configuration given after it says 2;",
        ),
        (("--federation.coalition", "[0, 1]"), ("--config", "{federation: {coalition: [0, 1]}}"), ""),
        (
            ("--data.split", "UNI"),
            ("--config", "{data: {init_args: {split: CLA}}}"),
            "--data.split UNI: a configuration",
        ),
    ],
)
def test_an_option_before_the_configuration_is_told_of(
    before: tuple[str, ...], behind: tuple[str, ...], told: str
) -> None:
    """The configuration wins in silence."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tell_of_overlaid(["fit", *before, "--config", "configs/digits.yaml", *behind])
    assert len(caught) == bool(told)
    option, _, rest = told.partition(": ")
    assert all(str(one.message).startswith(f"{option} has no effect: {rest}") for one in caught)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--model.optimizer", "Adam"), True),
        (("--model.optimizer=torch.optim.Adam",), True),
        (("--model.optimizer.class_path", "Adam"), True),
        (("--model", "{optimizer: Adam}"), True),
        (("--config", "{model: {optimizer: Adam}}"), True),
        (("--model.optimizer", "Adam", "--model.optimizer.lr", 0.001), False),
        (("--model.optimizer", "{class_path: Adam, init_args: {lr: 0.001}}"), False),
        (("--model.optimizer", "Adam", "--config", "{model: {optimizer: {init_args: {lr: 0.001}}}}"), False),
        (("--model.optimizer", "SGD"), False),
        (("--model.optimizer.momentum", 0.9), False),
    ],
)
def test_a_learning_rate_of_another_optimizer_is_told_of(rffl: Run, words: tuple[object, ...], told: bool) -> None:
    """The configuration's of SGD is a hundred times what suits Adam, and stays."""
    ended = rffl(*DIGITS, "--trainer.max_epochs", 1, *words)
    assert ended.code == 0, ended.err
    assert ("Adam has the learning rate 0.1 of the configuration's SGD; give it one of its own" in ended.err) == told


def test_a_share_of_the_test_set_is_stated(rffl: Run) -> None:
    """Where there are too many models to measure each on everything."""
    ended = rffl(*DIGITS, "--trainer.max_epochs", 1, "--data.measurements", 600)
    assert ended.code == 0
    assert re.search(r"measured on 100 of \d+ test examples each; --data.measurements null takes all", ended.out)


@pytest.mark.slow
def test_identical_runs_share_one_standalone_reference(rffl: Run, tmp_path: Path) -> None:
    """The reference is trained once and read afterwards; another seed trains its own."""
    cache = tmp_path / "standalone"
    args = ("fit", "--config", "configs/digits.yaml", *QUICK, "--standalone.enabled", "true", "--trainer.max_epochs", 2)
    for seed, files in ((1, 1), (1, 1), (2, 2)):
        assert rffl(*args, "--standalone.cache_dir", cache, "--seed_everything", seed).code == 0
        assert len(list(cache.iterdir())) == files


def test_the_standalone_reference_is_the_standalone_server(rffl: Run, tmp_path: Path) -> None:
    """The cached reference and a run of `Standalone` reach the same accuracies."""
    assert rffl(*DIGITS, "--standalone.enabled", "true", "--server", "Standalone", "--trainer.max_epochs", 3).code == 0
    summary = json.loads((only_run(tmp_path / "runs") / "summary.json").read_text())
    assert summary["standalone"][:5] == pytest.approx(summary["final"][:5])
    assert summary["reputation"] == [None] * 6


def test_validate_test_and_predict_from_a_checkpoint(rffl: Run, tmp_path: Path) -> None:
    """Every participant's own model answers: accuracies as reported, probabilities that sum to one."""
    assert rffl(*DIGITS, "--trainer.max_epochs", 3).code == 0
    folder = only_run(tmp_path / "runs")
    given = ("--config", folder / "config.yaml", "--ckpt_path", folder / "checkpoints" / "last.ckpt")
    final = json.loads((folder / "summary.json").read_text())["final"]
    tested = rffl("test", *given)
    assert tested.code == 0, tested.err
    for i in range(5):
        assert f"{i}  {final[i]:>8.1%}" in tested.out
    assert "mean" in rffl("validate", *given).out
    assert rffl("predict", *given).code == 0
    (predictions,) = (tmp_path / "runs").glob("*/*-predict/predictions")
    assert len(list(predictions.iterdir())) == 6
    table = rows(predictions / "participant_4.csv")
    assert len(table) == 359
    for row in table:
        p = [float(row[f"p_{c}"]) for c in range(10)]
        assert sum(p) == pytest.approx(1, abs=1e-4)
        assert p.index(max(p)) == int(row["class"])


def test_whose_models_are_looked_at(rffl: Run, trained: Path, tmp_path: Path) -> None:
    """The configuration of a run that went on from another one names that one's checkpoint, whose models are others."""
    gone_on = ("--run.name", "later", "--trainer.max_epochs", 3, "--ckpt_path", trained / "checkpoints")
    assert rffl(*DIGITS, *gone_on).code == 0
    later = only_run(tmp_path / "runs", "later")
    for command in ("validate", "test", "predict"):
        ended = rffl(command, "--config", later / "config.yaml")
        assert ended.code == 2
        assert ended.err.endswith(f"which its run went on from; give --ckpt_path {later / 'checkpoints'}.\n"), ended.err
    for meant in (later, trained):
        assert rffl("test", "--config", later / "config.yaml", "--ckpt_path", meant / "checkpoints").code == 0


def test_an_evaluation_after_checkpoints_of_ones_own(rffl: Run, tmp_path: Path) -> None:
    """Lightning warned each time that they lie elsewhere."""
    own = ("--trainer.callbacks+=ModelCheckpoint", "--trainer.callbacks.save_last", "true")
    assert rffl(*DIGITS, "--trainer.max_epochs", 1, *own).code == 0
    run = only_run(tmp_path / "runs")
    ended = rffl("test", "--config", run / "config.yaml", "--ckpt_path", run / "checkpoints" / "last.ckpt")
    assert ended.code == 0, ended.err
    assert "dirpath has changed" not in ended.err


def test_a_configuration_in_the_line(rffl: Run, tmp_path: Path) -> None:
    """In place of a file; it ended in a traceback."""
    assert rffl(*DIGITS, "--config", "{trainer: {max_epochs: 2}}").code == 0
    assert RunFolder(only_run(tmp_path / "runs")).summary().rounds == 2


def test_a_loss_that_is_not_finite_is_named_and_the_run_goes_on(rffl: Run, tmp_path: Path) -> None:
    """Diverged participants are named with their round; their uploads count for nothing."""
    ended = rffl(*DIGITS, "--trainer.max_epochs", 2, "--model.optimizer.init_args.lr", 1e38)
    assert ended.code == 0
    assert "Round 1: participant 0's training loss is not finite" in ended.err
    metrics = rows(only_run(tmp_path / "runs") / "metrics.csv")
    assert float(metrics[0]["weight/participant_0"]) == 0
    assert all(float(row["accuracy/mean"]) > 0 for row in metrics)


def test_standalone_names_a_loss_that_is_not_finite(rffl: Run) -> None:
    """Also where nobody communicates."""
    ended = rffl(*DIGITS, "--trainer.max_epochs", 1, "--model.optimizer.init_args.lr", 1e38, "--server", "Standalone")
    assert "Round 1: participant 3's training loss is not finite" in ended.err


def test_predictions_of_a_dataset_that_is_not_in_memory(rffl: Run, tmp_path: Path) -> None:
    """Any map-style dataset trains, is tested and predicted, by worker processes too."""
    network = ("--model.network", "Perceptron", "--model.network.inputs", 2, "--model.network.classes", 2)
    args = ("--data", "tests.own_data.OneByOne", *network, "--federation.participants", 2, "--data.num_workers", 1)
    assert rffl("fit", *args, *QUICK, "--trainer.max_epochs", 1).code == 0
    folder = only_run(tmp_path / "runs")
    given = ("--config", folder / "config.yaml", "--ckpt_path", folder / "checkpoints" / "last.ckpt")
    assert rffl("predict", *given).code == 0
    (predictions,) = (tmp_path / "runs").glob("*/*-predict/predictions")
    assert len(rows(predictions / "participant_1.csv")) == 20


def test_a_small_share_of_validation_is_at_least_one_batch(rffl: Run) -> None:
    """CFFL validates on held-out examples that are fewer than the watched ones: a share of them is never nothing."""
    watched = ("--data.watch", "test", "--trainer.limit_val_batches", 0.3)
    ended = rffl(*DIGITS, "--server", "CFFL", *watched, "--trainer.max_epochs", 1)
    assert ended.code == 0, ended.err


@pytest.mark.parametrize(("given", "one"), [("1", True), ("1.0", False)])
def test_one_batch_and_all_of_them(rffl: Run, tmp_path: Path, given: str, one: bool) -> None:
    """A whole number is one of batches, as Lightning has it, in files too: the parser would take 1 for all of them."""
    (tmp_path / "few.yaml").write_text(f"trainer:\n  limit_test_batches: {given}\n")
    words = ("--config", tmp_path / "few.yaml", "--trainer.limit_val_batches", given, "--trainer.max_epochs", 1)
    assert rffl(*DIGITS, *words, "--data.eval_batch_size", 64).code == 0
    folder = only_run(tmp_path / "runs")
    checkpoint = ("--ckpt_path", folder / "checkpoints" / "last.ckpt")
    assert rffl("test", "--config", folder / "config.yaml", *checkpoint).code == 0
    assert [path.parent for path in (tmp_path / "runs").rglob("starts.jsonl")] == [folder]  # a test trains nothing
    final = json.loads((folder / "summary.json").read_text())["final"]
    assert all((64 * accuracy).is_integer() for accuracy in final) == one
    (watched,) = (float(row["accuracy/max"]) for row in rows(folder / "metrics.csv"))
    assert (64 * watched).is_integer() == one
    for config in (tmp_path / "runs").rglob("config.yaml"):
        kept = yaml.safe_load(config.read_text())["trainer"]
        assert {type(kept[f"limit_{part}_batches"]) for part in ("val", "test")} == {int if one else float}


def test_a_profiler_reports(rffl: Run, caplog: pytest.LogCaptureFixture) -> None:
    """Who asks how long things take reads nothing of it."""
    ended = rffl(*DIGITS, *QUICK, "--trainer.max_epochs", 1, "--trainer.profiler", "simple")
    assert ended.code == 0
    assert "FIT Profiler Report" in ended.err + caplog.text


def test_an_evaluation_says_how_much_it_measured(rffl: Run, trained: Path) -> None:
    """Of some examples it looks like one of all, and of none like one that worked."""
    given = ("--config", trained / "config.yaml", "--ckpt_path", trained / "checkpoints", "--data.measurements", 300)
    for command, told in (("test", "50 of 359 test"), ("validate", "25 of 144 validation")):
        ended = rffl(command, *given)
        assert f"measured on {told} examples each; --data.measurements null takes all" in ended.out
        folder = max(trained.parent.glob(f"*-{command}"))
        assert json.loads((folder / "scores.json").read_text())["examples"] == int(told.split()[0])
    for command, option in (("validate", "val"), ("predict", "predict")):
        ended = rffl(command, *given, f"--trainer.limit_{option}_batches", 0)
        assert ended.code == 2
        assert f"Expected --trainer.limit_{option}_batches to leave at least one of " in ended.err


def test_control_c_before_a_run(rffl: Run) -> None:
    """A traceback, or another exit code than in a round."""
    ended = rffl(*DIGITS, "--model.network", "tests.interruption.Unmade")
    assert (ended.code, ended.err.splitlines()[-1]) == (130, "Error: Interrupted.")


def test_a_folder_that_has_been_deleted(rffl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever only asks for the version needs no folder."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    ended = rffl("--version")
    assert (ended.code, ended.err) == (0, "")


def test_without_a_logger(rffl: Run, tmp_path: Path) -> None:
    """What reads a run goes by metrics.csv: it is written whatever other loggers there are, as from Python."""
    words = (*DIGITS, "--ckpt_path", "last", "--trainer.max_epochs")
    assert rffl(*words, 1).code == 0
    assert rffl(*words, 2, "--trainer.logger", "false").code == 0
    assert [row["round"] for row in rows(only_run(tmp_path / "runs") / "metrics.csv")] == ["1", "2"]


class Telling(Callback):
    """Logs by Lightning's own way."""

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: object) -> None:
        pl_module.log("mine", 1.0, on_step=True, on_epoch=False, batch_size=1)


def test_every_how_many_rounds_loggers_are_told(rffl: Run, tmp_path: Path) -> None:
    """What a callback logs is told as often as is asked for, rounds always; a round of one batch is no mistake."""
    logger = ("--trainer.logger", "CSVLogger", "--trainer.logger.save_dir", tmp_path)
    own = ("--trainer.callbacks+=tests.cli.test_runs.Telling", "--trainer.log_every_n_steps", 2)
    ended = rffl(*DIGITS, *QUICK, "--trainer.max_epochs", 4, *logger, *own, "--run.root", tmp_path / "runs")
    assert ended.code == 0, ended.err
    assert "logging interval" not in ended.err
    told = rows(tmp_path / "lightning_logs" / "version_0" / "metrics.csv")
    assert [row["round"] for row in told if row["round"]] == ["1", "2", "3", "4"]
    assert len([row for row in told if row["mine"]]) == 2
