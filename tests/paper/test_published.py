"""What the package says the paper printed, against the paper's own tables."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from rffl_pl.cli.study import packaged
from rffl_pl.paper import FIGURES, TABLES, places_of, published
from rffl_pl.studies.study import Study

STUDIES = {Path(name).stem: Study.read(path) for name, path in packaged().items() if name.startswith("studies/paper/")}


def test_the_paper_has_nineteen_tables_and_one_of_settings() -> None:
    """A table is lost, has no title, or two figures stand in one place."""
    assert len(TABLES) == 20
    for name in TABLES:
        entries = published(name)
        places = [(entry.row, entry.column, entry.participant) for entry in entries]
        assert entries
        assert len(set(places)) == len(places), name


def test_figures_that_are_known_by_heart() -> None:
    """A figure slipped into another row, column or bracket."""
    found = {(e.table, e.row, e.column, e.participant): e.text for e in sum(map(published, TABLES), ())}
    assert found["accuracy", "RFFL", "MNIST N=10 CLA", "mean"] == "73"
    assert found["accuracy", "RFFL", "MNIST N=10 CLA", "max"] == "94"
    assert found["accuracy", "Standalone", "CIFAR-10 N=10 CLA", "max"] == "44"
    assert found["accuracy", "q-FFL", "MR N=5 POW", "mean"] == "12"
    assert found["fairness", "FedAvg", "CIFAR-10 N=10 UNI", ""] == "-42.9"
    assert found["untargeted_inverting_powerlaw", "RFFL", "1", "0"] == "73"
    assert found["targeted_poisoning_11", "FoolsGold", "Target accuracy", ""] == "55.0"


def test_every_figure_has_a_cell_that_measures_it() -> None:
    """A label is on no axis of the packaged study: nothing could ever stand beside the figure."""
    for entry in sum(map(published, TABLES), ()):
        study = STUDIES[entry.study]
        for axis, label in entry.place.items():
            study.known_label(axis, label, "the paper")
        assert set(entry.place) == set(study.axes) or entry.table == "fi_hyperparameters"
    for name in FIGURES:
        for study_name, place in places_of(name):
            assert place in STUDIES[study_name].places()


def test_the_figures_are_those_of_the_paper() -> None:
    """A number of the paper was changed or left out on its way into the package."""
    file = Path(os.environ.get("RFFL_DATA_DIR", "absent")).parent / "paper" / "tables.json"
    if not file.is_file():
        pytest.skip("the paper's tables as JSON are not beside RFFL_DATA_DIR")
    for name, table in json.loads(file.read_text()).items():
        body = [row for row in table["rows"] if re.match(r"[\d-]", row[1]) and row[0] not in ("", "N", "Data Split")]
        for row in body:
            theirs = [number for cell in row[1:] for number in re.findall(r"-?[\de.-]*\d", cell)]
            assert [entry.text for entry in published(name) if entry.row == row[0] and entry.text] == theirs, (
                name,
                row,
            )
        assert {row[0] for row in body} == {entry.row for entry in published(name) if entry.text}, name
