"""What the site shows is run as it is written: code, commands, and a page for every server and attack."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD

import rffl_pl
from rffl_pl import RunFolder, adversaries, servers
from rffl_pl.cli.resolve import Resolver
from rffl_pl.cli.study import parser, study_file
from rffl_pl.rehearsal.first_step import check_objective
from rffl_pl.studies import Study
from tests.cli.folders import assert_same_bits
from tests.conftest import QUICK, ROOT, Ended, only_run
from tests.runs import kept_in

DOCS = ROOT / "docs"
OWN = [path.stem for path in sorted((DOCS / "own").glob("*.md")) if path.stem != "index"]


def files(page: str) -> dict[str, str]:
    """The files that a page shows, by name."""
    return dict(re.findall(r"```{code-block} \w+\n:caption: (\S+)\n\n(.*?)```", (DOCS / page).read_text(), re.S))


def commands(page: Path) -> list[str]:
    """The commands of ``rffl`` that a page shows, torchrun's too."""
    blocks = "".join(re.findall(r"```bash\n(.*?)```", page.read_text(), re.S)).replace("\\\n", "")
    return re.findall(r"^(?:torchrun .*-m rffl_pl|rffl) (.*)$", blocks, re.M)


PAGES = [page for page in sorted(DOCS.rglob("*.md")) if commands(page)]


@pytest.fixture
def user(rffl: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    """A user in an empty folder, who runs ``rffl`` there."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)

    def run(words: list[str]) -> Ended:
        ended = rffl(*words)
        assert ended.code == 0, ended.err
        return ended

    return run


@pytest.mark.parametrize("page", OWN)
def test_own_code_runs_as_written(user: Callable[..., Ended], tmp_path: Path, page: str) -> None:
    """The classes of a page work under the commands below them, and the run shows that it was they who worked."""
    shown = files(f"own/{page}.md")
    for name, code in shown.items():
        (tmp_path / name).write_text(code)
    write_hospitals(tmp_path / "data")
    lines = [line for line in commands(DOCS / "own" / f"{page}.md") if "my_" in line]
    assert len(lines) == len(shown) > 0
    for number, line in enumerate(lines):
        # Where one says how an adversary is removed, it has to be.
        rounds = "30" if page == "callback" else "6" if "my_credit" in line else "2"
        words = [*shlex.split(line), *QUICK, "--trainer.max_epochs", rounds, "--run.name", str(number)]
        assert "decides otherwise" not in user(words).err
        run = RunFolder.open(only_run(tmp_path / "runs", str(number)))
        used = re.search(r"my_\w+\.(\w+)", line)
        assert used is not None
        check_own(page, used[1], run)


def test_tables_are_read_as_described(user: Callable[..., Ended], tmp_path: Path) -> None:
    """The commands beside the tables that are shown, with more rows of that kind, and as many entries as they say."""
    page = DOCS / "own" / "data.md"
    first, scale = re.findall(r"```text\n(id,.*?)```", page.read_text(), re.S)
    rows = "".join(
        f"{i},{30 + i % 40},{100 + i % 50},{'mf'[i % 2]},{'ABC'[i % 3]},{('ill', 'well')[i % 4 // 2]}\n"
        for i in range(60)
    )
    for name in ("patients", "test", "hospital_0", "hospital_1", "hospital_2"):
        (tmp_path / f"{name}.csv").write_text(first + rows)
    (tmp_path / "columns.csv").write_text(scale)
    with (tmp_path / "test.csv").open("a") as file:
        file.write("70,50,160,x,C,ill\n")
    told = [line for line in commands(page) if "TableFile" in line]
    assert len(told) == 3
    for line in told:
        user([*shlex.split(line), *QUICK, "--trainer.max_epochs", "2"])


def test_an_objective_where_layers_share_weights(tmp_path: Path) -> None:
    """The page's is refused with a language model's network: a state_dict has shared weights under both names."""
    (tmp_path / "my_objective.py").write_text(files("own/objective.md")["my_objective.py"])
    objective = runpy.run_path(str(tmp_path / "my_objective.py"))["Moon"]()
    network = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    network[1].weight = network[0].weight
    check_objective(objective, partial(SGD, lr=0.1), network, torch.rand(2, 3), torch.tensor([0, 2]), cross_entropy)


@pytest.mark.slow
def test_a_rule_with_a_memory_goes_on(user: Callable[..., Ended], tmp_path: Path) -> None:
    """The page's state is all there is: an interrupted run has the bits of a whole one."""
    (tmp_path / "my_credit.py").write_text(files("own/server.md")["my_credit.py"])
    (line,) = [line for line in commands(DOCS / "own" / "server.md") if "my_credit" in line]
    for name, rounds in (("whole", 6), ("half", 3), ("half", 6)):
        on = ["--ckpt_path", "last"] if (name, rounds) == ("half", 6) else []
        user([*shlex.split(line), *QUICK, "--trainer.max_epochs", str(rounds), "--run.name", name, *on])
    assert_same_bits(*(only_run(tmp_path / "runs", name) for name in ("whole", "half")))


def write_hospitals(folder: Path) -> None:
    """Three hospitals' files as a page has them: 30 measurements that tell two classes apart."""
    folder.mkdir()
    for seed, name in enumerate([*(f"{kind}_{i}" for i in range(3) for kind in ("hospital", "test")), "validation"]):
        generator = torch.Generator().manual_seed(seed)
        labels = torch.randint(2, (60,), generator=generator)
        measured = torch.randn(60, 30, generator=generator) + 2 * labels[:, None]
        torch.save((measured, labels), folder / f"{name}.pt")


def check_own(page: str, name: str, run: RunFolder) -> None:
    """What only this page's class can have left in the run."""
    summary, last = run.summary(), run.rounds()[-1]
    assert name in run.config_file.read_text()
    assert min(value for value in summary.final[: summary.honest] if value is not None) >= 0
    if page == "model":
        assert run.weights(0)["features.0.weight"].shape == (8, 1, 3, 3)
    elif page == "loss":
        trained, measured = (last.measures[which][: summary.honest] for which in ("train_loss", "loss"))
        assert all(own < 0.8 * entropy for own, entropy in zip(trained, measured, strict=True))
    elif page == "objective":
        kept = kept_in(run.path / "checkpoints" / "last.ckpt")["federation"]["participants"][0]["objective"]
        assert not torch.equal(kept["downloaded 1.weight"], kept["trained 1.weight"])
    elif page == "data":
        assert summary.mean is not None
        assert summary.mean > 0.7
    elif page == "split":
        assert max(summary.examples[:5]) < 90  # of 100 those of three classes are missing
    elif page == "server":
        assert ("length" in last.measures) == (name == "EqualLengths")
        assert (last.measures["quota"] == [1.0] * 6) == (name not in ("Ladder", "Credit"))
        assert summary.first_removal == (5 if name == "Credit" else None)
    elif page == "attack":
        assert summary.attacks[summary.honest :] == [name] * 2
    elif page == "from":
        assert set(last.measures["reputation"]) == {1 / 7}  # whichever uploads it leaves out within
    elif page == "measure":
        assert all(0 <= value <= 1 for value in last.measures["worst_class"])
    else:
        assert summary.first_removal is not None
        assert summary.rounds == summary.first_removal + 5


@pytest.mark.slow
def test_the_tutorial_runs(user: Callable[..., Ended], tmp_path: Path) -> None:
    """Its commands work one after the other, shortened; the program of another page reads what they leave."""
    lines = commands(DOCS / "tutorial.md")
    assert {line.split()[0] for line in lines} == {"fit", "compare", "study"}
    said = {}
    for line in lines:
        first = min((tmp_path / "runs" / "digits").glob("*"), default=tmp_path)
        words = shlex.split(line.replace("RUN", first.name))
        if "--ckpt_path" in words:
            words[words.index("--trainer.max_epochs") + 1] = "2"
        elif words[0] == "fit":
            words += [*QUICK, "--trainer.max_epochs", "1"]
        elif "--table" not in words and words[0] == "study":
            words += ["--rounds", "1", "--seeds", "1", "2", "--only", "server=RFFL", "--only", "attack=free_rider"]
        said[line] = user(words).out
    assert "success" in said[lines[1]]
    assert "FedAvg" in said["compare runs/digits/*"]
    assert "±" in said["study studies/digits.yaml --table server attack"]
    assert [entry.number for entry in RunFolder.open(max((tmp_path / "runs" / "digits").glob("*"))).rounds()] == [1, 2]


def test_a_run_is_read_back(user: Callable[..., Ended], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program that reads a run folder says what the run's own table says."""
    out = user(["fit", "--config", "digits.yaml", *QUICK, "--trainer.max_epochs", "1"]).out
    (tmp_path / "read_run.py").write_text(files("runs.md")["read_run.py"])
    monkeypatch.setattr(sys, "argv", ["read_run.py", str(only_run(tmp_path / "runs"))])
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        runpy.run_path(str(tmp_path / "read_run.py"))
    mean = re.search(r"^mean (\S+)", out, re.M)
    assert mean is not None
    assert told.getvalue().startswith(f"{mean[1]} on average")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_a_command_is_understood(user: Callable[..., Ended], page: Path) -> None:
    """Every option that a page names exists, and its values are taken."""
    for line in commands(page):
        words = shlex.split(line.replace("configs/", ""))
        if words[0] == "fit" and not re.search(r"/RUN/|my_\w+\.", line):  # these are run by the tests above
            assert "max_epochs" in user([*words, "--print_config"]).out


def test_a_command_of_a_study_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    """The study is the repository's or the package's, its options are taken, and its first run can be."""
    monkeypatch.chdir(ROOT)
    resolve = Resolver()
    lines = {line for page in PAGES for line in commands(page) if line.startswith("study ")}
    assert len(lines) > 8
    for line in sorted(lines):
        asked = parser().read(shlex.split(line)[1:])
        study = Study.read(study_file(asked.study))
        assert {*(asked.table or ())} <= {*study.axes, *["participant"] * bool(asked.contribution)}, line
        assert resolve(study.words(study.places()[0]))["trainer"]["max_epochs"], line


@pytest.mark.parametrize(("folder", "room"), [("servers", servers), ("attacks", adversaries)])
def test_everything_has_a_page(folder: str, room: ModuleType) -> None:
    """Every server and attack that can be chosen has a page with its figure, options and source, and no other."""
    bases = {"Consensus", "Server", "ParticipantSide", "Adversary", "OmniscientAdversary"}
    kinds = (servers.Server, adversaries.Adversary)
    chosen = {name for name in room.__all__ if issubclass(getattr(room, name), kinds)} - bases
    pages = [page.read_text() for page in (DOCS / folder).glob("*.md") if page.stem != "index"]
    shown = {name for page in pages for name in re.findall(r"autoclass:: rffl_pl\.\w+\.(\w+)", page)}
    assert shown == chosen
    # The site drops a line that begins with %, and a forge does not do what the directive below it asks.
    told = re.compile(r"^% .*\]\(\.\./\.\./(\S+)\)\.\n\n```{eval-rst}\n\.\. autoclass:: rffl_pl\.\w+\.(\w+)", re.M)
    sources = {name: (ROOT / file).read_text() for page in pages for file, name in told.findall(page)}
    assert {name for name in chosen if f"\nclass {name}(" not in sources.get(name, "")} == set()
    for name in chosen:
        assert (DOCS / "figures" / f"{name}.png").is_file()
        assert sum(f"](../figures/{name}.png)" in page for page in pages) == 1


def test_a_picture_is_one_on_a_forge_too() -> None:
    """A directive is raw text there: it is Markdown's, alone between blank lines, says what it shows, and is there."""
    found = 0
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text()
        assert not re.search(r"\{(figure|image)\}", text), page
        for shown in re.findall(r"(?:^.+\n)?^.*!\[.*(?:\n.+)?", text, re.M):
            picture = re.fullmatch(r"!\[[^][]{20,}\]\((\S+)\)", shown)
            assert picture is not None, (page, shown)
            assert (page.parent / picture[1]).is_file(), (page, shown)
            found += 1
    assert found > len(adversaries.__all__)


def test_every_public_name_is_in_the_reference() -> None:
    """What a program imports from `rffl_pl` has an entry: constructors, errors, shapes."""
    pages = "".join(page.read_text() for page in DOCS.rglob("*.md"))
    shown = set(re.findall(r"^\.\. auto\w+:: rffl_pl\.[\w.]*?(\w+)$", pages, re.M))
    assert set(rffl_pl.__all__) - {"__version__"} - shown == set()


def test_a_page_links_to_what_it_includes() -> None:
    """A forge shows the directive alone: whoever reads there follows the link above it, which the site drops."""
    found = 0
    for page in DOCS.rglob("*.md"):
        text = page.read_text()
        for file in re.findall(r"^```{include} (\S+)$", text, re.M):
            link = rf"^% .*\]\({re.escape(file)}\)\.\n\n```{{include}} "
            assert re.search(link, text, re.M), (page, file)
            found += 1
    assert found


def prose(page: Path) -> str:
    """A page without what it shows as code."""
    return re.sub(r"^(`{3,}).*?^\1$|(`+).+?\2", "", page.read_text(), flags=re.M | re.S)


def anchors(page: Path) -> set[str]:
    """What a forge, and the site for three levels, call a page's headings; where it is another one, that one's."""
    whole = re.fullmatch(r"(?:% .*\n\n?)?```{include} (\S+)\n(?::.*\n)*```\n", page.read_text())
    if whole is not None:
        return anchors(page.parent / whole[1])
    told = [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles(page)]
    return {slug + (f"-{told[:i].count(slug)}" if slug in told[:i] else "") for i, slug in enumerate(told)}


def titles(page: Path) -> list[str]:
    """A page's headings of the first three levels, as they are read: of a link its text."""
    shown = re.sub(r"^(`{3,}).*?^\1$", "", page.read_text(), flags=re.M | re.S)
    return [re.sub(r"\[(.*?)\]\(.*?\)", r"\1", title) for title in re.findall(r"^#{1,3} (.*\S)", shown, re.M)]


def test_a_link_leads_somewhere_on_a_forge_too() -> None:
    """A label is the site's alone: what a link names is a file, and behind its # a heading of that page."""
    found = 0
    for page in sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")]):
        for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
            file, _, heading = link.partition("#")
            if ":" in file:
                continue
            there = (page.parent / file).resolve() if file else page
            assert there.exists(), (page, link)
            assert not heading or heading in anchors(there), (page, link)
            found += bool(heading)
    assert found > 50
