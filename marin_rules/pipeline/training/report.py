"""What the report shows of a training step: `report/loss.svg`, and `report/baselines.csv` where there are baselines."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from marin_rules.pipeline.core.files import into_place, join
from marin_rules.pipeline.evaluation.tables import plain
from marin_rules.pipeline.training.metrics import SET_LOSS, Line


def write_loss_curve(folder: str, lines: Sequence[Line]) -> None:
    """Training and evaluation loss, and below them tokens a second. The same numbers make the same bytes."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5.5), layout="constrained")
    FigureCanvasSVG(figure)
    losses, speeds = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    _plot(losses, lines, "train/loss", label="training", linewidth=0.9)
    for label, name in evaluated_sets(lines).items():
        _plot(losses, lines, name, label=plain(label), marker="o", markersize=3.5)
    losses.set_ylabel("loss (nats a token)")
    losses.legend()
    _plot(speeds, lines, "tokens_per_second", linewidth=0.9)
    speeds.set_ylabel("tokens/s")
    speeds.set_xlabel("step")
    speeds.set_ylim(bottom=0)
    with (
        matplotlib.rc_context({"svg.hashsalt": "marin-rules"}),
        into_place(join(folder, "loss.svg")) as file,
    ):
        figure.savefig(file, format="svg", metadata={"Date": None})


def evaluated_sets(lines: Sequence[Line]) -> dict[str, str]:
    """The losses to draw, by label: of each set if there are several, because what one gains another may lose."""
    names = sorted({name for line in lines for name in line})
    sets = {match[1]: name for name in names if (match := SET_LOSS.fullmatch(name))}
    return sets if len(sets) > 1 else {"evaluation": "eval/loss"}


def _plot(axes: Any, lines: Sequence[Line], name: str, **style: Any) -> None:
    points = [(line["step"], line[name]) for line in lines if name in line]
    if points:
        axes.plot(*zip(*points, strict=True), **style)


def write_baselines(folder: str, compared: Mapping[str, Mapping[str, float]]) -> None:
    """A row for the model and for each n-gram model."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["model", "loss", "bits per byte"])
    for name, values in compared.items():
        writer.writerow([name, f"{values['loss']:.4f}", f"{values['bits_per_byte']:.4f}"])
    with into_place(join(folder, "baselines.csv")) as file:
        file.write(text.getvalue().encode())
