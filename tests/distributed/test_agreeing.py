"""Machines with different numbers of GPUs: all ranks use one backend, or wait for each other for ever."""

from __future__ import annotations

import pytest

from tests.ranks import forked

pytestmark = pytest.mark.distributed

NCCL, GLOO = "cpu:gloo,cuda:nccl", "gloo"
NOTE = "Not every rank has a GPU of its own: the exchange runs on gloo instead of NCCL."


def test_ranks_that_were_given_one_gpu() -> None:
    """Each by a launcher of its own: NCCL refuses them, and the run ended as if another rank were gone."""
    ended = forked(2, f"{NCCL} GPU-1", f"{NCCL} GPU-1", module="tests.distributed.agreeing")
    assert ended.code == 0, ended.err
    assert sorted(ended.out.splitlines()) == ["0: gloo", "1: gloo"]
    assert "2 ranks share 1 GPU(s), where 1 would have one each: the exchange runs on gloo" in ended.err


@pytest.mark.parametrize("offered", [(NCCL, GLOO), (GLOO, NCCL), (NCCL, NCCL), (GLOO, GLOO)])
def test_ranks_agree_on_a_backend(offered: tuple[str, str]) -> None:
    """Gloo, unless all have NCCL; the run says so where somebody has to do without, and only there."""
    ended = forked(2, *offered, module="tests.distributed.agreeing")
    assert ended.code == 0, ended.err
    agreed = NCCL if offered == (NCCL, NCCL) else GLOO
    assert sorted(ended.out.splitlines()) == [f"0: {agreed}", f"1: {agreed}"]
    assert (NOTE in ended.err) == (len(set(offered)) > 1)
