"""The tables of a page as HTML, readable without its script."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np

from ._page_data import Scores
from ._result import Row
from ._table import short_number
from ._verdict import HIGHER_IS_BETTER, metric_name

_DIGITS = 4


def score_table(scores: Scores) -> str:
    """Models down, metrics across."""
    rows = [
        ([_text(model), *(_number(v) for v in values)], "ours" if i == 0 else "")
        for i, (model, values) in enumerate(zip(scores.models, scores.overall, strict=True))
    ]
    return _table(["model", *(metric_name(m, short=True) for m in scores.metrics)], rows)


def horizon_table(scores: Scores) -> str:
    """Models down, horizons across, by the metric that decides."""
    if scores.by_horizon is None:
        return ""
    rows = [
        ([_text(model), *(_number(v) for v in values)], "ours" if i == 0 else "")
        for i, (model, values) in enumerate(zip(scores.models, scores.by_horizon[:, 0], strict=True))
    ]
    return _table(["model", *scores.horizons], rows)


def node_table(scores: Scores, most: int) -> str:
    """Nodes down, the largest error first; our metrics across, then every other model by the one that decides."""
    if scores.by_node is None:
        return ""
    ours, others = scores.by_node[0], scores.by_node[1:, 0]
    key = ours[0] if scores.metrics[0] in HIGHER_IS_BETTER else -ours[0]
    order = np.argsort(np.where(np.isfinite(key), key, np.inf), kind="stable")[:most]
    # Of one node, its RMSE and the mean over sensors of theirs are the same: a column that repeats another is left out.
    repeats = [any(np.array_equal(ours[k], ours[j], equal_nan=True) for j in range(k)) for k in range(len(ours))]
    shown = [k for k, repeated in enumerate(repeats) if not repeated]
    head = ["node", *(metric_name(scores.metrics[k].removesuffix("_sensor"), short=True) for k in shown)]
    head += [
        f"{model}: {metric_name(scores.metrics[0].removesuffix('_sensor'), short=True)}" for model in scores.models[1:]
    ]
    rows = [([_text(scores.nodes[i]), *(_number(v) for v in (*ours[shown, i], *others[:, i]))], "") for i in order]
    return _table(head, rows, sortable=True)


def result_tables(rows: Sequence[Row]) -> str:
    """A table a metric: models down, settings across, mean ± standard deviation, the paper's figures beside ours."""
    parts = []
    for metric in dict.fromkeys(row.metric for row in rows):
        chosen = [row for row in rows if row.metric == metric]
        settings = list(dict.fromkeys(row.setting for row in chosen))
        cells = {(row.model, row.setting): row for row in chosen}
        lines = []
        for model in dict.fromkeys(row.model for row in chosen):
            found = [cells.get((model, setting)) for setting in settings]
            if any(row is not None and row.paper is not None for row in found):
                papers = [_number(None if row is None else row.paper) for row in found]
                lines.append(([_text(f"{model}, the paper's"), *papers], "paper"))
            lines.append(([_text(model), *(_mean_and_deviation(row) for row in found)], ""))
        parts.append(f"<h3>{escape(metric_name(metric))}</h3>" + _table(["model", *settings], lines))
    return "".join(parts)


def facts(pairs: Iterable[tuple[str, Any]]) -> str:
    """Names and values; a value that has parts has its parts' names after its own, with a point between."""
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(str(value))}</dd>" for name, value in _flat(pairs))
    return f"<dl>{items}</dl>"


def _flat(pairs: Iterable[tuple[str, Any]]) -> Iterable[tuple[str, str]]:
    for name, value in pairs:
        if isinstance(value, dict):
            yield from _flat((f"{name}.{key}", part) for key, part in value.items())
        elif isinstance(value, list | tuple) and any(isinstance(part, dict) for part in value):
            yield from _flat((f"{name}.{i}", part) for i, part in enumerate(value))
        elif isinstance(value, list | tuple):
            yield str(name), ", ".join(short_number(v, 6) if isinstance(v, float) else str(v) for v in value)
        elif isinstance(value, float):
            yield str(name), short_number(value, 6)
        else:
            yield str(name), str(value)


def _table(head: Sequence[str], rows: Sequence[tuple[list[str], str]], sortable: bool = False) -> str:
    title = "<button type='button'>{}</button>" if sortable else "{}"
    heads = "".join(f"<th scope='col'>{title.format(escape(h))}</th>" for h in head)
    body = "".join(
        f"<tr class='{kind}'>{''.join(cells)}</tr>" if kind else f"<tr>{''.join(cells)}</tr>" for cells, kind in rows
    )
    # What scrolls has to be reachable by keyboard, and to have a name then.
    return (
        f"<div class='scroll' tabindex='0' role='region' aria-label='{escape(head[0])} table'>"
        f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _text(value: str) -> str:
    return f"<td>{escape(value)}</td>"


def _number(value: float | None) -> str:
    if value is None or not np.isfinite(value):
        return "<td data-value='-1'>–</td>"
    return f"<td data-value='{value:.8g}'>{short_number(float(value), _DIGITS)}</td>"


def _mean_and_deviation(row: Row | None) -> str:
    if row is None:
        return "<td></td>"
    if not np.isfinite(row.mean):
        return "<td>failed</td>"
    return f"<td>{short_number(row.mean, _DIGITS)}{f' ± {short_number(row.std, 2)}' if row.std else ''}</td>"
