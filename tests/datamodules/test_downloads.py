"""Real archives in their official layouts, downloaded from a server on this machine."""

from __future__ import annotations

import functools
import os
import shutil
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rffl_pl.datamodules import MR, SST, reviews
from rffl_pl.errors import UserError
from rffl_pl.federation import Federation

DATA = os.environ.get("RFFL_DATA_DIR")
pytestmark = pytest.mark.skipif(not DATA, reason="RFFL_DATA_DIR, the folder with MR and SST, is not set")
both_sets = pytest.mark.parametrize(
    ("kind", "url", "files"),
    [(MR, "_MR_URL", "MR/rt-polaritydata"), (SST, "_SST_URL", "SST/trees")],
    ids=["MR", "SST"],
)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder and the address under which it is served."""
    served = tmp_path / "served"
    served.mkdir()
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(served))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        threading.Thread(target=http.serve_forever, daemon=True).start()
        yield served, f"http://127.0.0.1:{http.server_port}"
        http.shutdown()


@pytest.mark.slow
@both_sets
def test_an_absent_data_set_is_downloaded(
    kind: type[MR] | type[SST], url: str, files: str, server: tuple[Path, str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A broken archive is said and leaves nothing in the way of the whole one, which makes the data set usable."""
    served, address = server
    archive = served / getattr(reviews, url).rpartition("/")[2]
    form, name = ("gztar", archive.name.removesuffix(".tar.gz")) if kind is MR else ("zip", archive.stem)
    assert DATA is not None
    source = Path(DATA, files).resolve()
    shutil.make_archive(str(served / name), form, root_dir=source.parent, base_dir=source.name)
    monkeypatch.setattr(reviews, url, f"{address}/{archive.name}")
    data = kind(Federation(participants=2), data_dir=str(tmp_path / "data"))

    whole = archive.read_bytes()
    archive.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"is (missing|damaged).* and the download failed"):
        data.prepare_data()
    archive.write_bytes(whole)
    data.prepare_data()
    assert sorted(path.name for path in (tmp_path / "data").rglob("*") if path.is_file()) == sorted(
        path.name for path in source.iterdir()
    )
    data.setup("fit")
    assert sum(data.shard_sizes) > 7000
