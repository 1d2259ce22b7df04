"""What happens in the middle of writing."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import pytest
import torch

from rffl_pl.launch.stopping import Stopped
from rffl_pl.runs import checkpoint, durable


class Ended:
    """A file in whose second write somebody asks for the end, as by Ctrl-C."""

    def __init__(self, file: BinaryIO, how: BaseException) -> None:
        self.file, self.how, self.writes = file, how, 0

    def write(self, data: Any) -> int:
        self.writes += 1
        if self.writes == 2:
            raise self.how
        return self.file.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


@pytest.mark.parametrize("how", [KeyboardInterrupt(), Stopped(15)], ids=["Ctrl-C", "SIGTERM"])
def test_an_end_in_the_middle_of_writing(tmp_path: Path, how: BaseException) -> None:
    """torch makes an error of its own of it, and a disk without room was told of."""
    whole = torch.ones(2)

    def save(file: BinaryIO) -> None:
        torch.save(whole, Ended(file, how))

    with pytest.raises(RuntimeError, match="unexpected pos"), (tmp_path / "plain").open("wb") as file:
        save(file)  # or this test would test nothing
    with pytest.raises(type(how)):
        durable.put([(tmp_path / "weights.pt", save)])
    assert [path.name for path in tmp_path.iterdir()] == ["plain"]

    def work() -> None:
        with (tmp_path / "part").open("wb") as file:
            save(file)

    with pytest.raises(type(how)):
        checkpoint._failure(tmp_path / "last.ckpt", work)


@pytest.mark.parametrize("count", [0, 3, 100])
def test_what_is_removed(tmp_path: Path, count: int) -> None:
    """A folder that is a link is another's: its files stay. What is not there is removed already."""
    there = tmp_path / "checkpoint"
    (there / "deeper").mkdir(parents=True)
    for number in range(count):
        (there / f"participant_{number}.pt").write_text("part")
        (there / "deeper" / f"{number}").write_text("part")
    (tmp_path / "link").symlink_to(there)
    durable.remove(tmp_path / "link")
    assert len([*there.iterdir()]) == count + 1
    for _ in range(2):
        durable.remove(there)
        assert [*tmp_path.iterdir()] == []
    (tmp_path / "file").write_text("part")
    durable.remove(tmp_path / "file")
    assert [*tmp_path.iterdir()] == []
