"""What a cell is found again by."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from rffl_pl.cli.configurations import with_files
from rffl_pl.cli.resolve import Resolver
from rffl_pl.errors import UserError
from rffl_pl.runs import written
from rffl_pl.runs.checkpoint import RUN
from rffl_pl.runs.imports import beside
from rffl_pl.studies import cells, own
from rffl_pl.studies.cells import Cell, CellFolder, cells_of
from rffl_pl.studies.own import digest_of, named_in, own_in
from rffl_pl.studies.settings import settings_digest
from rffl_pl.studies.study import Study
from tests.conftest import ROOT

RESOLVE = Resolver()
TEXT = "--config digits.yaml --data TextFile --data.text review --data.label stars --data.train_file"


def digest(words: str, seed: int = 1, rounds: int | None = None) -> str:
    """Of a study's only cell."""
    study = Study(name="one", base=words.split(), axes={"axis": {"label": []}}, seeds=[])
    (cell,) = cells_of(study, [seed], rounds, RESOLVE)
    return cell.digest


def test_the_same_run_has_the_same_digest_however_it_is_said() -> None:
    """Names and paths of classes, overlays and options, the seed's place, and where results and data lie."""
    plain = digest("--config digits.yaml --server FedAvg")
    for words in (
        "--config digits.yaml --server rffl_pl.servers.FedAvg",
        "--config digits.yaml --config servers/fedavg.yaml",
        "--config digits.yaml --server FedAvg --run.wandb false --run.figures false",
        "--config digits.yaml --server FedAvg --trainer.enable_progress_bar false --standalone.cache_dir there",
    ):
        assert digest(words) == plain, words
    assert digest("--config mnist.yaml") == digest("--config mnist.yaml --data.data_dir elsewhere")


def test_another_run_has_another_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options, of the trainer and the reference too, seeds, rounds, the code and torch make it another one."""
    base = "--config digits.yaml --server FedAvg"
    options = ("model.local_epochs 2", "trainer.precision bf16-mixed", "standalone.enabled false", "data.watch test")
    different = [digest(base), digest(base, seed=2), digest(base, rounds=3)]
    different += [digest(f"{base} --{option}") for option in options]
    with monkeypatch.context() as other:
        other.setattr("torch.__version__", "9.9")
        different.append(digest(base))
    monkeypatch.setattr(cells, "code", lambda: "another")
    different.append(digest(base))
    assert len(set(different)) == len(different)


def test_the_users_files_and_classes_count_by_their_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same file elsewhere is the same data; a changed one is not."""
    for name, content in {"a.csv": "review,stars\n1,2\n", "b.csv": "review,stars\n1,2\n", "c.csv": "x"}.items():
        (tmp_path / name).write_text(content)
    a, b, c = (digest(f"{TEXT} {tmp_path / name}") for name in ("a.csv", "b.csv", "c.csv"))
    assert a == b != c
    monkeypatch.syspath_prepend(tmp_path)
    source = "from rffl_pl.servers import FedAvg\n\n\nclass Mine(FedAvg):\n    pass\n"
    (tmp_path / "mine_for_studies.py").write_text(source)
    words = "--config digits.yaml --server mine_for_studies.Mine"
    before = digest(words)
    assert digest(words) == before
    (tmp_path / "mine_for_studies.py").write_text(source + "# changed\n")
    assert digest(words) != before


def test_a_configuration_is_read_once_for_all_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A study's places name it thousands of times; one that has changed meanwhile is another."""
    asked: list[str] = []
    load = yaml.safe_load

    def counted(text: str) -> Any:
        asked.append(text)
        return load(text)

    monkeypatch.setattr(own.yaml, "safe_load", counted)
    (tmp_path / "a.csv").write_text("review,stars\n1,2\n")
    mine = tmp_path / "mine.yaml"
    for remark in ("# once", "# and changed"):
        mine.write_text(f"{remark}\ndata: {{class_path: TextFile, init_args: {{train_file: {tmp_path}/a.csv}}}}\n")
        (first, *others) = [named_in(["--config", str(mine), "--server", name]) for name in ("FedAvg", "RFFL", "CFFL")]
        assert first
        assert others == [first, first]
    assert len(asked) == 2


def test_files_of_participants_count_by_their_content(tmp_path: Path) -> None:
    """One hospital's rows are mended, and a cell of the earlier ones is taken for one of these."""
    words = "--config digits.yaml --data TextFile --data.split OWN --data.test_file a.csv --data.train_file"
    for folder in ("[1]", "moved"):
        (tmp_path / folder).mkdir()
        for i in range(2):
            (tmp_path / folder / f"train_{i}.csv").write_text(f"text,label\na,{i}\n")
    here, moved = (f"{words} {tmp_path / folder / 'train_{participant}.csv'}" for folder in ("[1]", "moved"))
    before = changed(here)
    assert changed(moved) == before
    (tmp_path / "[1]" / "train_1.csv").write_text("text,label\nb,1\n")
    assert changed(here) != before


def test_folders_that_the_data_names_count_by_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other images are the same data, or a folder that only has a class's or word's name makes it other data."""
    (tmp_path / "pictures" / "train" / "cat").mkdir(parents=True)
    picture = tmp_path / "pictures" / "train" / "cat" / "1.png"
    picture.write_bytes(b"1")
    monkeypatch.chdir(tmp_path)
    words = f"--config {ROOT / 'rffl_pl/configs/digits.yaml'} --data ImageFolder --data.folder"
    before = digest(f"{words} pictures")
    assert digest(f"{words} {tmp_path / 'pictures'}") == before
    (picture.parent / ".thumbnails").write_bytes(b"2")
    (tmp_path / "rgb").mkdir()  # as --data.channels says
    assert changed(f"{words} pictures") == before
    picture.write_bytes(b"22")
    another = changed(f"{words} pictures")
    picture.rename(picture.with_name("2.png"))
    assert len({before, another, changed(f"{words} pictures")}) == 3
    monkeypatch.chdir(ROOT)
    plain = digest("--config mnist.yaml")
    assert digest(f"--config mnist.yaml --data.data_dir {tmp_path}") == plain


def test_files_and_folders_of_data_of_ones_own_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever their options are called: of a class of one's own nobody else knows which of them name data."""
    (tmp_path / "own_for_studies.py").write_text(
        "from rffl_pl.datamodules import Digits\n\n\nclass Mine(Digits):\n"
        "    def __init__(self, federation, *, data_dir: str = '', site: str = '', **kwargs):\n"
        "        super().__init__(federation, **kwargs)\n"
    )
    for name in ("clean", "noisy"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "points.pt").write_text(name)
    (tmp_path / "digits.yaml").write_text((ROOT / "rffl_pl/configs/digits.yaml").read_text())
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    words = "--config digits.yaml --data own_for_studies.Mine"
    for option in ("data_dir", "site"):
        clean, noisy = (digest(f"{words} --data.{option} {name}") for name in ("clean", "noisy"))
        named = named_in(f"{words} --data.{option} clean".split())
        (tmp_path / "clean" / "points.pt").write_text(f"changed for {option}")
        assert len({clean, noisy, changed(f"{words} --data.{option} clean")}) == 3
        assert named_in(f"{words} --data.{option} clean".split()) != named


def test_files_that_other_options_name_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server's table, and a configuration whatever its name ends with: tables take the mean of two versions."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t").write_text("1\n")
    (tmp_path / "mine.json").write_text('{"model": {"local_epochs": 1}}')
    axes = {"axis": {"a": ["--server.table", "t"], "b": ["--config", "mine.json"]}}
    read = Study(name="one", base=[], axes=axes, seeds=[])

    def digests() -> list[str]:
        return [settings_digest(read, {"axis": label}) for label in "ab"]

    before = digests()
    (tmp_path / "t").write_text("0\n")
    (tmp_path / "mine.json").write_text('{"model": {"local_epochs": 9}}')
    assert all(old != new for old, new in zip(before, digests(), strict=True))


def test_where_a_cell_goes_on(tmp_path: Path) -> None:
    """In the folder of the newest checkpoint and of the one before, which stands in for it where it is damaged."""
    for number, name in enumerate(("first", "second")):
        for checkpoint in ("last.ckpt", "last.previous.ckpt"):
            folder = tmp_path / "cell" / name / "checkpoints" / checkpoint
            folder.mkdir(parents=True)
            (folder / RUN).touch()
            os.utime(folder, (number, number))
        (tmp_path / "cell" / name / "config.yaml").touch()
    assert CellFolder(tmp_path, "cell").checkpoints() == tmp_path / "cell" / "second" / "checkpoints"


def test_how_long_all_attempts_took(tmp_path: Path) -> None:
    """A cell that failed or was interrupted begins to count anew, and the next study expects it to be short."""
    folder = CellFolder(tmp_path, "a")
    folder.path.mkdir()
    folder.note(1.5, ["fit"])
    folder.fail("It broke.")
    assert (folder.record()["seconds"], folder.record()["failed"]) == (1.5, "It broke.")
    folder.note(2.25, ["fit"])
    assert folder.record()["seconds"] == 3.75
    assert "failed" not in folder.record()


def test_all_of_a_users_package_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a class imports from its own package changes, and its old results are taken for new ones."""
    package = tmp_path / "package_for_studies"
    (package / "inner").mkdir(parents=True)
    for name in ("__init__.py", "inner/__init__.py"):
        (package / name).write_text("")
    (package / "server.py").write_text("from rffl_pl.servers import FedAvg\n\n\nclass Mine(FedAvg):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    words = "--config digits.yaml --server package_for_studies.server.Mine"
    before = digest(words)
    assert changed(words) == before
    (package / "inner" / "helper.py").write_text("share = 0.3\n")
    assert changed(words) != before


def test_what_a_users_file_imports_from_beside_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At any remove and in any form of import, in a circle too; what it does not import is not part of it."""
    mine = "from rffl_pl.servers import FedAvg\nfrom helper_for_studies import SCALE\n\n\nclass Scaled(FedAvg):\n"
    written = {
        "beside_for_studies.py": f"import torch\n{mine}    scale = SCALE\n",
        "helper_for_studies.py": "def scale():\n    import tools_for_studies.inner\n\n\nSCALE = 1\n",
        "tools_for_studies/__init__.py": "import beside_for_studies\n",
        "tools_for_studies/inner.py": "from . import deep\nfrom ..nowhere import nothing\n",
        "tools_for_studies/deep.py": "import damaged_for_studies\n",
        "damaged_for_studies.py": "no Python\n",
        "unrelated_for_studies.py": "",
        "tools_for_studies/unrelated.py": "",
    }
    (tmp_path / "tools_for_studies").mkdir()
    for name, source in written.items():
        (tmp_path / name).write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    words = "--config digits.yaml --server beside_for_studies.Scaled"
    digests = [digest(words)]
    for name, source in written.items():
        (tmp_path / name).write_text(f"{source}# changed\n")
        digests.append(digest(words))
        assert (digests[-1] == digests[-2]) == ("unrelated" in name), name


def test_what_a_users_package_imports_from_beside_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package in a folder with helpers of its user's is no more than they are."""
    (tmp_path / "scaled_for_studies").mkdir()
    (tmp_path / "scaled_for_studies" / "__init__.py").write_text("from scale_for_studies import Mine\n")
    helper = tmp_path / "scale_for_studies.py"
    helper.write_text("from rffl_pl.servers import FedAvg\n\n\nclass Mine(FedAvg):\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    words = "--config digits.yaml --server scaled_for_studies.Mine"
    before = digest(words)
    helper.write_text(helper.read_text() + "# changed\n")
    assert changed(words) != before


def test_files_without_helpers_keep_their_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Theirs is that of their bytes, as before their imports counted: what is finished stays so."""
    file, package = tmp_path / "lone_for_studies.py", tmp_path / "lone_package_for_studies"
    package.mkdir()
    (tmp_path / "unrelated_for_studies.py").write_text("")
    for place in (file, package / "__init__.py", package / "inner.py"):
        place.write_text("import json\nfrom collections import abc\nimport torch\nfrom rffl_pl.servers import FedAvg\n")
    bytes_of = hashlib.sha256(file.read_bytes()).hexdigest()
    monkeypatch.syspath_prepend(tmp_path)
    assert own.source_of("lone_for_studies") == bytes_of
    assert own.source_of("lone_package_for_studies") == digest_of([("__init__.py", bytes_of), ("inner.py", bytes_of)])
    for name in ("functools", "yaml"):  # what is installed has all the rest of that beside it
        found = importlib.util.find_spec(name)
        assert found is not None
        assert found.origin is not None
        assert beside([Path(found.origin)], Path(found.origin).parents[name == "yaml"]) == {}


def changed(words: str) -> str:
    """The digest in another process: one reads a folder once."""
    own._listing.cache_clear()
    own._code_in.cache_clear()
    return digest(words)


def test_code_that_is_gone_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python knows a module that it has loaded by its file, also when there is none any more."""
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "gone_for_studies.py"
    file.write_text("class Mine: a = 1\n")
    importlib.import_module("gone_for_studies")
    words = ["--server", "gone_for_studies.Mine"]
    before = own_in(words)
    assert own.changed(words, before) == []
    file.unlink()
    assert own.changed(words, before) == [str(file)]


def test_what_words_name_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables take the mean of what two versions of a class, or of a file of the data, have made."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "named_for_studies.py").write_text("class Mine: a = 1\n")
    (tmp_path / "texts.csv").write_text("text,label\n")
    (tmp_path / "own.yaml").write_text("server: {class_path: named_for_studies.Mine}\ndata: {train_file: texts.csv}\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    ways = (
        ["--server", "named_for_studies.Mine"],
        ["--server=named_for_studies.Mine"],
        ["--trainer.callbacks", '[{"class_path": "named_for_studies.Mine"}]'],
        ["--data.train_file", "texts.csv"],
        ["--config", "own.yaml"],
        ["--config", "~/own.yaml"],
        ["--config=own.yaml"],
        ["--config", '{"server": {"class_path": "named_for_studies.Mine"}, "data": {"train_file": "texts.csv"}}'],
    )
    before = [named_in(words) for words in ways]
    assert all(before)
    assert before[0] == before[1] == before[2]
    assert all(named == [*before[0], *before[3]] for named in before[4:])
    (tmp_path / "named_for_studies.py").write_text("class Mine: a = 2\n")
    (tmp_path / "texts.csv").write_text("text,label\nx,1\n")
    for words, old in zip(ways, before, strict=True):
        assert named_in(words) != old, words
    assert named_in(["--data.train_file", "/" + 300 * "x", "--data", '{"test_file": ""}']) == []
    package = ["--config", "digits.yaml", "--server", "rffl_pl.servers.FedAvg", "--model.optimizer", "torch.optim.Adam"]
    package += [
        "--server.gamma",
        "0.5",
        "--run.name",
        "a.b",
        "--data.data_dir",
        str(tmp_path),
        "--standalone.cache_dir",
        ".",
    ]
    assert named_in(package) == []


def test_a_function_of_ones_own_counts_by_how_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Edited, the result of the function as it was came back under what it says now, and nothing was run."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "net_for_studies.py").write_text(
        "from collections.abc import Callable\n\nfrom torch import Tensor, nn\n\n\nclass Net(nn.Linear):\n"
        "    def __init__(self, act: Callable[[Tensor], Tensor]):\n        super().__init__(64, 10)\n"
    )
    words = "--config digits.yaml --model.network net_for_studies.Net --model.network.act act_for_studies.f"
    digests = []
    for made in ("x", "-x", "x"):
        (tmp_path / "act_for_studies.py").write_text(f"def f(x):\n    return {made}\n")
        digests.append(digest(words))
    assert digests[0] == digests[2] != digests[1]


def test_a_date_in_a_configuration(tmp_path: Path) -> None:
    """YAML has dates where other formats have texts."""
    one = Study(name="one", base=["--config", str(tmp_path / "dated.yaml")], axes={"axis": {"label": []}}, seeds=[])
    digests = []
    for day in (1, 2, 1):
        (tmp_path / "dated.yaml").write_text(f"run: {{wandb_project: 2024-01-0{day}}}\n")
        digests.append(settings_digest(one, one.places()[0]))
    assert digests[0] == digests[2] != digests[1]


def cell_of(words: str, **about: Any) -> Cell:
    """A study's only cell, or one of all."""
    study = Study(name="one", base=words.split(), axes={"axis": {"label": []}}, seeds=[], **about)
    return cells_of(study, [1], None, RESOLVE)[0]


def test_how_many_rounds_a_cell_has() -> None:
    """Epochs or steps, whichever come first; a study has no run without an end."""
    for words, rounds in (
        ("--trainer.max_epochs 7", 7),
        ("--trainer.max_epochs 7 --trainer.max_steps 3", 3),
        ("--trainer.max_epochs -1 --trainer.max_steps 3", 3),
        ("--trainer.max_epochs null --trainer.max_steps 3", 3),
    ):
        assert cell_of(f"--config digits.yaml {words}").rounds == rounds
    study = Study(
        name="one", base=["--config", "digits.yaml", "--trainer.max_steps", "3"], axes={"axis": {"label": []}}, seeds=[]
    )
    (longer,) = cells_of(study, [1], 6, RESOLVE)
    assert longer.rounds == 6  # which were cut at what a base says
    for number in ("null", "-1"):
        given = f"--config digits.yaml --trainer.max_epochs {number}"
        with pytest.raises(
            UserError, match=rf"--trainer\.max_epochs in one to be a number of rounds, but got {number}"
        ):
            cell_of(given.replace("null", "-1") if number == "-1" else given)


def test_a_cell_never_begins_where_its_configuration_does(tmp_path: Path) -> None:
    """That of a run that went on from another names its checkpoint."""
    cell = cell_of("--config digits.yaml")
    assert CellFolder(tmp_path, cell.digest).words(cell)[-2:] == ["--ckpt_path", "null"]


def test_how_an_optimizer_computes_its_steps_is_no_setting(tmp_path: Path) -> None:
    """Results that were run with the slower of the same steps are kept."""
    digests = []
    for options in ("{lr: 0.1}", "{lr: 0.1, fused: true}", "{lr: 0.2}"):
        file = tmp_path / "c.yaml"
        file.write_text(f"model: {{optimizer: {{class_path: torch.optim.Adam, init_args: {options}}}}}\n")
        study = Study(name="one", base=["--config", str(file)], axes={"axis": {"label": []}}, seeds=[])
        digests.append(settings_digest(study, {"axis": "label"}))
    assert digests[0] == digests[1] != digests[2]


def test_which_code_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell is another run with other code, but for that of rooms that no result depends on, and another torch."""
    monkeypatch.setattr(written, "_PACKAGE", tmp_path)

    def now(*beside: str) -> str:
        written.code.cache_clear()
        return written.code(*beside)

    for room in ("functional", "stack", "cli", "studies"):
        (tmp_path / room).mkdir()
        (tmp_path / room / "x.py").write_text("x = 1")
    found = [now()]
    for room in ("functional", "stack", "cli", "studies"):
        (tmp_path / room / "x.py").write_text("x = 2")
        found.append(now())
    assert len({*found[:3]}) == 3
    assert found[2] == found[3] == found[4]
    less = now("stack")
    (tmp_path / "stack" / "x.py").write_text("x = 3")
    assert now("stack") == less != now()
    written.code.cache_clear()
    before = digest("--config digits.yaml")
    monkeypatch.setattr(cells.torch, "__version__", "another")
    assert digest("--config digits.yaml") != before
    written.code.cache_clear()


def test_the_command_is_read_as_the_whole_line_is() -> None:
    """The parser of ``fit`` alone makes other options of its words than the one above it, which is passed by."""
    words = [
        "--config",
        "digits.yaml",
        "--config",
        "servers/krum.yaml",
        "--adversaries+=Fang",
        "--model.engine",
        "loop",
    ]
    options = RESOLVE(words)
    assert RESOLVE._cli is not None
    parser = RESOLVE._cli.parser
    whole = parser.dump(parser.parse_args(with_files(["fit", *words])), format="json", skip_validation=True)
    assert json.loads(whole)["fit"] == options


def test_a_namespace_that_python_finds_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker, whose folders are others than the study's, took it for code that has changed."""
    (tmp_path / "spaced").mkdir()
    (tmp_path / "spaced" / "mine.py").write_text("class Mine: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    once = own.source_of("spaced")
    monkeypatch.syspath_prepend(tmp_path / ".." / tmp_path.name)
    assert own.source_of("spaced") == once
