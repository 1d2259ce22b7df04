"""SIGTERM and restarts: what a run leaves, and how it goes on."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml
from lightning.pytorch import Callback

from rffl_pl.cli.going_on import _trained_otherwise, changed_options
from rffl_pl.cli.reserved import Reserved
from rffl_pl.cli.run import Run as Options
from rffl_pl.datamodules import ImageFolder
from rffl_pl.errors import UserError
from rffl_pl.launch.stopping import STOP, Stopped
from rffl_pl.runs import RunFolder
from tests.cli.folders import DIGITS, Run, assert_same_bits, rows, weights, whole
from tests.conftest import QUICK, only_run
from tests.runs import kept_in

TERMINATED = "--trainer.callbacks+=tests.interruption.Signalled"


def test_sigterm_ends_a_run_at_the_end_of_its_round(rffl: Run, tmp_path: Path) -> None:
    """With that round's checkpoint, whatever the cadence, exit code 143 and no evaluation; it goes on in its folder."""
    STOP.ignore()  # which a run that failed in this process still hears
    before = signal.getsignal(signal.SIGTERM)
    ended = rffl(*DIGITS, "--trainer.max_epochs", 4, "--run.checkpoint_every", 50, TERMINATED, "--run.name", "stopped")
    assert ended.code == 143
    assert signal.getsignal(signal.SIGTERM) is before
    assert "Stopped by SIGTERM after round 3; go on with: rffl fit --config" in ended.err
    assert "Traceback" not in ended.err
    (stopped,) = (tmp_path / "runs" / "stopped").iterdir()
    assert not (stopped / "summary.json").exists()
    assert kept_in(stopped / "checkpoints" / "last.ckpt")["federation"]["round"] == 3
    again = rffl(*DIGITS, "--trainer.max_epochs", 4, "--run.name", "stopped", "--ckpt_path", "last")
    assert again.code == 0, again.err
    assert list((tmp_path / "runs" / "stopped").iterdir()) == [stopped]
    assert [row["round"] for row in rows(stopped / "metrics.csv")] == ["1", "2", "3", "4"]
    assert RunFolder.open(stopped).config()["ckpt_path"] is None
    assert_same_bits(whole(rffl, tmp_path, 4), stopped)


def test_sigterm_after_the_last_round(rffl: Run, tmp_path: Path) -> None:
    """The standalone reference is not waited for; whoever goes on gets it, and no round is trained again."""
    args = ("fit", "--config", "configs/digits.yaml", *QUICK[:4], "--trainer.max_epochs", 4, "--run.name", "stopped")
    ended = rffl(*args, TERMINATED, "--trainer.callbacks.at", "end")
    assert ended.code == 143, ended.err
    assert "Stopped by SIGTERM after round 4" in ended.err
    (stopped,) = (tmp_path / "runs" / "stopped").iterdir()
    assert rffl(*args, "--ckpt_path", "last").code == 0
    assert json.loads((stopped / "summary.json").read_text())["fairness"] is not None


STEPS = ("--trainer.max_epochs", 5, "--trainer.max_steps", 2)
EARLY = (
    "--trainer.max_epochs", 6, "--trainer.callbacks+=EarlyStopping", "--trainer.callbacks.monitor", "accuracy/mean",
    "--trainer.callbacks.mode", "max", "--trainer.callbacks.patience", 1, "--trainer.callbacks.min_delta", 1,
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("limit", [STEPS, EARLY], ids=["steps", "early"])
def test_sigterm_after_a_last_round_that_was_not_the_last_epoch(
    rffl: Run, tmp_path: Path, limit: tuple[object, ...]
) -> None:
    """Whoever goes on gets the result of the rounds that there were, to the same bits; a higher limit trains on."""
    args = (*DIGITS, *limit, "--run.name", "stopped")
    ended = rffl(*args, TERMINATED, "--trainer.callbacks.at", "end")
    assert ended.code == 143, ended.err
    assert "Stopped by SIGTERM after round 2" in ended.err
    (stopped,) = (tmp_path / "runs" / "stopped").iterdir()
    again = rffl(*args, "--ckpt_path", "last")
    assert again.code == 0, again.err
    assert len(rows(stopped / "metrics.csv")) == json.loads((stopped / "summary.json").read_text())["rounds"] == 2
    assert_same_bits(whole(rffl, tmp_path, 2), stopped)
    told = "to train on, give another limit: a higher --trainer.callbacks.patience or a higher --trainer.max_epochs."
    assert (told in again.err) == (limit is EARLY)
    more = ("--trainer.max_steps", 3) if limit is STEPS else ("--trainer.callbacks.patience", 2)
    assert rffl(*args, "--ckpt_path", "last", *more).code == 0
    assert [row["round"] for row in rows(stopped / "metrics.csv")] == ["1", "2", "3"]


ENOUGH = ("--trainer.max_epochs", 6, "--trainer.callbacks+=tests.interruption.Enough")


@pytest.mark.parametrize("limit", [EARLY, ENOUGH], ids=["early", "own"])
def test_sigterm_in_the_round_that_is_the_last_one(rffl: Run, tmp_path: Path, limit: tuple[object, ...]) -> None:
    """That somebody else has training end there is not forgotten: who goes on trains no further."""
    args = (*DIGITS, *limit, "--run.name", "stopped")
    ended = rffl(*args, TERMINATED, "--trainer.callbacks.after", 1)
    assert ended.code == 143, ended.err
    assert "Stopped by SIGTERM after round 2" in ended.err
    again = rffl(*args, "--ckpt_path", "last")
    assert again.code == 0, again.err
    assert "Training had already ended after round 2 and is not continued" in again.err
    (stopped,) = (tmp_path / "runs" / "stopped").iterdir()
    assert len(rows(stopped / "metrics.csv")) == json.loads((stopped / "summary.json").read_text())["rounds"] == 2


def test_a_finished_run_that_goes_on_and_breaks_off(rffl: Run, tmp_path: Path) -> None:
    """Its result is that of earlier rounds, is called so, and is no result of the run any more."""
    args = (*DIGITS, "--run.name", "longer", "--ckpt_path", "last", "--trainer.max_epochs")
    assert rffl(*args, 1).code == 0
    run = RunFolder(only_run(tmp_path / "runs"))
    first = run.summary()
    cut = "--trainer.callbacks+=tests.interruption.PowerCut"
    with pytest.raises(RuntimeError, match="power cut"):
        rffl(*args, 4, cut, "--trainer.callbacks.after", 1)
    assert run.summary() == first  # there are no others yet
    with pytest.raises(RuntimeError, match="power cut"):
        rffl(*args, 4, cut)
    assert RunFolder(run.path).rounds()[-1].number == 2
    assert not run.summary_file.exists()
    assert json.loads((run.path / "summary.1.json").read_text())["final"] == first.final
    ended = rffl("compare", run.path.parent)
    assert (ended.code, "no summary.json after 2 of 4 rounds" in ended.err) == (2, True), ended.err
    assert rffl(*args, 4).code == 0
    assert run.summary().rounds == 4


def test_an_older_handler_hears_it_too() -> None:
    """A scheduler's or a study's own; while rounds are played nothing is raised."""
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: heard.append(number))
    try:
        STOP.listen()
        STOP.deferred = True
        signal.raise_signal(signal.SIGTERM)
        assert heard == [signal.SIGTERM]
        assert STOP.heard is not None
    finally:
        STOP.ignore()
        signal.signal(signal.SIGTERM, before)


def test_last_without_a_checkpoint_begins(rffl: Run, tmp_path: Path) -> None:
    """So that a job that may be put back has one command line; it says so."""
    ended = rffl(*DIGITS, "--trainer.max_epochs", 1, "--run.name", "new", "--ckpt_path", "last")
    assert ended.code == 0, ended.err
    assert "No run to go on with has a checkpoint yet: training begins." in ended.err
    assert len(list((tmp_path / "runs" / "new").iterdir())) == 1


def test_the_run_that_is_named_goes_on(rffl: Run, tmp_path: Path) -> None:
    """By the command that who stops one is told, whichever run of that name was stopped after it."""
    commands = []
    for gamma in (0.5, 0.2):
        ended = rffl(*DIGITS, "--server.gamma", gamma, TERMINATED, "--trainer.callbacks.after", 1)
        commands.append(ended.err.partition("go on with: rffl ")[2].split())
    first, second = (Path(command[2]).parent for command in commands)
    assert rffl(*commands[0], "--trainer.max_epochs", 3).code == 0
    assert [len(rows(run / "metrics.csv")) for run in (first, second)] == [3, 2]
    assert not [*first.parent.glob("*/config.*.yaml")]


def checkpointed(folder: Path, moment: float) -> RunFolder:
    """A run that wrote its checkpoint then."""
    part = folder / "checkpoints" / "last.ckpt" / "run.pt"
    part.parent.mkdir(parents=True)
    part.touch()
    os.utime(part, (moment, moment))
    return RunFolder(folder)


def test_last_is_what_was_written_last(tmp_path: Path) -> None:
    """Whatever users have made of the folders' names; of one moment's the last name, but no copy and no link."""
    checkpointed(tmp_path / "digits" / "baseline", 1)
    checkpointed(tmp_path / "digits" / "2026-01-02_00-00-00_2.bak", 2)
    checkpointed(tmp_path / "digits" / "2026-01-02_00-00-00", 2)
    newest = checkpointed(tmp_path / "digits" / "2026-01-02_00-00-00_2", 2)
    (tmp_path / "digits" / "without").mkdir()
    (tmp_path / "digits" / "latest").symlink_to(newest.path)
    found = Options(name="digits", root=str(tmp_path)).earlier("last", lambda run: True)
    assert found is not None
    assert found.path == newest.path
    assert Options(name="none", root=str(tmp_path)).earlier("last", lambda run: True) is None


def test_last_is_the_run_whose_configuration_is_given_wherever_it_lies(tmp_path: Path) -> None:
    """A later one of its name is gone on with, or a new one begins, although the user has named a moved one."""
    options = Options(name="digits", root=str(tmp_path / "runs"))
    later = checkpointed(tmp_path / "runs" / "digits" / "later", 2)
    moved = checkpointed(tmp_path / "kept", 1)
    moved.config_file.write_text(yaml.safe_dump({"run": {"name": "digits", "root": str(tmp_path / "runs")}}))
    found = options.earlier("last", configs=[moved.config_file])
    assert found is not None
    assert found.path == moved.path
    template = Options(name="another", root=str(tmp_path / "runs"))
    assert template.earlier("last", configs=[moved.config_file]) is None
    copied = tmp_path / "copied.yaml"
    shutil.copyfile(moved.config_file, copied)
    found = options.earlier("last", configs=[copied])
    assert found is not None
    assert found.path == later.path


def test_last_is_also_what_began_from_another_run(tmp_path: Path) -> None:
    """Until it has a checkpoint of its own; but what has its result, was only tested or began anew is none."""
    options = Options(name="digits", root=str(tmp_path))
    earlier = checkpointed(tmp_path / "digits" / "earlier", 1)

    def begun(name: str, ckpt_path: Path | None, left: str = "starts.jsonl") -> RunFolder:
        run = RunFolder(tmp_path / "digits" / name)
        run.path.mkdir()
        run.config_file.write_text(yaml.safe_dump({"ckpt_path": ckpt_path and str(ckpt_path)}))
        (run.path / left).touch()
        return run

    begun("finished", earlier.checkpoints).summary_file.touch()
    begun("tested", earlier.checkpoints, "scores.json")
    begun("anew", None)
    begun("damaged", earlier.checkpoints).config_file.write_text("{")
    found = options.earlier("last")
    assert found is not None
    assert found.path == earlier.path
    later = begun("later", earlier.checkpoints)
    for configs in ([], [later.config_file]):
        found = options.earlier("last", configs=configs)
        assert found is not None
        assert found.path == later.path


def test_a_restart_is_of_the_run_that_the_launch_began_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several runs of one job; the last has no checkpoint yet."""
    monkeypatch.setenv("SLURM_JOB_ID", "mine")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    checkpointed(tmp_path / "digits" / "renamed", 1)
    (tmp_path / "digits" / "later").mkdir()
    for moment, name in enumerate(("renamed", "later")):
        (tmp_path / "digits" / name / "launch").write_text("mine")
        os.utime(tmp_path / "digits" / name / "launch", (moment, moment))
    options = Options(name="digits", root=str(tmp_path))
    found = options.earlier(None, lambda run: True)
    assert found is not None
    assert found.path.name == "later"
    found = options.earlier(None, lambda run: run.path.name == "renamed", lambda run: True)
    assert found is not None
    assert found.path.name == "renamed"


def test_a_run_whose_data_lie_elsewhere_is_the_same(tmp_path: Path) -> None:
    """The configuration in a folder that all ranks see is rank 0's, which has files by other names."""
    run = RunFolder(tmp_path)
    config = {"data": {"class_path": "rffl_pl.datamodules.ImageFolder", "init_args": {"folder": "/a", "image_size": 8}}}
    run.config_file.write_text(yaml.safe_dump(config))
    config["data"]["init_args"] = {"folder": "/b", "image_size": 8}
    assert changed_options(run, config, ImageFolder.places) == []
    assert changed_options(run, config)
    config["data"]["init_args"] = {"folder": "/a", "image_size": 8, "white": 65535}
    assert changed_options(run, config) == []  # of before there was another white
    for other in ({"image_size": 16}, {"image_size": 8, "white": 4095}):
        config["data"]["init_args"] = {"folder": "/a", **other}
        assert changed_options(run, config, ImageFolder.places)


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"])
def test_a_restarted_launch_goes_on(rffl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: str) -> None:
    """In its own folder, not in another launch's of the same name, and to the same bits."""
    cut = "--trainer.callbacks+=tests.interruption.PowerCut"
    args = (*DIGITS, "--trainer.max_epochs", 4, "--run.name", "cut", cut)
    alone = {"RANK": "0", "LOCAL_RANK": "0", "GROUP_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1"}
    for name, value in alone.items():
        monkeypatch.setenv(name, value)
    for name in ("mine", "another"):
        monkeypatch.setenv(launcher, name)
        with pytest.raises(RuntimeError, match="power cut"):
            rffl(*args)
    monkeypatch.setattr("tests.interruption.PowerCut.on_train_batch_start", Callback.on_train_batch_start)
    first = next(path for path in (tmp_path / "runs" / "cut").iterdir() if RunFolder(path).launch() == "mine")
    monkeypatch.setenv(launcher, "mine")
    monkeypatch.setenv({"TORCHELASTIC_RUN_ID": "TORCHELASTIC_RESTART_COUNT"}.get(launcher, "SLURM_RESTART_COUNT"), "1")
    again = rffl(*args)
    assert again.code == 0, again.err
    assert len(list((tmp_path / "runs" / "cut").iterdir())) == 2
    monkeypatch.undo()
    monkeypatch.chdir(Path(__file__).parents[2])
    assert_same_bits(whole(rffl, tmp_path, 4), first)


@pytest.mark.slow
def test_a_damaged_last_checkpoint_costs_a_round(rffl: Run, tmp_path: Path) -> None:
    """``last`` goes on from the one before, and says so."""
    args = (*DIGITS, "--run.name", "run")
    assert rffl(*args, "--trainer.max_epochs", 3).code == 0
    (run,) = (tmp_path / "runs" / "run").iterdir()
    part = run / "checkpoints" / "last.ckpt" / "participant_0.pt"
    spoilt = bytearray(part.read_bytes())
    spoilt[len(spoilt) // 2] ^= 1
    part.write_bytes(spoilt)
    ended = rffl(*args, "--trainer.max_epochs", 4, "--ckpt_path", "last", "--run.checkpoint_every", 4)
    assert ended.code == 0, ended.err
    assert [start["rounds"] for start in RunFolder(run).starts()] == [0, 2]
    assert "participant_0.pt to be a whole checkpoint" in ended.err
    assert "Going on from the one before." in ended.err
    assert_same_bits(whole(rffl, tmp_path, 4), run)
    assert kept_in(run / "checkpoints" / "last.previous.ckpt")["federation"]["round"] == 2  # not the damaged one


def contents(folder: Path) -> dict[Path, bytes]:
    """Of every file but those of launches."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in ("launch", "starts.jsonl"))
    return {path.relative_to(folder): path.read_bytes() for path in files}


def test_a_finished_run_is_left_as_it_is(rffl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that is started again has nothing to do; fewer rounds than there are, or other settings, change nothing."""
    args = (*DIGITS, "--run.name", "run")
    assert rffl(*args, "--trainer.max_epochs", 3).code == 0
    (run,) = (tmp_path / "runs" / "run").iterdir()
    before = contents(run)
    fewer = rffl(*args, "--trainer.max_epochs", 2, "--ckpt_path", "last")
    assert fewer.code == 2
    expected = (
        f"Error: Expected --trainer.max_epochs of at least 3, the rounds that {run / 'checkpoints'} has, but got 2; "
    )
    assert fewer.err.startswith(expected)
    for option, value in {"--seed_everything": 7, "--server": "FedAvg", "--model.optimizer.lr": 0.5}.items():
        other = rffl(*args, "--trainer.max_epochs", 3, option, value, "--ckpt_path", "last")
        assert other.code == 2
        assert f"has its 3 rounds, but got another {option}; give more rounds, another --run.name, or" in other.err
    for option in ("--data.test_share", "--data.test_file"):  # of which it depends what is left to train on
        assert _trained_otherwise(RunFolder.open(run), 3, [option]) is not None
    again = rffl(*args, "--trainer.max_epochs", 3, "--standalone.enabled", "true", "--ckpt_path", "last")
    assert (again.code, again.err) == (0, "")
    assert again.out.startswith(f"The run in {run} has its 3 rounds and its result: nothing is left to do; ")
    assert contents(run) == before
    monkeypatch.setattr(RunFolder, "launch", lambda run: None)
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert rffl(*args, "--trainer.max_epochs", 3).out == again.out
    assert contents(run) == before


@pytest.mark.slow
@pytest.mark.parametrize("limit", [STEPS, (*EARLY, "--trainer.max_steps", 9)], ids=["steps", "early"])
def test_a_finished_run_that_had_fewer_rounds_than_epochs(rffl: Run, tmp_path: Path, limit: tuple[object, ...]) -> None:
    """It is left as it is, and refused to who would have trained otherwise, whatever ended it; more of that is more."""
    args = (*DIGITS, *limit, "--run.name", "run", "--ckpt_path", "last")
    assert rffl(*args).code == 0
    (run,) = (tmp_path / "runs" / "run").iterdir()
    before = contents(run)
    other = rffl(*args, "--server.gamma", 0.1)
    assert (other.code, contents(run) == before) == (2, True), other.err
    assert other.err.count("\n") == 1
    assert f"the finished run in {run}, which has its 2 rounds, but got another --server.gamma; " in other.err
    again = rffl(*args)
    assert (again.code, again.err, contents(run) == before) == (0, "", True)
    more = "--trainer.max_steps" if limit is STEPS else "--trainer.callbacks.patience"
    assert again.out.startswith(f"The run in {run} has its 2 rounds and its result: nothing is left to do; for more ")
    assert f"give a higher {more}" in again.out
    assert rffl(*args, more, 3).code == 0
    assert len(rows(run / "metrics.csv")) > 2


def test_a_run_without_its_last_weights_is_finished(rffl: Run, tmp_path: Path) -> None:
    """Whatever was not written after the last round is written by whoever goes on."""
    args = (*DIGITS, "--run.name", "run", "--trainer.max_epochs", 2)
    assert rffl(*args).code == 0
    (run,) = (tmp_path / "runs" / "run").iterdir()
    before = weights(run)
    for missing in (run / "weights" / "participant_3.pt", run / "summary.json"):
        missing.unlink()
        assert rffl(*args, "--ckpt_path", "last").code == 0
        assert weights(run).keys() == before.keys()
        assert RunFolder(run).complete(2)


def test_a_checkpoint_of_more_rounds_is_refused(rffl: Run, tmp_path: Path) -> None:
    """Also where a folder of its own would hold nothing but a configuration."""
    assert rffl(*DIGITS, "--run.name", "run", "--trainer.max_epochs", 2).code == 0
    (run,) = (tmp_path / "runs" / "run").iterdir()
    checkpoint = run / "checkpoints" / "last.ckpt"
    ended = rffl(*DIGITS, "--run.name", "new", "--trainer.max_epochs", 1, "--ckpt_path", checkpoint)
    assert ended.code == 2
    assert ended.err.startswith(
        f"Error: Expected --trainer.max_epochs of at least 2, the rounds that {checkpoint} has, but"
    )
    steps = rffl(*DIGITS, "--run.name", "new", "--trainer.max_steps", 1, "--ckpt_path", checkpoint)
    assert steps.code == 2
    assert steps.err.startswith("Error: Expected --trainer.max_steps of at least 2, the rounds that")
    assert not (tmp_path / "runs" / "new").exists()


def test_two_processes_do_not_share_a_folder(rffl: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While one goes on with a run, another one is refused."""
    monkeypatch.setattr("rffl_pl.runs.folder.PATIENCE", 0.1)
    args = (*DIGITS, "--run.name", "run")
    assert rffl(*args, "--trainer.max_epochs", 1).code == 0
    (run,) = (tmp_path / "runs" / "run").iterdir()
    with (run / "launch").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        ended = rffl(*args, "--trainer.max_epochs", 2, "--ckpt_path", "last")
    assert ended.code == 2
    assert "another process goes on with it; end that one first" in ended.err


@pytest.mark.parametrize("error", [UserError("Expected something else."), Stopped(signal.SIGTERM)])
def test_who_is_asked_to_end_while_it_takes_a_folder_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    """Another rank has made the same mistake: all of the folder goes, and the mistake is what is told."""
    take_away = shutil.rmtree

    def asked(path: Path, **options: Any) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        take_away(path, **options)

    monkeypatch.setattr(shutil, "rmtree", asked)
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    STOP.listen()
    try:
        reserved = Reserved(Options(name="digits", root=str(tmp_path / "runs")), "fit", None)
        assert reserved.path.is_dir()
        with pytest.raises(type(error)) as raised, reserved.unless_a_mistake():
            raise error
        assert raised.value is error
        assert STOP.heard is not None
        assert not (tmp_path / "runs").exists()
    finally:
        RunFolder.free()
        STOP.ignore()
        signal.signal(signal.SIGTERM, before)


def test_sigterm_before_ranks_have_met(tmp_path: Path) -> None:
    """Where another rank's words cannot be read the launcher ends this one, whose empty folder stayed."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        reserved = Reserved(Options(name="digits", root=str(tmp_path / "runs")), "fit", None)
        with pytest.raises(Stopped), reserved.unless_a_mistake():
            signal.raise_signal(signal.SIGTERM)
        assert not (tmp_path / "runs").exists()
    finally:
        RunFolder.free()
        STOP.ignore()
        signal.signal(signal.SIGTERM, before)


def test_another_rank_is_gone_before_the_first_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed while it read its data, say: a folder with a lock in it stayed. A bug of ours leaves what there is."""
    options = Options(name="digits", root=str(tmp_path / "runs"))
    monkeypatch.setenv("WORLD_SIZE", "2")
    try:
        for sentence, left in (("Connection closed by peer", False), ("tensors do not match", True)):
            reserved = Reserved(options, "fit", None)
            with pytest.raises(RuntimeError, match=sentence), reserved.unless_a_mistake():
                raise RuntimeError(sentence)
            assert reserved.path.exists() == left
    finally:
        RunFolder.free()
        STOP.ignore()


@pytest.mark.slow
def test_where_no_checkpoint_is_whole_none_is_promised(rffl: Run, tmp_path: Path) -> None:
    """The mistake alone, of the one before the last."""
    args = (*DIGITS, "--run.name", "run")
    assert rffl(*args, "--trainer.max_epochs", 3).code == 0
    (run,) = (tmp_path / "runs" / "run").iterdir()
    for part in run.glob("checkpoints/*/participant_0.pt"):
        part.write_bytes(part.read_bytes()[:-100])
    ended = rffl(*args, "--trainer.max_epochs", 4, "--ckpt_path", "last")
    assert ended.code == 2
    assert "last.previous.ckpt/participant_0.pt to be a whole checkpoint" in ended.err
    assert "Going on" not in ended.err
