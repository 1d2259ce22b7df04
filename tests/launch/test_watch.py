"""The watch: signs of life through a real store, in one process."""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta

import pytest
import torch.distributed as dist

from rffl_pl.launch import meeting, network, watch
from rffl_pl.launch.watch import Heartbeats


def test_who_is_silent_is_given_up_and_who_speaks_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long a round takes; and whoever was stopped itself does not take the others for dead."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    store = dist.HashStore()
    three = [Heartbeats(lambda: store, rank, 3, patience=60) for rank in range(3)]
    three[0].round = 17

    def given_up(seconds: int, alive: range) -> list[watch.Ending]:
        ends = []
        for _ in range(seconds):
            now[0] += 1
            ends += [ending for rank in alive if (ending := three[rank]()) is not None]
        return ends

    assert given_up(1000, range(3)) == []
    assert given_up(50, range(2)) == []
    first = given_up(20, range(2))[0]
    assert first.code == 1
    assert first.sentence.startswith("Rank 2 has not been heard of for 60 s, in round 17")
    now[0] += 500  # this process was stopped, and so were the others
    assert three[2]() is None


def test_between_runs_nobody_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is over: what a program does then is its own, and who has left is needed again in the next run alone."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    store = dist.HashStore()
    here, there, third = (Heartbeats(lambda: store, rank, 3, patience=60) for rank in range(3))

    def seconds(count: int, *alive: Callable[[], watch.Ending | None]) -> list[watch.Ending]:
        ends = []
        for _ in range(count):
            now[0] += 1
            ends += [ending for beat in alive if (ending := beat()) is not None]
        return ends

    for one in (here, there, third):
        assert seconds(10, here, there, third) == []
        one.end(failed=False)
    assert seconds(300, here.between_runs, there.between_runs) == []
    third.begin(60)
    assert seconds(300, here.between_runs, there.between_runs, third) == []  # it waits for them
    here.leave()
    assert seconds(300, there.between_runs, third) == []  # as in what is left of its run
    third.begin(60)
    assert seconds(70, there.between_runs, third)[0].sentence.startswith("Rank 0 has not been heard of for 60 s")


def test_who_failed_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It leaves as others do, and these may be in the middle of the run."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    store = dist.HashStore()
    here, there = (Heartbeats(lambda: store, rank, 2, patience=60) for rank in range(2))
    here.end(failed=True)
    here.leave()
    ends = []
    for _ in range(80):
        now[0] += 1
        ends.append(there())
    assert any(ends)


@pytest.mark.slow
def test_a_store_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its machine is, or the way there; what it answers late is not taken for an answer."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    server: dist.TCPStore | None = dist.TCPStore("127.0.0.1", 0, None, True, timedelta(seconds=2))
    assert server is not None
    port = server.port
    beats = Heartbeats(lambda: dist.TCPStore("127.0.0.1", port, None, False, timedelta(seconds=1)), 0, 1, patience=12)
    for _ in range(30):
        now[0] += 1
        assert beats() is None
    server = None
    ends = []
    for _ in range(16):
        now[0] += 1
        ends.append(beats())
    told = [ending.sentence for ending in ends if ending is not None]
    assert told
    assert told[0].startswith("The launcher's store has not been heard of for 12 s")


def test_who_failed_and_works_on_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that caught the error and went on said that it was alive, and the others waited for hours."""
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    store = dist.HashStore()
    here, there = (Heartbeats(lambda: store, rank, 2, patience=60) for rank in range(2))
    ends: list[watch.Ending] = []
    there.end(failed=True)
    for _ in range(90):
        now[0] += 1
        there.between_runs()
        if (ending := here()) is not None:
            ends.append(ending)
    assert ends[0].sentence.startswith("Rank 1 has not been heard of for 60 s")
    for one in (here, there):
        one.begin(60)
    for _ in range(300):
        now[0] += 1
        assert here() is there() is None


def test_a_store_that_is_gone_between_runs_is_not_asked_again() -> None:
    """Torch told of it every ten seconds while a program worked on, and its end waited for it."""
    asked: list[str] = []

    class Gone:
        def set(self, key: str, value: str) -> None:
            asked.append(key)
            if len(asked) > 1:
                raise RuntimeError("broken pipe")

        def multi_get(self, keys: list[str]) -> list[bytes]:
            return [b"1"] * len(keys)

    beats = Heartbeats(Gone, 0, 2, patience=60)
    beats.end(failed=False)
    for _ in range(5):
        assert beats.between_runs() is None
    beats.leave()
    assert len(asked) == 2
    beats.begin(60)
    beats.end(failed=False)
    beats.between_runs()
    assert len(asked) == 3


class Mute(dist.HashStore):
    """A store beyond a network that is gone: it neither answers nor fails."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()

    def multi_get(self, keys: list[str]) -> list[bytes]:
        self.asked.wait()
        return []


def test_a_store_that_neither_answers_nor_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has lost its network waited for an answer for ever, and its run with it."""
    monkeypatch.setattr(watch, "_ANSWER", 0.05)
    store = Mute()
    try:
        one, ends = Heartbeats(lambda: store, 0, 2, patience=0.3), list[watch.Ending]()
        one.begin(0.3)
        until = time.monotonic() + 20
        while not ends and time.monotonic() < until:
            ends += [ending for ending in [one()] if ending is not None]
            time.sleep(0.01)
        assert ends[0].sentence.startswith("The launcher's store has not been heard of for 0.3 s")
    finally:
        store.asked.set()


def test_who_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody hears of it who waits for a connection, for which there is half a day."""
    monkeypatch.setenv("MASTER_ADDR", "first.example")
    monkeypatch.setenv("MASTER_PORT", "29500")
    store = dist.HashStore()
    check = meeting.absent(lambda: store)
    assert check() is None
    meeting.leave_absence(store, "Expected eth7 to be there.")
    assert check() == watch.Ending("Expected eth7 to be there.", 2)

    def refused() -> dist.Store:
        raise dist.DistNetworkError("Connection refused")

    ending = meeting.absent(refused)()
    assert ending is not None
    assert (ending.code, "first.example:29500 has gone" in ending.sentence) == (1, True)


@pytest.mark.parametrize(
    ("met", "expected"),
    [
        ("[device.cc:84] ifa != nullptr. Unable to find address for: eth7", "GLOO_SOCKET_IFNAME to name a network"),
        (
            "timed out connecting: SO_ERROR: refused, remote=[127.0.0.1]:29576$0",
            "nobody answers at 127.0.0.1, port 29576;",
        ),
        ("timed out connecting: SO_ERROR: refused, remote=[fe80::1]:29576$0", "nobody answers at fe80::1, port 29576;"),
        ("Connection closed by peer", "but RuntimeError: Connection closed by peer; give every machine"),
    ],
)
def test_who_reaches_nobody(met: str, expected: str) -> None:
    """The network that its messages go by is the first thing to look at."""
    assert expected in meeting.why_not_connected(RuntimeError(met))


def test_networks_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its name leads is what gloo goes by, unless somebody names a network."""
    monkeypatch.delenv(network.NAMED, raising=False)
    monkeypatch.setattr(socket, "gethostname", lambda: "localhost")
    assert network.unreached()
    monkeypatch.setattr(socket, "gethostname", lambda: "nobody.invalid")
    assert network.unreached()
    monkeypatch.setenv(network.NAMED, "eth0")
    assert not network.unreached()
    assert [network.address_of(host) for host in ("localhost", "nobody.invalid", "10.1.2.3")] == ["", "", "10.1.2.3"]
    assert network.towards("127.0.0.1") == ("lo" if sys.platform == "linux" else None)


def test_what_a_process_leaves_that_ends_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It tidies up, and ends though that fails."""
    monkeypatch.setattr(watch.os, "_exit", lambda code: done.append(code))
    done: list[object] = []

    def failing() -> None:
        done.append("tried")
        raise OSError

    with watch.tidied(failing):
        watch.leave(3)
    watch.leave(4)
    assert done == ["tried", 3, 4]
