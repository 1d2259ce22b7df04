"""Which runs words mean, and what is said of those that are left out."""

from __future__ import annotations

import gzip
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rffl_pl.comparison import at_hand, chosen
from rffl_pl.comparison.measures import check_common
from rffl_pl.comparison.page import content, write
from rffl_pl.comparison.reading import names as named
from rffl_pl.comparison.reading import read, seconds
from rffl_pl.comparison.rounds import played
from rffl_pl.errors import UserError
from rffl_pl.runs import Round, RunFolder
from tests.comparison.runs import copy
from tests.conftest import Ended


def names(words: list[object]) -> list[str]:
    return [result.path.parent.name for result in chosen([str(word) for word in words])[0]]


@pytest.mark.slow
def test_folders_above_runs_and_patterns(folders: list[Path]) -> None:
    """Each run once, whatever names it."""
    root = folders[0].parent.parent
    every = sorted(folder.parent.name for folder in folders)
    assert names([root]) == every
    assert names([root / "*" / "*"]) == every
    assert names([folders[0].parent]) == [folders[0].parent.name]
    assert names([folders[1], root, folders[1]]) == [
        folders[1].parent.name,
        *(name for name in every if name != folders[1].parent.name),
    ]


def test_what_else_a_pattern_matches(folders: list[Path], tmp_path: Path) -> None:
    """An earlier page, what a test or one batch left and empty folders are passed over beside runs, or refused."""
    run = copy(folders[0], tmp_path / "digits" / folders[0].name)
    (tmp_path / "compare.html").touch()
    (tmp_path / "empty").mkdir()
    tested = tmp_path / "digits" / f"{folders[0].name}-test"
    tested.mkdir()
    shutil.copy(run / "config.yaml", tested)
    batch = tmp_path / "digits" / "pretrained"
    (batch / "weights").mkdir(parents=True)
    above = ([tmp_path], sorted(tmp_path.iterdir()), sorted(run.parent.iterdir()))
    for words in (*above, [tmp_path / "*"], [run.parent / "*"]):
        results, left_out = chosen([str(word) for word in words])
        assert ([result.path for result in results], left_out) == ([run], []), words
    assert [one.path for one in at_hand(tmp_path) if not isinstance(one, UserError)] == [run]
    for word in (tmp_path / "compare.html", tmp_path / "empty", tested, batch):
        with pytest.raises(UserError, match=f"Expected .*{word.name}"):
            chosen([str(word)])
    with pytest.raises(UserError, match="there is no such folder"):
        chosen([str(run), str(tmp_path / "nowhere")])


def test_a_name_that_looks_like_a_pattern(folders: list[Path], tmp_path: Path) -> None:
    """What is there is meant itself."""
    run = copy(folders[0], tmp_path / "gamma[0.5]" / folders[0].name)
    assert names([run]) == names([run.parent]) == names([tmp_path / "gamma*"]) == ["gamma[0.5]"]


def test_runs_at_hand_however_deep(folders: list[Path], tmp_path: Path) -> None:
    """``--run.name`` may have folders in it; cells of studies and tests are not listed."""
    runs = [copy(folders[0], tmp_path / name / folders[0].name) for name in ("a", "group/a", "group/b/c")]
    cell = copy(folders[0], tmp_path / "studies" / "cells" / "aa" / folders[0].name)
    (cell.parent / "lock").touch()
    (tmp_path / "latest").symlink_to(runs[0])
    (tmp_path / "group" / "tested-test").mkdir()
    (tmp_path / "group" / "tested-test" / "config.yaml").touch()
    found = [one.path for one in at_hand(tmp_path) if not isinstance(one, UserError)]
    assert found == runs
    for word, meant in ((tmp_path, runs), (tmp_path / "studies", [cell])):
        assert [result.path for result in chosen([str(word)])[0]] == meant


def test_a_run_that_has_its_result_alone(folders: list[Path], tmp_path: Path) -> None:
    """Where metrics were not copied with it, it is missing below a folder, and nobody says so."""
    whole, slim = (copy(folders[0], tmp_path / name / folders[0].name) for name in ("a", "b"))
    (slim / "metrics.csv").unlink()
    assert [one.path for one in at_hand(tmp_path) if not isinstance(one, UserError)] == [whole, slim]
    assert names([tmp_path]) == ["a", "b"]


def test_what_another_logger_left(folders: list[Path], tmp_path: Path) -> None:
    """Lightning's CSVLogger has a metrics.csv too, and is told to be a run that did not end."""
    run = copy(folders[0], tmp_path / "a" / folders[0].name)
    logged = tmp_path / "a" / "lightning_logs" / "version_0"
    logged.mkdir(parents=True)
    shutil.copy(run / "metrics.csv", logged)
    assert [*at_hand(tmp_path)] == [read(run)]
    assert chosen([str(tmp_path)]) == ([read(run)], [])
    for python, left in (("rounds.jsonl", 1), ("config.yaml", 2)):
        part = tmp_path / python / "part"
        part.mkdir(parents=True)
        shutil.copy(run / "metrics.csv", part)
        shutil.copy(run / python, part)
        assert len(chosen([str(tmp_path)])[1]) == left


def test_a_damaged_run_among_finished_ones(folders: list[Path], tmp_path: Path) -> None:
    """It is told and left out; alone it is refused, and so is what is no run."""
    broken = copy(folders[0], tmp_path / "broken" / folders[0].name)
    (broken / "summary.json").write_text("{")
    for words in ([broken, folders[1]], [broken.parent, folders[1]]):
        results, left_out = chosen([str(word) for word in words])
        assert [result.path for result in results] == [folders[1]]
        (sentence,) = left_out
        assert "summary.json to be JSON, but it is damaged" in sentence
    with pytest.raises(UserError, match="it is damaged"):
        chosen([str(broken)])


def test_damaged_rounds_among_sound_ones(rffl: object, folders: list[Path], tmp_path: Path) -> None:
    """The run is told and left out; of none but such ones there is no page."""
    assert callable(rffl)
    broken, page = copy(folders[0], tmp_path / "broken" / folders[0].name), tmp_path / "page.html"
    first, *rest = (broken / "metrics.csv").read_text().splitlines()
    (broken / "metrics.csv").write_text("\n".join([first, *(row.replace(".", "oops") for row in rest), ""]))
    ended: Ended = rffl("compare", broken, folders[1], "--out", page)
    assert ended.code == 0, ended.err
    assert ended.err.startswith(f"left out: Expected {broken / 'metrics.csv'} to have numbers")
    assert folders[1].name in ended.out
    assert "broken" not in ended.out
    page.unlink()
    assert rffl("compare", broken, "--out", page).code == 2
    assert not page.exists()


def test_many_damaged_runs_beside_a_sound_one(
    folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rounds of each are read once: anew for every damaged one, 50 of 300 made it five times the work."""
    broken = copy(folders[0], tmp_path / "broken" / folders[0].name)
    asked: list[Path] = []
    rounds = RunFolder.rounds

    def counted(run: RunFolder) -> list[Round]:
        asked.append(run.path)
        if run.path == folders[1]:
            return rounds(run)
        raise UserError("Expected rounds.")

    monkeypatch.setattr(RunFolder, "rounds", counted)
    results, left_out = played([read(folders[1]), *[read(broken)] * 1200])
    assert [one.result.path for one in results] == [folders[1]]
    assert left_out == {broken: "Expected rounds."}
    assert asked == [folders[1], *[broken] * 1200]
    assert len(content(results, list(left_out.values()))["runs"]) == 1


@pytest.mark.parametrize("kept", [0, 2, 3])
def test_rounds_cut_short_among_whole_ones(rffl: object, folders: list[Path], tmp_path: Path, kept: int) -> None:
    """Curves of the first rounds stand in the page as if they were all."""
    assert callable(rffl)
    part, page = copy(folders[0], tmp_path / "part" / folders[0].name), tmp_path / "page.html"
    lines = (part / "metrics.csv").read_text().splitlines(keepends=True)
    (part / "metrics.csv").write_text("".join(lines[: 1 + kept]) + lines[1 + kept][:20])
    ended: Ended = rffl("compare", part, folders[1], "--out", page)
    assert ended.code == 0, ended.err
    told = f"left out: Expected {part / 'metrics.csv'} to have all 4 rounds of the result beside it, but it ends"
    assert ended.err.startswith(f"{told} after {kept}:")
    assert "part" not in ended.out


def test_an_unfinished_run_among_finished_ones(folders: list[Path], tmp_path: Path) -> None:
    """It is told and left out; alone it is refused."""
    half = copy(folders[0], tmp_path / "half" / folders[0].name)
    (half / "summary.json").unlink()
    results, left_out = chosen([str(half), str(folders[1])])
    assert [result.path for result in results] == [folders[1]]
    (sentence,) = left_out
    assert sentence.startswith(f"Expected the run in {half} to have ended")
    assert "after 4 of 4 rounds" in sentence
    fewer = copy(half, tmp_path / "fewer", trainer__max_epochs=-1, trainer__max_steps=6)
    assert "after 4 of 6 rounds" in chosen([str(fewer), str(folders[1])])[1][0]
    odd = copy(folders[0], tmp_path / "odd", trainer__max_epochs="many")
    assert chosen([str(odd)])[0][0].rounds == "4"
    with pytest.raises(UserError, match="to have ended"):
        chosen([str(half)])


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ("a,b\n1,2\n", "but it is no such table"),
        ("study,seed,rounds,cell,x\n", "to have results of a study, but it has none"),
    ],
)
def test_what_is_no_study(tmp_path: Path, table: str, expected: str) -> None:
    """A table of something else, and one without rows."""
    (tmp_path / "results.csv").write_text(table)
    with pytest.raises(UserError, match=expected):
        chosen([str(tmp_path)])


def study_of(folders: list[Path], root: Path) -> Path:
    """A study's folder as rffl study leaves it: a cell that was interrupted once, another, and one that is gone."""
    cells = {"aa": ("RFFL", folders[0]), "bb": ("FedAvg", folders[-1])}
    for digest, (_, run) in cells.items():
        copy(run, root / "cells" / digest / "2026-01-02_00-00-00")
    shutil.copytree(root / "cells" / "aa" / "2026-01-02_00-00-00", root / "cells" / "aa" / "2026-01-01_00-00-00")
    (root / "cells" / "aa" / "2026-01-01_00-00-00" / "summary.json").unlink()
    (root / "cells" / "aa" / "cell.json").write_text('{"seconds": 12.5}')
    (root / "mine").mkdir()
    rows = [f"mine,{server},1,4,0,honest,accuracy,0.5,{digest}" for digest, (server, _) in cells.items()]
    head = "study,server,seed,rounds,participant,role,measure,value,cell"
    (root / "mine" / "results.csv").write_text(
        "\n".join([head, *rows, "mine,CFFL,1,4,0,honest,accuracy,0.5,cc"]) + "\n"
    )
    return root / "mine"


def test_a_study_goes_by_its_axes(folders: list[Path], tmp_path: Path) -> None:
    """Its cells have its labels, beside other runs their options; a cell without a run is told."""
    study = study_of(folders, tmp_path)
    for word in (study, study / "results.csv"):
        results, left_out = chosen([str(word)])
        assert [dict(result.settings) for result in results] == [
            {"server": "RFFL", "rounds": "4", "seed": "1"},
            {"server": "FedAvg", "rounds": "4", "seed": "1"},
        ]
        assert results[0].path.name == "2026-01-02_00-00-00"
        assert seconds(results[0].path) == 12.5
        (sentence,) = left_out
        assert "the cell cc" in sentence
    (study / "results.csv.gz").write_bytes(gzip.compress((study / "results.csv").read_bytes()))
    (study / "results.csv").unlink()
    assert [result.path for result in chosen([str(study)])[0]] == [result.path for result in results]
    mixed, _ = chosen([str(study), str(folders[1])])
    assert all("--server" in result.settings for result in mixed)


@pytest.mark.parametrize("row", ["mine,RFFL,2,4,0,hon", "mine,RFFL,2,4,0,honest,accuracy,0.5,"])
def test_a_study_whose_results_end_in_a_row(folders: list[Path], tmp_path: Path, row: str) -> None:
    """As a copy that was broken off leaves them: what the row is of nobody knows, and the others are compared."""
    study = study_of(folders, tmp_path)
    whole = [result.path for result in chosen([str(study)])[0]]
    with (study / "results.csv").open("a") as file:
        file.write(row)
    assert [result.path for result in chosen([str(study)])[0]] == whole


@pytest.mark.parametrize("refused", ["iterdir", "is_file"])
def test_a_folder_that_cannot_be_read(
    folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    """Of others' folders one is not to be listed, or nothing below it to be looked at: it is told and left out."""
    run = copy(folders[0], tmp_path / "runs" / "mine" / folders[0].name)
    (tmp_path / "runs" / "closed" / "one").mkdir(parents=True)
    ask = getattr(Path, refused)

    def asked(path: Path) -> Any:
        if "closed" in path.parts:
            raise PermissionError(13, "Permission denied", str(path))
        return ask(path)

    monkeypatch.setattr(Path, refused, asked)
    found = list(at_hand(tmp_path / "runs"))
    assert [one.path for one in found if not isinstance(one, UserError)] == [run]
    told = f"Expected {tmp_path / 'runs' / 'closed'} to be a folder that can be read, but Permission denied: "
    for words in ([tmp_path / "runs"], [tmp_path / "runs" / "closed", run], [tmp_path / "runs" / "*"]):
        results, (sentence,) = chosen([str(word) for word in words])
        assert [result.path for result in results] == [run]
        assert sentence.startswith(told)
    assert str(found[-1]).startswith(told)
    with pytest.raises(UserError, match="to be a folder that can be read"):
        chosen([str(tmp_path / "runs" / "closed")])


def test_a_run_with_a_file_that_cannot_be_read(
    folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told and left out, as a damaged one is."""
    closed = copy(folders[0], tmp_path / "closed" / folders[0].name)
    ask = Path.read_text

    def asked(path: Path, *args: Any, **kwargs: Any) -> str:
        if path == closed / "starts.jsonl":
            raise PermissionError(13, "Permission denied", str(path))
        return ask(path, *args, **kwargs)

    monkeypatch.setattr(Path, "read_text", asked)
    results, (sentence,) = chosen([str(closed), str(folders[1])])
    assert [result.path for result in results] == [folders[1]]
    assert sentence.startswith(f"Expected {closed} to be a folder that can be read, but Permission denied: ")


@pytest.mark.parametrize(
    ("name", "damage"),
    [("launch", b"a\xff\n"), ("starts.jsonl", b"5\n"), ("starts.jsonl", b"null\n"), ("starts.jsonl", b'{"own": 5}\n')],
)
def test_a_run_whose_record_is_damaged(folders: list[Path], tmp_path: Path, name: str, damage: bytes) -> None:
    """Of when it began; its result is whole, and no traceback stands in its place."""
    run = copy(folders[0], tmp_path / "run" / folders[0].name)
    with (run / name).open("ab") as file:
        file.write(damage)
    assert write(chosen([str(run)])[0], [], tmp_path / "page.html") == {}
    assert read(run).own == read(folders[0]).own


def test_a_damaged_cell_of_a_study(folders: list[Path], tmp_path: Path) -> None:
    """It is told and left out, as a damaged run is."""
    study = study_of(folders, tmp_path)
    (tmp_path / "cells" / "bb" / "2026-01-02_00-00-00" / "summary.json").write_text("{")
    results, left_out = chosen([str(study)])
    assert [result.settings["server"] for result in results] == ["RFFL"]
    assert "summary.json to be JSON, but it is damaged" in left_out[0]


def test_a_cell_that_cannot_be_read(folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was told to be gone, with the advice to take its rows out of the results."""
    file = study_of(folders, tmp_path)
    cell = tmp_path / "cells" / "bb"

    def closed(self: Path) -> Any:
        if self == cell:
            raise PermissionError(13, "Permission denied", str(self))
        return listed(self)

    listed, globbed = Path.iterdir, Path.glob
    monkeypatch.setattr(Path, "iterdir", closed)
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter(()) if self == cell else globbed(self, pattern))
    _, left_out = chosen([str(file)])
    told = f"Expected {cell} to be a folder that can be read, but Permission denied: {cell}; see to its permissions, or"
    assert [one.startswith(told) for one in left_out] == [True, False]  # of another one there is no folder at all


def test_a_damaged_attempt_of_a_cell(folders: list[Path], tmp_path: Path) -> None:
    """The one before it, whose result the tables have, is left out with it."""
    study = study_of(folders, tmp_path)
    later = tmp_path / "cells" / "bb" / "2026-01-03_00-00-00"
    shutil.copytree(tmp_path / "cells" / "bb" / "2026-01-02_00-00-00", later)
    (later / "summary.json").write_text("{")
    results, _ = chosen([str(study)])
    assert [result.path.name for result in results if result.settings["server"] == "FedAvg"] == ["2026-01-02_00-00-00"]


def test_a_study_that_a_spreadsheet_saved(folders: list[Path], tmp_path: Path) -> None:
    """With a mark before its first column, as tables of studies are read."""
    study = study_of(folders, tmp_path)
    expected, _ = chosen([str(study)])
    file = study / "results.csv"
    file.write_text(file.read_text(), encoding="utf-8-sig")
    assert [result.settings for result in chosen([str(study)])[0]] == [result.settings for result in expected]


def test_labels_that_stood_for_other_words(folders: list[Path], tmp_path: Path) -> None:
    """They are pooled with those of today as if they differed in the seed alone, though no run says so."""
    cells = {"aa": ("RFFL", 1, "old"), "bb": ("RFFL", 2, "new"), "cc": ("RFFL", 3, "old"), "dd": ("FedAvg", 1, "fed")}
    head = "study,server,seed,rounds,participant,role,measure,value,settings,cell"
    (tmp_path / "mine").mkdir()

    def told(names: str) -> list[dict[str, str]]:
        lines = [f"mine,{cells[c][0]},{cells[c][1]},4,0,honest,accuracy,0.5,{cells[c][2]},{c}" for c in names.split()]
        (tmp_path / "mine" / "results.csv").write_text("\n".join([head, *lines]) + "\n")
        return [dict(result.settings) for result in chosen([str(tmp_path / "mine")])[0]]

    for number, digest in enumerate(cells):
        copy(folders[number % len(folders)], tmp_path / "cells" / digest / "2026-01-02_00-00-00")
    assert [place.get("settings") for place in told("aa bb cc dd")] == ["old", "new", "old", None]
    assert all("settings" not in place for place in told("aa cc dd"))


def test_labels_that_stood_for_other_words_elsewhere(folders: list[Path], tmp_path: Path) -> None:
    """Two studies of one name, in two roots, are no seeds of one."""
    head = "study,server,seed,rounds,participant,role,measure,value,settings,cell"
    for root, seed in (("a", 1), ("b", 2), ("c", 3)):
        copy(folders[0], tmp_path / root / "cells" / "aa" / "2026-01-02_00-00-00")
        (tmp_path / root / "mine").mkdir()
        row = f"mine,RFFL,{seed},4,0,honest,accuracy,0.5,{'b' if root == 'b' else 'a'},aa"
        (tmp_path / root / "mine" / "results.csv").write_text(f"{head}\n{row}\n")
    for roots, groups in (("ab", 2), ("ac", 1), ("abc", 2)):
        cells, _ = chosen([str(tmp_path / root / "mine") for root in roots])
        assert len(content(played(cells)[0])["groups"]) == groups, roots


def test_runs_of_one_name(folders: list[Path], tmp_path: Path) -> None:
    """Two that have no configuration, in folders of one name, are no runs of one seed."""
    runs = [copy(folder, tmp_path / place / "runs" / "python") for folder, place in zip(folders, "ab", strict=False)]
    for run in runs:
        (run / "config.yaml").unlink()
    alone = copy(folders[0], tmp_path / "other" / "one")
    results = [read(run) for run in (*runs, alone)]
    assert named(results) == ["a/runs/python", "b/runs/python", "other/one"]
    assert len(content(played(results)[0])["groups"]) == 3
    assert len({run["name"] for run in content(played(results)[0])["runs"]}) == 3


def test_a_folder_whose_name_is_no_text(folders: list[Path], tmp_path: Path) -> None:
    """It is on the page all the same."""
    run = copy(folders[0], tmp_path / os.fsdecode(b"bad\xff") / folders[0].name)
    assert write([read(run)], [], tmp_path / "page.html") == {}
    assert "bad?" in (tmp_path / "page.html").read_text()


def test_servers_and_attacks_that_are_no_axis(folders: list[Path]) -> None:
    """The worst case goes by the server and the attack of the options where a study names neither."""
    cells = [
        replace(read(folder), settings={"alpha": "1", "seed": str(i)}, study="s") for i, folder in enumerate(folders)
    ]
    runs = content(played(cells)[0])["runs"]
    assert [(run["server"], run["attack"]) for run in runs][1:3] == [("RFFL", "FreeRider"), ("RFFL", "LabelFlip")]
    assert runs[-1]["server"] == "FedAvg"
    assert content(played(cells)[0])["title"] == "s: 5 runs compared"


def test_runs_without_a_common_measure(folders: list[Path], tmp_path: Path) -> None:
    """The sentence names the run that has none with the others."""
    odd = copy(folders[0], tmp_path / "odd" / folders[0].name)
    summary = RunFolder(odd).summary()
    for name, value in vars(summary).items():
        if isinstance(value, float) or name in ("precision", "recall"):
            setattr(summary, name, None)
    summary.final = [None] * len(summary.final)
    RunFolder(odd).write_summary(summary)
    with pytest.raises(UserError, match=r"odd.* has no result at all and no other run has that"):
        check_common([read(odd), read(folders[0])])
    check_common([read(folders[0]), read(folders[-1])])
    check_common([read(odd)])


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("page.pdf", "but got {}/page.pdf; give --out page.html"),
        ("folder.html", "but {}/folder.html is a folder"),
        (".", "but . is a folder"),
        ("file/page.html", "Expected --out to be a file that can be written, but File exists"),
    ],
)
def test_a_page_that_cannot_be_written(
    rffl: object, folders: list[Path], tmp_path: Path, target: str, expected: str
) -> None:
    """One sentence, exit code 2, and nothing is left behind."""
    assert callable(rffl)
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "file").touch()
    before = sorted(tmp_path.rglob("*"))
    ended: Ended = rffl("compare", folders[0], "--out", "." if target == "." else tmp_path / target)
    assert (ended.code, ended.out) == (2, "")
    (error,) = ended.err.splitlines()
    assert expected.format(tmp_path) in error
    assert sorted(tmp_path.rglob("*")) == before


def test_a_page_that_was_there_is_replaced_whole(rffl: object, folders: list[Path], tmp_path: Path) -> None:
    """And the answer says where it is."""
    assert callable(rffl)
    page = tmp_path / "new" / "page.html"
    ended: Ended = rffl("compare", folders[0], "--out", page)
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[-1].startswith(f"page: {page} (")
    first = page.read_text()
    assert rffl("compare", folders[0], folders[1], "--out", page).code == 0
    assert page.read_text() != first
    assert page.read_text().rstrip().endswith("</html>")
    assert [path.name for path in page.parent.iterdir()] == ["page.html"]
