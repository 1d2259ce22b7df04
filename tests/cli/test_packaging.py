"""The wheel, and what its description says."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from rffl_pl import __version__
from rffl_pl.comparison.page import SCRIPTS
from tests.conftest import QUICK, ROOT, Ended, only_run

CONFIGS = sorted(path.relative_to(ROOT / "configs").as_posix() for path in ROOT.glob("configs/**/*.yaml"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, by way of the source archive and without touching the checkout."""
    work = tmp_path_factory.mktemp("wheel")
    checkout, built = work / "checkout", work / "built"
    checkout.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, checkout)
    for name in ("rffl_pl", "configs"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, checkout / name, symlinks=True, ignore=ignored)
    build = "import sys\nfrom setuptools import build_meta\nbuild_meta.build_{}(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build.format("sdist"), built], cwd=checkout, check=True, capture_output=True)
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(built)  # made above; Python 3.11.0 to 3.11.3 know no filter
    source = archive.with_name(archive.name.removesuffix(".tar.gz"))
    subprocess.run([sys.executable, "-c", build.format("wheel"), built], cwd=source, check=True, capture_output=True)
    (path,) = built.glob("*.whl")
    return path


@pytest.mark.slow
def test_the_wheel_has_all_it_needs(wheel: Path) -> None:
    """Configurations with the content of configs/, the mark of types, the page of runs, the command; no tests."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        for name in CONFIGS:
            assert archive.read(f"rffl_pl/configs/{name}") == (ROOT / "configs" / name).read_bytes()
        entry = archive.read(f"rffl_pl-{__version__}.dist-info/entry_points.txt").decode()
    assert len(CONFIGS) > 20
    assert "rffl_pl/py.typed" in names
    page = {f"rffl_pl/comparison/{name}" for name in ("page.html", "page.css", *(f"{name}.js" for name in SCRIPTS))}
    assert page <= set(names)
    assert "rffl = rffl_pl.cli:main" in entry
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "rffl_pl").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == modules


@pytest.mark.slow
def test_the_wheel_runs_in_an_empty_folder(wheel: Path, tmp_path: Path) -> None:
    """Unpacked, it trains from a configuration's name, and finds a class of the user's beside it."""
    site, empty = tmp_path / "site", tmp_path / "empty"
    shutil.unpack_archive(wheel, site, format="zip")
    empty.mkdir()
    (empty / "mine.py").write_text("from rffl_pl.servers import FedAvg\n\n\nclass Mine(FedAvg):\n    pass\n")
    start = f"import sys; sys.path[0] = {str(site)!r}; from rffl_pl.cli import main; main()"
    words = ["fit", "--config", "digits.yaml", "--config", "servers/fedavg.yaml", "--server", "mine.Mine"]
    ended = subprocess.run(
        [sys.executable, "-c", start, *words, *QUICK, "--trainer.max_epochs", "1"],
        cwd=empty, capture_output=True, text=True, check=False, timeout=180,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    config = yaml.safe_load((only_run(empty / "runs") / "config.yaml").read_text())
    assert config["server"]["class_path"] == "mine.Mine"


def test_a_file_of_the_user_wins(rffl: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A name that the package has too means the file in the user's folder."""
    text = (ROOT / "configs" / "digits.yaml").read_text()
    own = tmp_path / "own"
    own.mkdir()
    (own / "digits.yaml").write_text(text.replace("participants: 5", "participants: 2"))
    monkeypatch.chdir(own)
    assert rffl("fit", "--config", "digits.yaml", *QUICK, "--trainer.max_epochs", 1).code == 0
    config = yaml.safe_load((only_run(tmp_path / "runs") / "config.yaml").read_text())
    assert config["federation"]["participants"] == 2


@pytest.mark.parametrize("name", CONFIGS)
def test_every_configuration_parses(name: str) -> None:
    """It is YAML with keys, and its first line says what it is."""
    text = (ROOT / "configs" / name).read_text()
    assert isinstance(yaml.safe_load(text), dict)
    assert text.startswith("# ")


def test_the_description_agrees_with_itself() -> None:
    """One version in package and citation, a floor that leaves the unsafe releases of lightning out."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__
    assert citation["license"] == project["license"]
    assert citation["references"][0]["url"] == project["urls"]["Paper"]
    assert "lightning>=2.6.6,<2.7" in project["dependencies"]
