"""What mkdocs does besides: a page of the API for every public folder, and formulas as MathML."""

import html
import re
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.structure.files import File

SOURCE = Path(__file__).parent.parent / "src" / "neuralgde"
FOLDERS = ("graph", "nn", "field", "integrate", "model", "train", "forecast", "simulate", "data", "report")
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_config(config):
    pages = [{name: f"api/{name}.md"} for name in (*_folders(), "metrics")]
    config.nav = [{"API": pages} if "API" in entry else entry for entry in config.nav]
    return config


def on_files(files, config):
    for name in _folders():
        text = (SOURCE / name / "__init__.py").read_text(encoding="utf-8")
        public = re.findall(r"^from \.\S+ import (\w+) as \1$", text, re.MULTILINE)
        # Constants have no docstring of their own to show.
        parts = "\n\n".join(f"::: neuralgde.{name}.{entry}" for entry in public if not entry.isupper())
        files.append(File.generated(config, f"api/{name}.md", content=f"# gde.{name}\n\n{_opening(text)}\n\n{parts}\n"))
    files.append(File.generated(config, "api/metrics.md", content="# gde.metrics\n\n::: neuralgde.metrics\n"))
    return files


def on_page_content(content, **_):
    """Browsers show MathML without a script, and so without a network."""
    return FORMULA.sub(
        lambda m: convert(html.unescape(m[3]).strip(), display="inline" if m[1] == "span" else "block"), content
    )


def _folders():
    return [name for name in FOLDERS if (SOURCE / name / "__init__.py").exists()]


def _opening(text):
    """The module's docstring."""
    return text.split('"""')[1].strip()
