"""The examples of the README and the documentation run, their commands exist, and their links lead somewhere."""

import functools
import math
import re
import shlex
from pathlib import Path

import jax
import pytest
import typer

import neuralgde as gde
from neuralgde.cli import app

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(path, kinds):
    """The blocks of these kinds, each after as many empty lines as it has lines before it in its file."""
    text = path.read_text(encoding="utf-8")
    found = [m for m in FENCE.finditer(text) if m[1] in kinds]
    return ["\n" * text.count("\n", 0, m.start(2)) + m[2] for m in found]


def pages_with(kinds):
    return [pytest.param(path, id=path.stem) for path in PAGES if blocks(path, kinds)]


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """The files that the examples read, in the current folder; networks are trained for a few steps only."""
    rows = [
        f"{name},2024-01-{day:02d} {hour:02d}:00,{50 + 10 * math.sin(hour / 4) + 3 * k + (day * 7 + hour * 3) % 5}"
        for k, name in enumerate("abc")
        for day in range(5, 15)
        for hour in range(24)
    ]
    (tmp_path / "readings.csv").write_text("\n".join(["unique_id,ds,y", *rows]))
    (tmp_path / "edges.csv").write_text("source,target\na,b\nb,c\n")
    short = functools.partial(gde.Forecaster, steps=2, hidden=4, embedding=2, rank=2, batch_size=4)
    monkeypatch.setattr(gde, "Forecaster", short, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("path", pages_with({"python"}))
def test_examples_run(path, tables):
    # One after another, as a reader would; promotion as users have it.
    names = {"__name__": "__main__"}
    with jax.numpy_dtype_promotion("standard"):
        for text in blocks(path, {"python"}):
            exec(compile(text, str(path), "exec"), names)


def commands(path):
    for text in blocks(path, {"", "console", "sh"}):
        for line in text.replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            words = [w for i, w in enumerate(words) if i or "=" not in w]
            words = words[1:] if words and "=" in words[0] else words
            if words and words[0] in ("gde", "make"):
                yield words


@pytest.mark.parametrize("path", pages_with({"", "console", "sh"}))
def test_commands_exist(path):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for name, *words in commands(path):
        if name == "make":
            assert words[0] in targets, words
            continue
        command = typer.main.get_command(app)
        while hasattr(command, "commands"):
            assert words and words[0] in command.commands, (path.name, words)
            command = command.commands[words.pop(0)]
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        used = {word.split("=")[0] for word in words if word.startswith("-") and word != "-"}
        assert used <= known | {"--help"}, (path.name, words)


@pytest.mark.parametrize("path", [pytest.param(p, id=p.stem) for p in PAGES])
def test_links_lead_somewhere(path):
    text = FENCE.sub("", path.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith(("http", "#")):
            assert (path.parent / target.split("#")[0]).exists(), target
