"""A reliability table as `calibration.csv` and `calibration.svg`, the same bytes for the same table."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from marin_rules.pipeline.core.classifier_metrics import Bin
from marin_rules.pipeline.core.files import into_place, join


def write_calibration(folder: str, table: Sequence[Bin]) -> None:
    rows = io.StringIO(newline="")
    writer = csv.writer(rows, lineterminator="\n")
    writer.writerow(Bin._fields)
    writer.writerows(table)
    with into_place(join(folder, "calibration.csv")) as file:
        file.write(rows.getvalue().encode())
    with into_place(join(folder, "calibration.svg")) as file:
        file.write(_figure(table))


def _figure(table: Sequence[Bin]) -> bytes:
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with matplotlib.rc_context({"svg.hashsalt": "marin-rules", "svg.fonttype": "none"}):
        figure = Figure(figsize=(5, 4))
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        axes.plot([0, 1], [0, 1], color="grey", linewidth=1, linestyle="--", label="calibrated")
        for label in sorted({one.label for one in table}):
            bins = [one for one in table if one.label == label]
            axes.plot([one.mean_score for one in bins], [one.share for one in bins], marker="o", label=label)
        axes.set(xlabel="mean score", ylabel="share of documents with the label", xlim=(0, 1), ylim=(0, 1))
        axes.legend()
        figure.tight_layout()
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()
