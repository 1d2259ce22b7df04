"""The checkpoint's format: who writes and reads which part, and every way in which it can be no checkpoint."""

from __future__ import annotations

import errno
import os
import random
import re
import shutil
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from rffl_pl.errors import UserError
from rffl_pl.federation import Federation
from rffl_pl.runs import Round, checkpoint
from rffl_pl.runs.checkpoint import (
    VERSION,
    CheckpointNotWrittenError,
    choices,
    header,
    load,
    stamp_of,
    stamps,
    wandb_run,
    write,
)
from rffl_pl.runs.disks import Disk
from rffl_pl.runs.history import History
from rffl_pl.runs.identity import check_identity, identity
from tests.runs import kept_in

MEMBERS = {0: True, 1: True, 2: False}


def state(participant: int, round_: int) -> dict[str, Any]:
    """Something to tell a participant and a round by."""
    value = torch.tensor([float(participant), float(round_)])
    return {"network": {"weight": value}, "optimizer": {"state": {}}, "memory": {"momentum": -value}}


def rounds(folder: Path, count: int) -> History:
    """A history of so many rounds."""
    return History(folder / "rounds.jsonl", (Round(number=n + 1, honest=2, members=[True] * 3) for n in range(count)))


def collected(hosted: Iterable[int], round_: int, history: History | None = None) -> dict[str, Any]:
    """What Lightning collects on a rank."""
    return {
        "epoch": round_,
        "wandb": "abc",
        "server": {"rule": {"reputations": torch.ones(3)}, "name": "RFFL", "history": history},
        "federation": {
            "identity": {"model": {}},
            "round": round_,
            "total": 3,
            "members": {i: member for i, member in MEMBERS.items() if i in hosted},
            "participants": {i: lambda i=i: state(i, round_) for i in hosted},
        },
    }


ALONE = Disk(leads=True, common=True)


def alone(word: str | None) -> str | None:
    """The agreement of one rank."""
    return word


class Ranks:
    """Ranks that write a checkpoint at the same time, a thread each; one that is killed ends the others."""

    def __init__(self, count: int) -> None:
        self.words: list[str | None] = [None] * count
        self.whole: list[set[Path]] = [set() for _ in range(count)]
        self.mark = ""
        self.meeting = threading.Barrier(count, timeout=30)

    def write(self, *parts: tuple[dict[str, Any], Path]) -> None:
        """Each rank writes what it collected into its folder."""
        places = [target for _, target in parts]
        disks = [Disk(leads=place not in places[:i], common=len({*places}) == 1) for i, place in enumerate(places)]
        with ThreadPoolExecutor(len(parts)) as pool:
            ranks = [pool.submit(self._write, rank, *part, disks[rank]) for rank, part in enumerate(parts)]
        failures = [failure for rank in ranks if (failure := rank.exception()) is not None]
        for failure in sorted(failures, key=lambda one: isinstance(one, threading.BrokenBarrierError)):
            raise failure

    def _write(self, rank: int, part: dict[str, Any], target: Path, disk: Disk) -> None:
        agree, whole = partial(self._agree, rank), self.whole[rank]
        try:
            write(part, target, mark=self.mark, first=rank == 0, disk=disk, whole=whole, agree=agree)
        except CheckpointNotWrittenError:  # which all raise
            raise
        except BaseException:
            self.meeting.abort()
            raise

    def _agree(self, rank: int, word: str | None) -> str | None:
        self.words[rank] = word
        self.meeting.wait()
        heard = next((said for said in self.words if said is not None), None)
        self.meeting.wait()
        return heard


def written(folder: Path, round_: int = 4, other: Path | None = None, ranks: Ranks | None = None) -> Path:
    """A checkpoint of three participants on two ranks, which see the same folder or, the second one, another.

    Of ranks that have written before, or of such as know nothing of what is there.
    """
    ranks = ranks or Ranks(2)
    ranks.mark = os.urandom(8).hex()
    target = folder / "last.ckpt"
    everywhere = collected([0, 2], round_, rounds(folder, round_))
    everywhere["federation"]["members"] = MEMBERS
    second = (collected([1], round_), (other or folder) / "last.ckpt")
    ranks.write((everywhere, target), second)
    return target


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A whole checkpoint."""
    return written(tmp_path)


def test_everything_comes_back(target: Path) -> None:
    """All participants, the server's part and Lightning's; nothing beside the checkpoint stays."""
    whole = kept_in(target)
    assert whole["federation"]["members"] == MEMBERS
    assert whole["federation"]["round"] == whole["epoch"] == 4
    assert repr(whole["federation"]["participants"]) == repr({i: state(i, 4) for i in range(3)})
    assert whole["server"].keys() == {"rule", "name", "history"}
    assert [Round(**entry) for entry in whole["server"]["history"]] == list(rounds(target.parent / "other", 4))
    assert {path.name for path in target.parent.glob("*.*")} == {"last.ckpt", "rounds.jsonl"}
    assert header(target)["round"] == 4
    assert wandb_run(target) == "abc"


@pytest.mark.parametrize("hosted", [[0], [1, 2]])
def test_a_rank_reads_what_it_may_have(target: Path, hosted: list[int]) -> None:
    """Its own participants and nothing of others or of the server: their files may even be missing."""
    for i in {0, 1, 2} - set(hosted):
        (target / f"participant_{i}.pt").unlink()
    (target / "server.pt").unlink()
    mine = load(target, hosted, server=False)
    assert list(mine["federation"]["participants"]) == list(mine["federation"]["members"]) == hosted
    assert "server" not in mine


def test_the_server_knows_all_memberships(target: Path) -> None:
    """Rank 0 follows everybody's, whoever it hosts."""
    mine = load(target, [1], server=True)
    assert mine["federation"]["members"] == MEMBERS
    assert list(mine["federation"]["participants"]) == [1]


def test_a_new_checkpoint_takes_the_place_of_the_old(target: Path) -> None:
    """As a whole, and the one before is kept; also where a file of that name was."""
    assert kept_in(written(target.parent, 5))["epoch"] == 5
    assert sorted(path.name for path in target.parent.glob("*.ckpt")) == ["last.ckpt", "last.previous.ckpt"]
    assert kept_in(target.with_name("last.previous.ckpt"))["epoch"] == 4
    shutil.rmtree(target)
    target.write_text("a file of an earlier release")
    assert kept_in(written(target.parent, 6))["epoch"] == 6


def test_what_is_left_of_a_checkpoint_that_cannot_be_written(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one before is promised where there is none, or not where it is."""

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(CheckpointNotWrittenError, match=r"; the one before is kept\. .* and go on from it\."):
        written(target.parent, 5)
    with pytest.raises(CheckpointNotWrittenError, match=r"; there is none before it\. .* and start again\."):
        written(target.parent / "empty", 1)


@pytest.fixture(params=["hard links", "none"])
def file_system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """One with hard links, and one without."""

    def refuse(*_: Any) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    if request.param == "none":
        monkeypatch.setattr(os, "link", refuse)
    return str(request.param)


def test_checkpoints_share_the_rounds_and_keep_their_own(tmp_path: Path, file_system: str) -> None:
    """Later rounds, and other rounds from the same checkpoint on, do not show in it; the file is not written again."""
    history = rounds(tmp_path, 4)
    everything = collected([0, 1, 2], 4, history)
    everything["federation"]["members"] = MEMBERS
    write(everything, tmp_path / "four.ckpt", first=True, mark="0", disk=ALONE, whole=set(), agree=alone)
    shared = (tmp_path / "rounds.jsonl").samefile(tmp_path / "four.ckpt" / "rounds.jsonl")
    assert shared == (file_system == "hard links")

    def kept() -> list[int]:
        return [entry["number"] for entry in kept_in(tmp_path / "four.ckpt")["server"]["history"]]

    history.append(Round(number=5, honest=2, members=[True] * 3))
    assert ([entry.number for entry in history], history.last, len(history)) == (
        [1, 2, 3, 4, 5],
        Round(number=5, honest=2, members=[True] * 3),
        5,
    )
    assert kept() == [1, 2, 3, 4]
    again = History(tmp_path / "rounds.jsonl", [Round(number=9, honest=2, members=[False] * 3)])
    assert [entry.number for entry in again] == [9]
    assert kept() == [1, 2, 3, 4]


@pytest.mark.parametrize("moment", ["writing", "meeting", "between the renames"])
def test_an_interrupted_write_leaves_the_one_before(target: Path, moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever the power fails; and the next write succeeds."""

    def fail(*_: Any) -> Any:
        raise KeyboardInterrupt

    broken = collected([0, 1, 2], 5)
    if moment == "writing":
        broken["federation"]["participants"][1] = fail
    rename = Path.rename
    with monkeypatch.context() as patch:
        if moment == "between the renames":
            patch.setattr(Path, "rename", lambda a, b: fail() if a.name.endswith(".partial") else rename(a, b))
        agree = fail if moment == "meeting" else alone
        with pytest.raises(KeyboardInterrupt):
            write(broken, target, first=True, mark="0", disk=ALONE, whole=set(), agree=agree)
    assert kept_in(target)["epoch"] == 4
    assert choices(target.parent)[0] == (target if target.exists() else target.with_name("last.previous.ckpt"))
    assert kept_in(written(target.parent, 6))["epoch"] == 6


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_cannot_write_ends_the_write_of_all(target: Path, rank: int) -> None:
    """Every rank hears what the first one says, and the checkpoint before stays."""
    words: list[str | None] = []

    def agree(word: str | None) -> str | None:
        words.append(word)
        return next((said for said in ("No space left on device" if rank == 1 else None, word) if said), None)

    broken = collected([0, 1, 2], 5)
    if rank == 0:
        (target.parent / ".last.ckpt.partial").write_text("no folder")
    with pytest.raises(CheckpointNotWrittenError, match="File exists" if rank == 0 else "No space left on device"):
        write(broken, target, first=True, mark="0", disk=ALONE, whole=set(), agree=agree)
    assert len(words) == 1
    assert kept_in(target)["epoch"] == 4


def test_every_disk_has_its_own_part(tmp_path: Path) -> None:
    """Machines without a file system in common: what a rank may have lies on its own, and nothing else."""
    here, there = tmp_path / "here", tmp_path / "there"
    target = written(here, other=there)
    assert {path.name for path in target.iterdir()} == {
        "run.pt", "server.pt", "rounds.jsonl", "participant_0.pt", "participant_2.pt"
    }  # fmt: skip
    assert {path.name for path in (there / "last.ckpt").iterdir()} == {"run.pt", "participant_1.pt"}
    assert list(load(target, [0, 2], server=True)["federation"]["participants"]) == [0, 2]
    assert list(load(there / "last.ckpt", [1], server=False)["federation"]["participants"]) == [1]
    with pytest.raises(
        UserError, match=r"participant_0\.pt is missing; .* start every rank on the machine that has it"
    ):
        load(there / "last.ckpt", [0], server=False)


def test_a_write_that_one_disk_alone_came_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed before the second disk had it: the one before is on both, and stays when the round is written again."""
    here, there, ranks = tmp_path / "here", tmp_path / "there", Ranks(2)
    written(here, 4, other=there, ranks=ranks)
    rename = Path.rename

    def killed(path: Path, target: Path) -> Path:
        if path == there / ".last.ckpt.partial":
            assert put.wait(30)
            raise KeyboardInterrupt
        done = rename(path, target)
        if path == here / ".last.ckpt.partial":
            put.set()
        return done

    before = stamp_of(there / "last.ckpt")
    for round_ in (7, 5, 9):  # as SIGTERM between two rounds of a cadence has it
        put = threading.Event()
        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", killed)
            with pytest.raises(KeyboardInterrupt):
                written(here, round_, other=there, ranks=ranks if round_ == 7 else None)
        assert stamp_of(here / "last.ckpt").round == round_
        assert before in stamps(here)[0]
        assert before in stamps(there)[0]
    written(here, 8, other=there)
    assert list(stamps(here)[0]) == list(stamps(there)[0])
    assert [stamp.round for stamp in stamps(here)[0]] == [8, 4]


def test_a_disk_that_cannot_put_its_part_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All take theirs back: however often that happens, the last checkpoint of all is the same one."""
    here, there, ranks = tmp_path / "here", tmp_path / "there", Ranks(2)
    for round_ in (3, 4):
        written(here, round_, other=there, ranks=ranks)
    rename = Path.rename

    def refuse(path: Path, target: Path) -> Path:
        if path == there / ".last.ckpt.partial":
            raise OSError(errno.EIO, "Input/output error", str(path))
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", refuse)
        for round_ in (5, 6, 7):
            with pytest.raises(CheckpointNotWrittenError, match="Input/output error"):
                written(here, round_, other=there, ranks=ranks)
            assert stamp_of(here / "last.ckpt") == stamp_of(there / "last.ckpt")
            assert stamp_of(here / "last.ckpt").round == 4
            assert not list(tmp_path.rglob(".last.ckpt.partial"))
    written(here, 8, other=there, ranks=ranks)
    assert [[stamp.round for stamp in stamps(disk)[0]] for disk in (here, there)] == [[8, 4], [8, 4]]


def test_a_disk_without_room_for_parts(tmp_path: Path) -> None:
    """What was not touched stays: the next checkpoint has it before it, not an older one."""
    ranks = Ranks(2)
    for round_ in (3, 4):
        written(tmp_path, round_, ranks=ranks)
    (tmp_path / ".last.ckpt.partial").write_text("no folder")
    with pytest.raises(CheckpointNotWrittenError, match="File exists"):
        written(tmp_path, 5, ranks=ranks)
    written(tmp_path, 6, ranks=ranks)
    assert [stamp.round for stamp in stamps(tmp_path)[0]] == [6, 4]


def test_what_is_wrong_with_an_older_one_is_not_told(tmp_path: Path) -> None:
    """Who goes on from the last one, which is whole, would hear that it goes on from the one before."""
    for round_ in (3, 4):
        written(tmp_path, round_)
    (tmp_path / "last.previous.ckpt" / "run.pt").write_bytes(b"damaged")
    found, wrong = stamps(tmp_path)
    assert ([version.round for version in found], wrong) == ([4], [])
    (tmp_path / "last.ckpt" / "run.pt").write_bytes(b"damaged")
    assert [len(each) for each in stamps(tmp_path)] == [0, 2]


def test_parts_that_do_not_arrive(tmp_path: Path) -> None:
    """Where a mount is lost that all ranks saw before, nothing takes the checkpoint's place that lacks somebody."""
    before = written(tmp_path, 4)
    everywhere = collected([0, 2], 5)
    everywhere["federation"]["members"] = MEMBERS
    with pytest.raises(CheckpointNotWrittenError, match=r"participant_1\.pt of another rank is not in"):
        write(everywhere, before, first=True, mark="0", disk=ALONE, whole=set(), agree=alone)
    assert kept_in(before)["epoch"] == 4


def test_what_is_no_checkpoint(target: Path, tmp_path: Path) -> None:
    """Each way is told in one sentence of its own."""

    def refused(path: Path) -> str:
        with pytest.raises(UserError) as error:
            kept_in(path)
        return str(error.value)

    assert "no such file" in refused(tmp_path / "nowhere.ckpt")
    (tmp_path / "empty").mkdir()
    assert "it has no run.pt; give a folder" in refused(tmp_path / "empty")
    (tmp_path / "empty" / "checkpoints").mkdir()  # the folder of a run
    assert refused(tmp_path / "empty").endswith(f"it has no run.pt; give {tmp_path}/empty/checkpoints.")
    (tmp_path / "notes.txt").write_text("a file of another kind")
    assert "truncated, damaged or no checkpoint" in refused(tmp_path / "notes.txt")
    torch.save(nn.Linear(1, 1).state_dict(), tmp_path / "weights.pt")
    assert "holds no federation" in refused(tmp_path / "weights.pt")
    torch.save({"federation": {}, "server": {}}, tmp_path / "old.ckpt")
    assert "is a file of version 1; go on with the release" in refused(tmp_path / "old.ckpt")
    assert kept_in(target / "run.pt")["epoch"] == 4  # a slip that harms nobody

    def spoilt(name: str, content: Any) -> str:
        whole = tmp_path / "spoilt"
        shutil.rmtree(whole, ignore_errors=True)
        shutil.copytree(target, whole)
        if content is None:
            (whole / name).unlink()
        elif isinstance(content, dict):
            torch.save(torch.load(whole / name, weights_only=True) | content, whole / name)
        else:
            (whole / name).write_bytes((whole / name).read_bytes()[:content])
        return refused(whole)

    assert "participant_1.pt is missing; copy checkpoints as whole folders" in spoilt("participant_1.pt", None)
    assert "server.pt is missing" in spoilt("server.pt", None)
    assert "rounds.jsonl cannot be read (No such file or directory)" in spoilt("rounds.jsonl", None)
    assert "rounds.jsonl is truncated or damaged" in spoilt("rounds.jsonl", -3)
    for name in ("run.pt", "server.pt", "participant_2.pt"):
        for cut in (0, 100, -100):
            assert "truncated, damaged or no checkpoint" in spoilt(name, cut)
        assert f"{name} is of version 4; go on with the release" in spoilt(name, {"version": 4})
        assert f"{name} is not" in spoilt(name, {"format": "another"})
    assert "run.pt is of round 4 and participant_0.pt of round 3" in spoilt("participant_0.pt", {"round": 3})
    another = (
        "run.pt is of round 4 and participant_0.pt was written with another one; copy checkpoints as whole folders"
    )
    assert another in spoilt("participant_0.pt", {"mark": "0"})
    others = r"participant_0\.pt of --ckpt_path .* to be participant 0's, but it is participant 2's; copy"
    assert re.search(others, spoilt("participant_0.pt", {"participant": 2}))


def test_a_run_that_is_going_on_is_read_whole(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a newer checkpoint takes the place of the one that is read, that one is; if every time, it is said."""
    read_part, newer = checkpoint._read, iter([5, 6])

    def overtaken(path: Path, mmap: bool = False) -> Any:
        if path.name == "participant_1.pt" and (round_ := next(newer, None)) is not None:
            written(target.parent, round_)
        return read_part(path, mmap)

    monkeypatch.setattr(checkpoint, "_read", overtaken)
    assert kept_in(target)["epoch"] == 6
    newer = iter(range(7, 99))
    with pytest.raises(UserError, match="to stay the same while it is read, but a run writes newer ones there; wait"):
        kept_in(target)


def test_two_flipped_bytes_are_seen(target: Path) -> None:
    """Wherever they lie: what is read is refused or what was written, and in the values themselves it is refused."""
    path = target / "participant_1.pt"
    whole = path.read_bytes()
    generator = random.Random(1)
    refused = 0
    for _ in range(60):
        spoilt = bytearray(whole)
        for place in generator.sample(range(len(whole)), 2):
            spoilt[place] ^= generator.randrange(1, 256)
        path.write_bytes(spoilt)
        try:
            assert repr(kept_in(target)["federation"]["participants"][1]) == repr(state(1, 4))
        except UserError:
            refused += 1
    assert refused > 30
    values = whole.index(torch.tensor([1.0, 4.0]).numpy().tobytes())
    path.write_bytes(whole[:values] + b"\1\1" + whole[values + 2 :])
    with pytest.raises(UserError, match="damaged"):
        kept_in(target)


def test_a_folder_of_checkpoints_stands_for_the_newest(target: Path) -> None:
    """And for the one before where that one is damaged."""
    written(target.parent, 5)
    assert [path.name for path in choices(target.parent)] == ["last.ckpt", "last.previous.ckpt"]
    assert header(target.parent)["round"] == 5
    (target / "run.pt").write_bytes(b"damaged")
    assert header(target.parent)["round"] == 4


@pytest.mark.parametrize(
    "content", [{"federation": 3}, {"federation": {}}, {"federation": {"participants": "all"}}, {"round": "four"}]
)
def test_content_of_other_types(target: Path, content: dict[str, Any]) -> None:
    """A checkpoint that somebody changed is refused in a sentence."""
    torch.save(torch.load(target / "run.pt", weights_only=True) | content, target / "run.pt")
    with pytest.raises(UserError, match=r"Expected (all files of )?--ckpt_path"):
        kept_in(target)


def test_nothing_in_a_checkpoint_can_run_code(target: Path) -> None:
    """A pickled call is refused, not made."""

    class Call:
        def __reduce__(self) -> Any:
            return (Path.touch, (target.parent / "ran",))

    torch.save(
        {"format": "rffl_pl", "version": VERSION, "round": 4, "participant": Call()}, target / "participant_0.pt"
    )
    with pytest.raises(UserError, match="damaged"):
        kept_in(target)
    assert not (target.parent / "ran").exists()


def made(optimizer: type[torch.optim.Optimizer] = torch.optim.Adam, participants: int = 2, **options: Any) -> Any:
    """An identity."""
    network = nn.Linear(2, 3)
    federation = Federation(participants=participants)
    return identity(network, federation, {"split": "UNI"}, optimizer(network.parameters(), **{"lr": 0.1} | options))


def test_an_optimizer_of_another_torch_is_the_same() -> None:
    """Options that only one of the two knows, or that only say how, and the learning rate do not count; others do."""
    here, there = made(), made(lr=0.3, fused=False, foreach=False)
    del there["training"]["maximize"]
    there["training"]["an option of the future"] = "1"
    check_identity(there, here, training=True)
    with pytest.raises(UserError, match=r"training: betas is \(0\.8, 0\.9\) there and \(0\.9, 0\.999\) here"):
        check_identity(made(betas=(0.8, 0.9)), here, training=True)
    with pytest.raises(UserError, match="training: optimizer is SGD there and Adam here"):
        check_identity(made(torch.optim.SGD), here, training=True)
    check_identity(made(torch.optim.SGD), here, training=False)


def test_another_federation_is_refused() -> None:
    """Training or not."""
    for training in (True, False):
        with pytest.raises(UserError, match="federation: participants is 3 there and 2 here"):
            check_identity(made(participants=3), made(), training=training)
