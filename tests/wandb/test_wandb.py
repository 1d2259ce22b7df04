"""What W&B receives, read back from the file of an offline run."""

from __future__ import annotations

import csv
import json
import os
import pwd
import signal
import statistics
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import wandb
from pydantic import BaseModel, ValidationError, model_validator
from wandb.proto.wandb_internal_pb2 import Record

from rffl_pl.callbacks.loggers import MOST_LINES
from rffl_pl.cli.mistakes import sentence
from tests.conftest import QUICK, Ended, only_run

BLOCK, HEADER = 32768, 7


def records(path: Path) -> list[Record]:
    """The records of an ended run's ``.wandb`` file, the last of which W&B's own process writes when it comes to it."""
    for _ in range(200):
        every = list(_written(path))
        if of_kind(every, "exit"):
            break
        time.sleep(0.1)
    return every


def _written(path: Path) -> Iterator[Record]:
    """What is there of a LevelDB log behind seven bytes of W&B's own."""
    data, position, parts = path.read_bytes(), HEADER, b""
    while position + HEADER <= len(data):
        if BLOCK - position % BLOCK < HEADER:
            position += BLOCK - position % BLOCK
            continue
        length, kind = struct.unpack("<HB", data[position + 4 : position + HEADER])
        parts += data[position + HEADER : position + HEADER + length]
        position += HEADER + length
        if kind in (1, 4):  # full or last
            yield Record.FromString(parts)
            parts = b""


def values(items: Any) -> dict[str, Any]:
    """Key to value of a history, summary or configuration record."""
    return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def of_kind(every: list[Record], kind: str) -> list[Record]:
    """The records of one kind, ``run`` or ``history``."""
    return [record for record in every if record.WhichOneof("record_type") == kind]


def history(every: list[Record]) -> list[dict[str, Any]]:
    """What was logged of each round."""
    logged = [values(record.history.item) for record in of_kind(every, "history")]
    return [entry for entry in logged if "accuracy/mean" in entry]


def media(every: list[Record]) -> tuple[dict[str, Any], int]:
    """Pictures and tables, and the round that they are of."""
    (last,) = (
        entry
        for entry in (values(record.history.item) for record in of_kind(every, "history"))
        if "accuracy/mean" not in entry
    )
    found: dict[str, Any] = {}
    for key, value in last.items():
        name, _, what = key.rpartition("/")
        if name:
            found.setdefault(name, {})[what] = value
    return found, last["round"]


def configured(every: list[Record]) -> dict[str, Any]:
    """The configuration as it is at the end."""
    config: dict[str, Any] = {}
    for record in every:
        config |= values(record.run.config.update) | values(record.config.update)
    return config


DIGITS = ("--config", "configs/digits.yaml", "--trainer.enable_progress_bar", "false")


@pytest.fixture
def offline(rffl: Callable[..., Ended], tmp_path: Path) -> Callable[..., tuple[Path, list[Record]]]:
    """Runs the demo with some options and without a login: W&B's folder, and all that it logged."""

    def run(*args: object) -> tuple[Path, list[Record]]:
        ended = rffl("fit", *DIGITS, *args)
        assert ended.code == 0, ended.err
        (folder,) = only_run(tmp_path / "runs").glob("wandb/offline-run-*")
        assert f"wandb sync {folder}" in ended.out
        return folder, list(records(next(folder.glob("*.wandb"))))

    return run


@pytest.fixture
def logged(offline: Callable[..., tuple[Path, list[Record]]]) -> list[Record]:
    """All that a run of two rounds logged, under a server with a diagnostic of its own."""
    return offline("--trainer.max_epochs", 2, "--server", "tests.extensions.Measured", "--server.gamma", 0.5)[1]


def test_every_round_is_logged_with_the_round_as_axis(logged: list[Record]) -> None:
    """Per participant accuracy, loss, reputation, quota and bytes, removals, and the round that charts go by."""
    first, second = history(logged)
    assert [first["round"], second["round"]] == [1, 2]
    for name in ("accuracy", "loss", "train_loss", "reputation", "quota", "bytes_up", "bytes_down", "length"):
        assert all(f"{name}/participant_{i}" in second for i in range(5))
    assert {"accuracy/mean", "accuracy/max", "members", "removed", "bytes_up/total"} <= second.keys()
    axes = [record.metric for record in logged if record.WhichOneof("record_type") == "metric"]
    assert [axis.step_metric for axis in axes if axis.glob_name == "*"][-1] == "round"


def test_summary_and_configuration_are_logged(logged: list[Record]) -> None:
    """The result in the summary, everything resolved in the configuration."""
    summary: dict[str, Any] = {}
    for record in logged:
        summary |= values(record.summary.update)
    config = configured(logged)
    assert {"taken", "taken_share", "first_removal", "last_removal", "honest_removed"} <= summary.keys()
    assert {"mean", "maximum", "fairness", "initial", "adversary_final", "adversary_standalone"} <= summary.keys()
    assert 0 < summary["mean"] <= summary["maximum"] <= 1
    assert config["federation"]["participants"] == 5
    assert config["server"]["init_args"]["alpha"] == 0.95
    assert config["trainer"]["max_epochs"] == 2


def test_runs_are_found_by_what_they_are(offline: Callable[..., tuple[Path, list[Record]]]) -> None:
    """Group without the seed, job type, tags, and flat keys to filter by, for several kinds of attack."""
    attacks = ("--federation.adversaries", 3, "--adversaries+=SignRandom", "--seed_everything", 7)
    _, every = offline(*attacks, *QUICK[2:], "--trainer.max_epochs", 1)
    run = of_kind(every, "run")[0].run
    assert run.run_group == "Digits POW RFFL released FreeRider + SignRandom 5+3"
    assert run.job_type == "fit"
    assert list(run.tags) == ["Digits", "POW", "RFFL", "released", "FreeRider", "SignRandom", "seed 7"]
    config = configured(every)
    found = {"dataset": "Digits", "split": "POW", "server_name": "RFFL", "preset": "released", "seed": 7, "rounds": 1}
    found |= {"attack": "FreeRider + SignRandom", "participants": 5, "adversaries": 3}
    assert found.items() <= config.items()


def test_a_server_is_logged_with_what_makes_it_another(
    offline: Callable[..., tuple[Path, list[Record]]],
) -> None:
    """As options are resolved and not as they are typed: a chart of FedOpt would average over its optimizers."""
    server = ("--server", "FedOpt", "--server.rule", "Median", "--server.optimizer", "Adam", "--model.proximal", 0.1)
    _, every = offline(*server, *QUICK[2:], "--trainer.max_epochs", 1)
    run = of_kind(every, "run")[0].run
    named = "FedOpt Adam of Median proximal 0.1"
    assert configured(every)["server_name"] == named
    assert run.run_group == f"Digits POW {named} FreeRider 5+1"
    assert list(run.tags) == ["Digits", "POW", "FedOpt", named, "FreeRider", "seed 1"]


def test_the_environment_decides_first(
    offline: Callable[..., tuple[Path, list[Record]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever sets W&B's own variables gets what they say."""
    monkeypatch.setenv("WANDB_RUN_GROUP", "mine")
    monkeypatch.setenv("WANDB_TAGS", "a,b")
    monkeypatch.setenv("WANDB_PROJECT", "ours")
    monkeypatch.setenv("WANDB_NAME", "first")
    run = of_kind(offline(*QUICK[2:], "--trainer.max_epochs", 1)[1], "run")[0].run
    assert (run.run_group, sorted(run.tags), run.job_type) == ("mine", ["a", "b"], "fit")
    assert (run.project, run.display_name) == ("ours", "first")


STUDY = """\
base: --config digits.yaml --standalone.enabled false --run.figures false --trainer.max_epochs 2
axes:
  fate:
    breaks: --trainer.callbacks+=tests.interruption.PowerCut --trainer.callbacks.after 1
    ends: ""
"""


@pytest.mark.slow
def test_every_cell_of_a_study_has_a_run_of_its_own(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """With the study's name; a cell that breaks leaves no run open, and another study uses the cells nonetheless."""
    for name in ("attacks", "others"):
        (tmp_path / f"{name}.yaml").write_text(STUDY)
    ended = rffl("study", tmp_path / "attacks.yaml", "--root", tmp_path / "studies")
    assert (ended.code, "power cut" in ended.err) == (1, True), ended.err
    runs = [list(records(path)) for path in (tmp_path / "studies").glob("cells/*/*/wandb/offline-run-*/*.wandb")]
    assert len({of_kind(every, "run")[0].run.run_id for every in runs}) == len(runs) == 2
    for every in runs:
        assert list(of_kind(every, "run")[0].run.tags)[-1] == "study attacks"
        run, known = of_kind(every, "run")[0].run, configured(every)
        fate = known["run"]["place"]["fate"]
        assert (known["study"], known["place"]) == ("attacks", f"fate={fate}")
        assert (run.run_group, run.display_name) == (f"attacks fate={fate}", f"attacks fate={fate} seed=1")
    pattern = f"{tmp_path}/studies/cells/*/*/wandb/offline-run-*"
    assert f"W&B, offline: 1 run; upload them with: wandb sync {pattern}" in ended.out
    ends = {of_kind(every, "exit")[0].exit.exit_code: history(every) for every in runs}
    assert {code: [entry["round"] for entry in rounds] for code, rounds in ends.items()} == {0: [1, 2], 1: [1]}
    again = rffl("study", tmp_path / "others.yaml", "--root", tmp_path / "studies", "--dry-run")
    assert "2 cells, 1 to run" in again.out


def test_several_that_go_on_from_one_checkpoint(rffl: Callable[..., Ended], tmp_path: Path) -> None:
    """They are one W&B run, in which each loses the rounds of the other."""
    assert rffl("fit", *DIGITS, *QUICK[2:], "--trainer.max_epochs", 2, "--run.name", "one").code == 0
    checkpoint = only_run(tmp_path / "runs", "one") / "checkpoints" / "last.ckpt"
    for name in ("two", "three"):
        on = ("--ckpt_path", checkpoint, "--trainer.max_epochs", 3, "--run.name", name)
        ended = rffl("fit", *DIGITS, *QUICK[2:], *on)
        assert ended.code == 0, ended.err
        assert "it goes on with W&B run" not in ended.out
    files = [only_run(tmp_path / "runs", name).glob("wandb/*/*.wandb") for name in ("one", "two", "three")]
    every = [records(next(found)) for found in files]
    assert len({of_kind(one, "run")[0].run.run_id for one in every}) == 3
    assert [[entry["round"] for entry in history(one)] for one in every] == [[1, 2], [1, 2, 3], [1, 2, 3]]
    assert of_kind(every[1], "run")[0].run.display_name.startswith("two-")


def test_a_failed_run_is_closed_though_it_is_asked_to_end(
    rffl: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As torchrun asks when another rank failed, while W&B writes: it has every round, and that the run failed."""
    finish = wandb.Run.finish

    def asked(run: wandb.Run, exit_code: int | None = None) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        finish(run, exit_code=exit_code)

    monkeypatch.setattr(wandb.Run, "finish", asked)
    cut = ("--trainer.callbacks+=tests.interruption.PowerCut", "--trainer.callbacks.after", 2)
    with pytest.raises(RuntimeError, match="power cut"):
        rffl("fit", *DIGITS, *QUICK[2:], "--trainer.max_epochs", 4, *cut)
    every = list(records(next(only_run(tmp_path / "runs").glob("wandb/offline-run-*/*.wandb"))))
    assert [entry["round"] for entry in history(every)] == [1, 2]
    assert of_kind(every, "exit")[0].exit.exit_code == 1


def test_a_mistake_opens_no_run(rffl: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one in the data either, which is read last: W&B shows no run that never began."""

    def opened(**_: Any) -> None:
        raise AssertionError("W&B's run was opened")

    monkeypatch.setattr(wandb, "init", opened)
    for mistake in (("--data.examples_per_participant", 100_000), ("--model.network", "CIFAR10CNN")):
        ended = rffl("fit", *DIGITS, "--trainer.max_epochs", 1, *mistake)
        assert ended.code == 2
        assert ended.err.startswith("Error: Expected "), ended.err


def test_a_login_that_wandb_refuses_is_one_sentence(
    rffl: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch
) -> None:
    """W&B's own, with what to do instead; no traceback after minutes of waiting."""
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_API_KEY", "short")
    wandb.teardown()  # what W&B has read of the environment, it keeps as long as the process
    try:
        ended = rffl("fit", *DIGITS, *QUICK[2:], "--trainer.max_epochs", 1)
    finally:
        wandb.teardown()
    assert ended.code == 2
    assert "Error: Expected W&B at https://api.wandb.ai to take this run, but got:" in ended.err
    assert "API key" in ended.err
    assert "give WANDB_MODE=offline" in ended.err


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("WANDB_TAGS", "a,,b", "Expected WANDB_TAGS to be what W&B takes, but got 'a,,b', of which it says: "),
        ("WANDB_MODE", "", "Expected WANDB_MODE to be what W&B takes, but got '', of which it says: "),
        ("WANDB_BASE_URL", "x", "Expected WANDB_BASE_URL to be what W&B takes, but got 'x', of which it says: "),
        ("WANDB_PROJECT", "a/b", "Expected W&B to take this run, but got: Invalid project name 'a/b'"),
    ],
)
def test_a_setting_that_wandb_refuses_is_one_sentence(
    rffl: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, variable: str, value: str, said: str
) -> None:
    """With the variable's name; who is offline is not told to go there."""
    monkeypatch.setenv(variable, value)
    wandb.teardown()
    try:
        ended = rffl("fit", *DIGITS, *QUICK[2:], "--trainer.max_epochs", 1)
    finally:
        wandb.teardown()
    assert ended.code == 2
    (error,) = (line for line in ended.err.splitlines() if line.startswith("Error: "))
    assert error.startswith(f"Error: {said}")
    assert "WANDB_MODE=offline" not in error
    assert "errors.pydantic.dev" not in error


class Together(BaseModel):
    """Refuses its settings as a whole."""

    @model_validator(mode="after")
    def check(self) -> Together:
        raise ValueError("they do not fit together")


def test_whose_setting_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some variables are called as W&B's settings and some otherwise, and some settings no variable has given."""
    wrong: dict[str, Any] = {"run_group": 3}
    refused: dict[str, Callable[[], object]] = {
        "the run_group of W&B to be what W&B takes, but got 3, of which it says: ": lambda: wandb.Settings(**wrong),
        "the settings of W&B to be what W&B takes, but got {}, of which it says: Value error, they": Together,
    }
    for expected, make in refused.items():
        with pytest.raises(ValidationError) as caught:
            make()
        assert expected in sentence(caught.value)
        assert "unset" not in sentence(caught.value)
    monkeypatch.setenv("WANDB_RUN_GROUP", "mine")
    with pytest.raises(ValidationError) as caught:
        wandb.Settings(**wrong)
    assert "Expected WANDB_RUN_GROUP to be what W&B takes, but got 'mine'" in sentence(caught.value)


def test_a_user_without_a_home(
    offline: Callable[..., tuple[Path, list[Record]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container whose user has no name either, where W&B looks for one."""

    def unknown(number: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert len(history(offline(*QUICK[2:], "--trainer.max_epochs", 1)[1])) == 1


def test_of_many_participants_there_are_quantiles_and_tables(
    offline: Callable[..., tuple[Path, list[Record]]],
) -> None:
    """Fewer than 100 numbers per round and none of a single one, in W&B alone; tables have everybody's."""
    sizes = ("--federation.participants", MOST_LINES, "--data.examples_per_participant", 20, "--trainer.max_epochs", 2)
    folder, every = offline(*sizes, *QUICK[2:])
    with (folder.parent.parent / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    for entry, row in zip(history(every), rows, strict=True):
        assert not [name for name in entry if "participant_" in name]
        assert len(entry) < 100
        known = [float(row[f"accuracy/participant_{i}"]) for i in range(MOST_LINES)]
        assert entry["accuracy/honest_median"] == pytest.approx(statistics.median(known))
        assert entry["accuracy/honest_highest"] == pytest.approx(max(known))
        assert entry["accuracy/adversaries_mean"] == pytest.approx(float(row[f"accuracy/participant_{MOST_LINES}"]))
        assert entry["honest_members"] == MOST_LINES
        assert {"reputation/honest_median", "reputation/adversaries_mean", "adversary_members"} <= entry.keys()
    tables, _ = media(every)
    assert {"tables/accuracy", "tables/reputation", "tables/bytes_up"} <= tables.keys()
    table = json.loads((folder / "files" / tables["tables/reputation"]["path"]).read_text())
    assert table["columns"] == ["round", *(f"participant_{i}" for i in range(MOST_LINES + 1))]
    for line, row in zip(table["data"], rows, strict=True):
        assert line == pytest.approx(
            [float(row[name if name == "round" else f"reputation/{name}"]) for name in table["columns"]]
        )


def test_sixteen_participants_have_a_line_each(offline: Callable[..., tuple[Path, list[Record]]]) -> None:
    """The most that W&B has everybody's own values of."""
    sizes = (
        "--federation.participants",
        MOST_LINES - 1,
        "--data.examples_per_participant",
        20,
        "--trainer.max_epochs",
        1,
    )
    _, every = offline(*sizes, *QUICK[2:])
    (entry,) = history(every)
    assert all(f"accuracy/participant_{i}" in entry for i in range(MOST_LINES))
    assert len(of_kind(every, "history")) == 1
