"""A workspace and a report of W&B, as objects and as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wandb_workspaces import expr
from wandb_workspaces.reports.v2 import H1, Layout, P, PanelGrid, Report, Runset, TableOfContents
from wandb_workspaces.workspaces import RunsetSettings, Section, SectionLayoutSettings, Workspace, WorkspaceSettings

from rffl_pl.dashboard.chapters import Chapter, chapters
from rffl_pl.errors import UserError
from rffl_pl.files import replaced

TITLE = "Compare runs of rffl"
GROUPS = ("dataset", "split", "server_name", "preset", "attack", "participants", "adversaries", "coalition", "place")
"""By these, flat keys of a run's configuration, runs are grouped: what is left within a group are mostly seeds."""
COLUMNS = [
    *(f"config:{key}.value" for key in (*GROUPS, "seed", "study")),
    *(f"summary:{key}" for key in ("mean", "fairness", "recall")),
]
"""What the list of runs shows beside their names."""
OPEN = 4
"""As many sections are open at first."""


@dataclass(frozen=True)
class Specification:
    """What is built.

    Attributes:
        workspace: Sections of charts that follow whichever runs are chosen.
        report: The same charts with a sentence on each section.
    """

    workspace: Workspace
    report: Report

    def write(self, file: Path) -> None:
        """Leave it as JSON, as W&B is sent it.

        Raises:
            UserError: If there is no writing.
        """
        if file.is_dir():
            raise UserError(f"Expected --out to be a file that can be written to, but {file} is a folder.")
        views = {"workspace": self.workspace._to_model(), "report": self.report._to_model()}
        content = {name: view.model_dump(mode="json", by_alias=True, exclude_none=True) for name, view in views.items()}
        try:
            with replaced(file) as partial:
                partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise UserError(
                f"Expected --out to be a file that can be written to, but got {file}: {error.strerror}."
            ) from error


def specified(entity: str, project: str) -> Specification:
    """A workspace and a report on all runs of a project.

    Args:
        entity: User or team that the project belongs to.
        project: The project.
    """
    return Specification(_workspace(entity, project), _report(entity, project))


def _workspace(entity: str, project: str) -> Workspace:
    return Workspace(
        entity=entity,
        project=project,
        name=TITLE,
        sections=[_section(chapter, is_open=number < OPEN) for number, chapter in enumerate(chapters())],
        settings=WorkspaceSettings(x_axis="round", max_runs=100),
        runset_settings=RunsetSettings(groupby=[expr.Config(key) for key in GROUPS], pinned_columns=COLUMNS),
    )


def _section(chapter: Chapter, is_open: bool) -> Section:
    columns = min(3, len(chapter.panels))
    layout = SectionLayoutSettings(columns=columns, rows=-(-len(chapter.panels) // columns))
    return Section(name=chapter.name, panels=chapter.panels, is_open=is_open, layout_settings=layout)


def _report(entity: str, project: str) -> Report:
    intro = (
        "Charts of all runs in this project, averaged over those with the same data set, split, server and attack. "
        "Filter the run set below a chart to see fewer; tags say data set, split, server, attack, seed and study."
    )
    blocks: list[Any] = [P(intro), TableOfContents()]
    for chapter in chapters():
        blocks += [H1(chapter.name), P(chapter.text), _grid(chapter)]
    return Report(entity=entity, project=project, title=TITLE, description=intro, blocks=blocks, width="fluid")


def _grid(chapter: Chapter) -> PanelGrid:
    """Three charts side by side; the run set names no project, so it is that of the report."""
    for number, panel in enumerate(chapter.panels):
        panel.layout = Layout(x=number % 3 * 8, y=number // 3 * 6, w=8, h=6)
    runs = Runset(name="All runs", groupby=[f"config.{key}" for key in GROUPS], pinned_columns=COLUMNS)
    return PanelGrid(runsets=[runs], panels=chapter.panels)
