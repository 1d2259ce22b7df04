"""`rffl dashboard`: what is specified, and what W&B is sent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from rffl_pl.cli.help import COMMANDS
from tests.conftest import Ended
from tests.wandb.wandb_server import STRANGER, wandb_server

pytest.importorskip("wandb_workspaces", reason="needs the extra dashboard")
KEY = "a" * 40

from wandb_workspaces.reports.v2 import H1, PanelGrid, Report  # noqa: E402
from wandb_workspaces.reports.v2.internal import ReportViewspec  # noqa: E402
from wandb_workspaces.workspaces import Workspace  # noqa: E402
from wandb_workspaces.workspaces.internal import View  # noqa: E402

ASKED = ["Accuracy", "Fairness", "Reputations", "removed", "attacks", "Bytes and seconds", "Pictures", "Settings"]


@pytest.fixture
def written(rffl: Callable[..., Ended], tmp_path: Path) -> Path:
    """The file that the command leaves."""
    file = tmp_path / "dashboard.json"
    ended = rffl("dashboard", "--entity", "me", "--project", "digits", "--out", file)
    assert (ended.code, ended.err) == (0, "")
    assert str(file) in ended.out
    return file


def test_the_specification_is_read_back(written: Path) -> None:
    """W&B's own models take what was written, and find the sections in the order in which people ask."""
    content = json.loads(written.read_text())
    workspace = Workspace._from_model(View.model_validate(content["workspace"]))
    report = Report._from_model(ReportViewspec.model_validate(content["report"]))
    for owner in (workspace, report):
        assert (owner.entity, owner.project) == ("me", "digits")
    sections = [section.name for section in workspace.sections]
    assert all(word in name for word, name in zip(ASKED, sections, strict=True))
    headings = [block.text for block in report.blocks if isinstance(block, H1)]
    assert headings == sections
    from rffl_pl.dashboard.specification import GROUPS

    groups = [key.name for key in workspace.runset_settings.groupby]
    assert groups == [*GROUPS]
    assert {"preset", "adversaries", "coalition"} < set(groups)
    panels = [panel for section in workspace.sections for panel in section.panels]
    titles = [panel.title for panel in panels if hasattr(panel, "title")]
    assert all(titles)
    assert len(titles) == len(set(titles))
    grids = [block for block in report.blocks if isinstance(block, PanelGrid)]
    assert [panel.title for grid in grids for panel in grid.panels if hasattr(panel, "title")] == titles


def test_writing_twice_replaces_the_file(rffl: Callable[..., Ended], written: Path) -> None:
    """Another project's is whole, and nothing else is left beside it."""
    assert rffl("dashboard", "--entity", "me", "--project", "other", "--out", written).code == 0
    assert json.loads(written.read_text())["workspace"]["project"] == "other"
    assert [path.name for path in written.parent.iterdir() if path.is_file()] == [written.name]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "--entity"),
        (["--entity", "me"], "Expected a login to W&B"),
        (["--entity", "me", "--projekt", "x"], "did you mean --project"),
        (["--entity", "me", "--out", "{}/no/file.json"], "Expected --out to be a file that can be written to"),
        (["--entity", "me", "--out", "{}"], "Expected --out to be a file that can be written to"),
    ],
)
def test_a_mistake_is_one_sentence(rffl: Callable[..., Ended], tmp_path: Path, words: list[str], sentence: str) -> None:
    """No login, no entity, no such option, nowhere to write: exit code 2, and nothing is left."""
    before = sorted(tmp_path.rglob("*"))
    ended = rffl("dashboard", *(word.format(tmp_path) for word in words))
    assert ended.code == 2
    assert sentence in ended.err
    assert ended.err.startswith("Error: Expected")
    assert len(ended.err.splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_without_the_extra_it_says_what_to_install(
    rffl: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's own way to say that a module is not there."""
    monkeypatch.setitem(sys.modules, "wandb_workspaces", None)
    monkeypatch.delitem(sys.modules, "rffl_pl.dashboard.specification")
    monkeypatch.delitem(sys.modules, "rffl_pl.dashboard.chapters", raising=False)
    ended = rffl("dashboard", "--entity", "me", "--out", tmp_path / "dashboard.json")
    assert ended.code == 2
    assert "pip install wandb-workspaces" in ended.err
    assert not (tmp_path / "dashboard.json").exists()


@pytest.mark.slow
def test_what_is_sent_is_what_is_written(written: Path, tmp_path: Path) -> None:
    """W&B's own client sends both to a server; one that refuses, or does not answer, is one sentence."""
    with ExitStack() as stack:
        server = stack.enter_context(wandb_server())

        def sent(name: str, entity: str, url: str) -> Callable[[], Ended]:
            words = ("dashboard", "--entity", entity, "--project", "digits")
            known = {**os.environ, "WANDB_BASE_URL": url, "WANDB_API_KEY": KEY}
            said = [tmp_path / f"{name}.{stream}" for stream in ("out", "err")]  # W&B's service may hold pipes open
            out, err = (stack.enter_context(path.open("w")) for path in said)
            process = subprocess.Popen([sys.executable, "-m", "rffl_pl", *words], env=known, stdout=out, stderr=err)
            stack.callback(process.wait)
            stack.callback(process.kill)
            return lambda: Ended(process.wait(timeout=120), *(path.read_text() for path in said))

        taken = sent("taken", "me", server.url)
        refused = sent("refused", STRANGER, server.url)
        alone = sent("alone", "me", "http://127.0.0.1:9")
        told = taken()
        assert (told.code, told.err) == (0, "")
        for ended, sentence in ((refused(), "permission denied"), (alone(), "Expected W&B to answer")):
            assert ended.code == 2, ended.err
            assert sentence in ended.err
            assert len(ended.err.splitlines()) == 1
    assert f"workspace: {server.url}/me/digits" in told.out
    assert f"report: {server.url}/me/digits/reports" in told.out
    kept = json.loads(written.read_text())
    views = {view["type"]: view for view in server.views}
    assert views.keys() == {"project-view", "runs"}
    for name, view in (("workspace", views["project-view"]), ("report", views["runs"])):
        assert names(json.loads(view["spec"])) == names(kept[name]["spec"])


def names(content: object) -> list[object]:
    """Everything in a specification but the identities that each panel draws anew."""
    if isinstance(content, dict):
        parts = [[key, *names(value)] for key, value in sorted(content.items()) if key not in ("id", "__id__", "ref")]
        return [value for part in parts for value in part]
    if isinstance(content, list):
        return [value for item in content for value in names(item)]
    return [content]


def test_the_command_is_named_where_people_look() -> None:
    """In the help, with an example."""
    what, example = COMMANDS["dashboard"]
    assert "workspace" in what
    assert example.startswith("rffl dashboard --entity")
