"""Tables and figures for people: CSV files and SVG figures, the same bytes for the same numbers."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from marin_rules.pipeline.core.files import into_place


def write_csv(path: str, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """A line of names, then the rows; an empty cell where a number is not known."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(row.get(name)) for name in columns} for row in rows)
    with into_place(path) as file:
        file.write(text.getvalue().encode())


def signed(value: float, error: float | None) -> str:
    """`0.7312 ± 0.0121`."""
    return f"{value:.4f}" + (" ± ?" if error is None else f" ± {error:.4f}")


def signed_chance(value: float | None, error: float | None) -> str:
    """What stands beside a score, in brackets."""
    return "chance unknown" if value is None else f"chance {signed(value, error)}"


def plain(text: str) -> str:
    """As a label of a figure, where dollars would begin a formula, and an underscore at the start would hide it."""
    return (" " * text.startswith("_")) + text.replace("$", r"\$")


def shortened(number: float) -> str:
    """`200k`, `1.5B`: a number of tokens or parameters beside an axis."""
    for unit, name in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= unit:
            return f"{number / unit:g}{name}"
    return f"{number:g}"


def new_figure(width: float = 7.0, height: float = 4.5) -> tuple[Any, Any]:
    """A figure and its axes, drawn without a display."""
    figure, (axes,) = new_panels(width, [height])
    return figure, axes


def new_panels(width: float, heights: Sequence[float]) -> tuple[Any, list[Any]]:
    """A figure of several axes, one below the other."""
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, sum(heights)), layout="constrained")
    FigureCanvasSVG(figure)
    return figure, list(figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights).flat)


def write_svg(path: str, figure: Any) -> None:
    """Without a date, and with ids that depend on nothing but the figure."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "marin-rules"}), into_place(path) as file:
        figure.savefig(file, format="svg", metadata={"Date": None})


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else value
