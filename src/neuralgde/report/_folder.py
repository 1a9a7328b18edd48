"""The page of a run folder, whatever command wrote it."""

from pathlib import Path

from .._errors import InputError
from ._page import write_page
from ._page_data import Page
from ._page_files import has_page_data, read_page_data
from ._result import Result, read_result


def folder_page(folder: str | Path) -> Page:
    """The page of a folder's files: forecasts (`page.json`), or an experiment (`result.json` and figures)."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: expected the folder of a run, but there is none of that name.")
    if has_page_data(folder):
        return read_page_data(folder)
    if (folder / "result.json").is_file():
        return _experiment(read_result(folder), folder)
    raise InputError(
        f"{folder}: has neither page.json nor result.json. Give a folder that `gde demo`, `gde backtest -o` or "
        "`gde reproduce -o` wrote."
    )


def report_folder(folder: str | Path, path: str | Path | None = None) -> Path:
    """Write the page of a run folder, `report.html` in it unless `path` says otherwise."""
    page = folder_page(folder)
    return write_page(Path(folder) / "report.html" if path is None else path, page)


def _experiment(result: Result, folder: Path) -> Page:
    figures = {
        path.stem.replace("_", " ").replace("-", " "): path.read_bytes() for path in sorted(folder.glob("*.png"))
    }
    models = len({row.model for row in result.rows})
    return Page(
        f"Experiment: {result.experiment}",
        (
            f"{models} models, {result.seeds} seed{'' if result.seeds == 1 else 's'}, {_duration(result.seconds)}.",
            "Figures are means over the seeds ± their standard deviation; those in italics are the paper's.",
        ),
        config=result.config,
        versions=result.versions,
        rows=result.rows,
        figures=figures,
    )


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
