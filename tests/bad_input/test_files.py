"""Files that cannot be read, configurations and data: each is one sentence that names the file."""

from __future__ import annotations

import os
from pathlib import Path

import PIL.Image
import pytest

from tests.bad_input.refusal import FIT, assert_refused, below
from tests.cli.folders import Run
from tests.conftest import QUICK

pytestmark = pytest.mark.timeout(180)

BINARY = bytes(range(256)) * 20

CONFIGS: dict[str, tuple[str | bytes, str]] = {
    "binary": (BINARY, "--config my.yaml to be YAML, but 'utf-8' codec can't decode byte 0x80"),
    "NUL": ("a: \0", "--config my.yaml to be YAML, but"),
    "utf-16": ("run: {name: a}".encode("utf-16"), "--config my.yaml to be YAML, but 'utf-8' codec can't decode"),
    "latin": ("run: {name: café}".encode("latin-1"), "--config my.yaml to be YAML, but 'utf-8' codec can't decode"),
    "empty": ("", "--config my.yaml to name options, but it is empty; write some, or leave it out."),
    "comments alone": ("# nothing\n", "--config my.yaml to name options, but it is empty; write some"),
    "options of a command": ("fit: {run: {name: a}}", "as they are typed, but got fit; write what stands below it"),
    "a configuration in another": ("config: digits.yaml", "but got config; give --config several times"),
    "options of a class that are none": (
        "adversaries: [{class_path: FreeRider, init_args: }]",
        "init_args in --config my.yaml to have a name and a value each, but it is empty; leave the line out.",
    ),
    "a list": ("- 1\n- 2", "--config my.yaml to name options, but it holds list."),
    "prose": ("hello there", "--config my.yaml to name options, but it holds str."),
    "tabs": ("server:\n\tclass_path: RFFL", "--config my.yaml to be YAML, but"),
    "unclosed": ("server: {class_path: RFFL", "--config my.yaml to be YAML, but"),
    "two documents": ("run: {name: a}\n---\nrun: {name: b}", "--config my.yaml to be YAML, but"),
    "nested without end": ("server: " + "[" * 3000 + "]" * 3000, "--config my.yaml to be YAML, but"),
    "aliases of aliases": (
        "a0: &a0 [1, 1]\n" + "".join(f"a{i + 1}: &a{i + 1} [*a{i}, *a{i}]\n" for i in range(40)),
        "--config my.yaml to be a configuration, but its aliases make millions of values.",
    ),
    "code": ("server: !!python/object/apply:os.system ['true']", "--config my.yaml to be YAML, but"),
    "a section as a number": ("federation: 3", "federation in --config my.yaml to have a name and a value each, but"),
    "unknown section": ("federatio: {participants: 3}", "a known option, but got --federatio.participants"),
    "unknown option": ("federation: {participantz: 3}", "--federation.participantz; did you mean --federation.part"),
    "a word for a number": ("federation: {participants: three}", "--federation.participants to be a whole number"),
    "an unknown option of a class": (
        "server: {class_path: RFFL, init_args: {gama: 1}}",
        "but got --server.gama; did you mean --server.gamma?",
    ),
    "a section twice": (
        "data: {init_args: {split: CLA}}\ntrainer: {max_epochs: 2}\ndata: {init_args: {batch_size: 32}}",
        "Expected every key of --config my.yaml once in its place, but got data twice, again in line 3; give",
    ),
    "an option twice, below": (
        "model:\n  local_epochs: 1\n  local_epochs: 2",
        "but got local_epochs twice, again in li",
    ),
    "an option twice, in a list": (
        "adversaries:\n- class_path: Sybil\n  init_args: {jitter: 0.1}\n  init_args: {jitter: 0.2}",
        "but got init_args twice, again in line 4",
    ),
    "a name that is null": ("run: {name: }", "--run.name to be"),
}
CONFIGS |= {
    f"an empty {group}": (
        f"{group}:\nseed_everything: 2\n",
        f"Expected {group} in --config my.yaml to have something below it, but it is empty; leave the line out.",
    )
    for group in ("federation", "model", "run", "standalone", "trainer", "data", "server", "adversaries")
}

GOOD = "text,label\n" + "".join(f"film {i},{i % 2}\n" for i in range(60))
TABLES: dict[str, tuple[str | bytes, tuple[object, ...], str]] = {
    "empty": ("", (), "at least two classes in column label of --data.train_file my.csv, but there is none"),
    "line ends of old Macs": (
        GOOD.replace("\n", "\r"),
        (),
        "my.csv to be a .csv file with a line for each row",
    ),
    "an endless field": (GOOD + "x" * 140_000 + ",1\n", (), "field larger than field limit (131072)"),
    "binary": (BINARY, (), "my.csv to be utf-8, but line 2 has the byte 0x80"),
    "latin": (GOOD.encode() + b"caf\xe9,1\n", (), "my.csv to be utf-8, but line 62 has the byte 0xe9"),
    "unknown encoding": (
        GOOD,
        ("--data.encoding", "utf-99"),
        "--data.encoding to be one that Python knows, but got",
    ),
    "no text encoding": (
        GOOD,
        ("--data.encoding", "hex"),
        "--data.encoding to be one that Python knows, but got",
    ),
    "another encoding": (GOOD, ("--data.encoding", "utf-16"), "my.csv to be utf-16, but"),
    "a title": (
        "Reviews of 2024\n" + GOOD,
        (),
        "names of columns in the first line of --data.train_file my.csv, but it has 'Reviews of 2024' alone, and "
        "line 2 has 2 fields; take out what stands above the names",
    ),
    "other columns": ("film,stars\na,1\n", (), "a column text in --data.train_file my.csv, but its first line has"),
    "one column for both": (GOOD, ("--data.text", "label"), "--data.text and --data.label to be two columns"),
    "no label": (GOOD + "word,\n", (), "a label in column label of --data.train_file my.csv, but line 62 has none"),
    "a field short": (
        GOOD + "word\n",
        (),
        "2 fields in every line of --data.train_file my.csv, as in its first, but line",
    ),
    "no text": (GOOD + ",1\n", (), "a sentence in column text, but line 62 of --data.train_file my.csv has none"),
    "one class": ("text,label\n" + "a,1\n" * 50, (), "at least two classes in column label"),
    "nothing for the test": (GOOD, ("--data.test_share", 0), "--data.test_share to lie between 0 and 1, but got 0"),
    "no such test": (GOOD, ("--data.test_file", "nowhere.csv"), "a file at --data.test_file nowhere.csv"),
    "vocabulary of two": (GOOD, ("--data.vocabulary_size", 2), "--data.vocabulary_size to be at least 3, but got 2"),
    "vocabulary beyond": (GOOD, ("--data.vocabulary_size", 10**12), "--data.vocabulary_size to be at most 2147483647"),
}
JSON_LINES = {
    "no JSON": ('{"text": \n', "a JSON object in line 1 of --data.train_file my.jsonl, but it is no JSON"),
    "a list": ("[1]\n", "a JSON object in line 1 of --data.train_file my.jsonl, but got list"),
    "nested without end": ("[" * 100_000 + "\n", "a JSON object in line 1"),
    "half of a character as text": (
        '{"text": "a", "label": 0}\n{"text": "a \\ud83d b", "label": 1}\n',
        "in column text, but line 2 of --data.train_file my.jsonl has \\ud83d, half of one; correct it",
    ),
    "half of a character as a label": (
        '{"text": "a", "label": "\\ude00"}\n',
        "in column label, but line 1 of --data.train_file my.jsonl has \\ude00, half of one; correct",
    ),
    "a number without end": ('{"text": "a", "label": ' + "9" * 5000 + "}\n", "a JSON object in line 1"),
}
NAMES = {
    "nowhere.csv": "a file at --data.train_file nowhere.csv, but it cannot be read (No such file or directory).",
    "": "--data.train_file to be a .csv, .tsv or .jsonl file, but got .",
    "a\0b.csv": "but it cannot be read (embedded null byte).",
    "n" * 300 + ".csv": "but it cannot be read (File name too long).",
    "my.xlsx": "--data.train_file to be a .csv, .tsv or .jsonl file, but got my.xlsx.",
}
TEXT = (
    "fit", "--data", "TextFile", "--federation.participants", 2, *QUICK, "--trainer.max_epochs", 1,
    "--model.network", "TextCNN", "--model.network.width", 4, "--model.network.kernels", 4,
)  # fmt: skip
IMAGES = (
    "fit", "--data", "ImageFolder", "--data.folder", "images", "--data.image_size", 8, "--federation.participants", 2,
    *QUICK, "--trainer.max_epochs", 1, "--model.network", "Perceptron", "--model.network.inputs", 192,
    "--model.network.classes", 2,
)  # fmt: skip


def bytes_of(content: str | bytes) -> bytes:
    return content if isinstance(content, bytes) else content.encode()


@pytest.mark.parametrize("mistake", CONFIGS)
def test_a_configuration_that_says_no_options(rffl: Run, here: Path, mistake: str) -> None:
    """A user would meet the parser's traceback, or a section would be left out in silence."""
    content, expected = CONFIGS[mistake]
    (here / "my.yaml").write_bytes(bytes_of(content))
    assert_refused(rffl(*FIT, "--config", "my.yaml"), expected)
    assert below(here) == {here / "my.yaml"}


@pytest.mark.parametrize(
    "name", ["nowhere.yaml", "nowhere", "folder", "", "a\nb.yaml", "a\0b.yaml", "n" * 300, "/x://y"]
)
def test_a_configuration_that_is_none(rffl: Run, here: Path, name: str) -> None:
    """Likewise where there is no such file."""
    (here / "folder").mkdir()
    assert_refused(rffl("fit", "--config", name), "--config to be a file or one of the package's, but got")
    assert below(here) == {here / "folder"}


def test_the_folder_of_a_run_as_a_configuration(rffl: Run, here: Path) -> None:
    """Whoever has the folder before them is sent to the package's configurations."""
    (here / "runs" / "now").mkdir(parents=True)
    (here / "runs" / "now" / "config.yaml").write_text("{}")
    for given in ("runs/now", "runs/now/"):
        assert_refused(rffl("fit", "--config", given), "the folder of a run; give runs/now/config.yaml.")


@pytest.mark.parametrize("mistake", TABLES)
def test_a_table_that_cannot_be_read(rffl: Run, here: Path, mistake: str) -> None:
    """Whoever brings sentences of their own would search our code for what is in their file."""
    content, words, expected = TABLES[mistake]
    (here / "my.csv").write_bytes(bytes_of(content))
    assert_refused(rffl(*TEXT, "--data.train_file", "my.csv", *words), expected)
    assert below(here) == {here / "my.csv"}


@pytest.mark.parametrize("mistake", JSON_LINES)
def test_json_that_cannot_be_read(rffl: Run, here: Path, mistake: str) -> None:
    """Likewise for lines of JSON."""
    content, expected = JSON_LINES[mistake]
    (here / "my.jsonl").write_text(content)
    assert_refused(rffl(*TEXT, "--data.train_file", "my.jsonl"), expected)
    assert below(here) == {here / "my.jsonl"}


@pytest.mark.parametrize("name", NAMES)
def test_a_table_that_is_not_there(rffl: Run, here: Path, name: str) -> None:
    """Likewise for names of files."""
    assert_refused(rffl(*TEXT, "--data.train_file", name), NAMES[name])
    assert below(here) == set()


def pictures(folder: Path) -> None:
    """Two classes of twelve images."""
    for part in ("train", "test"):
        for name in "ab":
            (folder / part / name).mkdir(parents=True)
            for i in range(12):
                PIL.Image.new("RGB", (8, 8), (i, i, i)).save(folder / part / name / f"{i}.png")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--data.folder", "nowhere"), "--data.folder nowhere to have the folders train and test"),
        (("--data.image_size", 0), "--data.image_size to be at least 1, but got 0"),
        (("--data.image_size", 10**9), "--data.image_size to be at most 4096, but got 1e+09"),
        (("--data.white", 0), "--data.white to be at least 1, but got 0"),
        (("--data.white", 70_000), "--data.white to be at most 65535, but got 70000"),
        (("--data.channels", "cmyk"), "--data.channels to be one of rgb, grey, but got cmyk"),
        ((), "images below --data.folder, but images/train/a/3.png cannot be read"),
    ],
)
def test_images_that_cannot_be_read(rffl: Run, here: Path, words: tuple[object, ...], expected: str) -> None:
    """Likewise for images, one of which is torn."""
    pictures(here / "images")
    (here / "images" / "train" / "a" / "3.png").write_bytes(b"\x89PNG")
    before = below(here)
    assert_refused(rffl(*IMAGES, *words), expected)
    assert below(here) == before


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (b"caf\xe9", r"names of class folders in images/train of --data.folder to be UTF-8, but caf\xe9 is not"),
        ("a\u0308 \u00e4".encode(), "one folder for each class in images/train of --data.folder, but there are two"),
    ],
)
def test_names_of_classes_that_are_none(rffl: Run, here: Path, name: bytes, expected: str) -> None:
    """Likewise for folders by such names, of which nothing may be written."""
    pictures(here / "images")
    for part in (b"train", b"test"):
        for old, new in zip((b"a", b"b"), name.split(), strict=False):
            os.rename(b"images/" + part + b"/" + old, b"images/" + part + b"/" + new)
    before = below(here)
    assert_refused(rffl(*IMAGES), expected)
    assert below(here) == before


def test_pictures_without_labels_that_are_not_there(rffl: Run, here: Path) -> None:
    """Likewise for what is to be predicted."""
    pictures(here / "images")
    assert rffl(*IMAGES, "--run.root", "runs", "--run.name", "one").code == 0
    (last,) = (here / "runs").rglob("last.ckpt")
    asked = ("--ckpt_path", last, "--data.predict_folder", "nowhere", "--run.root", "predicted")
    ended = rffl("predict", *IMAGES[1:], *asked)
    assert_refused(ended, "--data.predict_folder to be a folder of images, but there is no folder nowhere")
    assert not (here / "predicted").exists()


@pytest.mark.parametrize("damaged", [True, False])
def test_a_data_set_that_is_not_as_published(
    rffl: Run, here: Path, damaged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that are missing, and others in their place: what to do about either is said."""
    monkeypatch.setattr("torchvision.datasets.MNIST.mirrors", [])
    raw = here / "data" / "MNIST" / "raw"
    names = [f"{part}-{kind}-ubyte" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
    if damaged:
        raw.mkdir(parents=True)
        for name in names:
            (raw / name).write_bytes(b"\0\0\x08\x03")
    before = below(here)
    ended = rffl(*FIT, "--config", "mnist.yaml", "--data.data_dir", "data")
    assert_refused(ended, "files of your own in that layout want a subclass" if damaged else f"{names[0]} is missing")
    assert below(here) == before
