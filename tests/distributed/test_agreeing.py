"""Machines with different numbers of GPUs: all ranks use one backend, or wait for each other for ever."""

from __future__ import annotations

import pytest

from tests.ranks import forked

pytestmark = pytest.mark.distributed

NCCL, GLOO = "cpu:gloo,cuda:nccl", "gloo"
NOTE = "Not every rank has a GPU of its own: the exchange runs on gloo instead of NCCL on all."


@pytest.mark.parametrize("offered", [(NCCL, GLOO), (GLOO, NCCL), (NCCL, NCCL), (GLOO, GLOO)])
def test_ranks_agree_on_a_backend(offered: tuple[str, str]) -> None:
    """Gloo, unless all have NCCL; the run says so where somebody has to do without, and only there."""
    ended = forked(2, *offered, module="tests.distributed.agreeing")
    assert ended.code == 0, ended.err
    agreed = NCCL if offered == (NCCL, NCCL) else GLOO
    assert sorted(ended.out.splitlines()) == [f"0: {agreed}", f"1: {agreed}"]
    assert (NOTE in ended.err) == (len(set(offered)) > 1)
