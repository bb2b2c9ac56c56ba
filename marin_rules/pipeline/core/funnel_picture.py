"""The account of a corpus as a picture: for each stage a bar of documents, one of tokens, and the reasons beside."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_MOST_REASONS = 6
"""Of a stage, in the picture; the others are added up."""

_COLOURS = ("#c62828", "#e8871e", "#8a6d00", "#7b5ea7", "#52606d", "#b07a6e", "#9aa5b1")
_PASSED_ON = "#18794e"


@dataclass(frozen=True)
class StageCounts:
    """What a stage did."""

    name: str
    documents_in: int
    documents_out: int
    joined: int
    """How many of those that came in are of other sources than the stage before."""

    left_out: Mapping[str, int]
    """Rejected and dropped documents by reason, the most frequent first."""

    tokens_in: int | None = None
    tokens_out: int | None = None
    tokens_left_out: Mapping[str, int] = field(default_factory=dict)
    """By those of the reasons whose tokens were counted."""

    bytes_out: int | None = None


def in_words(row: StageCounts) -> str:
    """A line about a stage."""
    tokens = "" if row.tokens_out is None else f" with {row.tokens_out:,} tokens"
    reasons = "; ".join(_reason(*one) for one in _reasons(row, len(row.left_out)))
    joined = f" ({row.joined:,} of them from other sources)" if row.joined else ""
    return f"{row.documents_in:,} in{joined}, {row.documents_out:,} out{tokens}" + (
        f" (left out: {reasons})" if reasons else ""
    )


def picture(title: str, rows: Sequence[StageCounts]) -> bytes:
    """As SVG. The same counts are the same bytes."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    lines = [max(2, len(_reasons(row, _MOST_REASONS))) + 1 for row in rows]
    places = [sum(lines[:number]) + (lines[number] - 1) / 2 for number in range(len(rows))]
    has_tokens = any(row.tokens_out is not None for row in rows)
    with matplotlib.rc_context({"svg.hashsalt": "funnel", "svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(12 if has_tokens else 9, 1.1 + 0.2 * sum(lines)), layout="constrained")
        FigureCanvasSVG(figure)
        widths = [3, 3, 3.2] if has_tokens else [3, 3.2]
        panels = figure.subplots(1, len(widths), sharey=True, gridspec_kw={"width_ratios": widths})
        _draw_documents(panels[0], rows, places)
        if has_tokens:
            _draw_tokens(panels[1], rows, places)
        _write_reasons(panels[-1], rows, places)
        panels[0].set_yticks(places, [row.name for row in rows])
        panels[0].set_ylim(sum(lines) - 0.5, -1)
        figure.suptitle(title)
        drawing = io.BytesIO()
        figure.savefig(drawing, format="svg", metadata={"Date": None})
    return drawing.getvalue()


def _draw_documents(axes: Any, rows: Sequence[StageCounts], places: Sequence[float]) -> None:
    for place, row in zip(places, rows, strict=True):
        lost = [documents for _, documents, _ in _reasons(row, _MOST_REASONS)]
        _bar(axes, place, row.documents_out, lost)
        joined = f" ({row.joined:,} joined)" if row.joined else ""
        axes.text(0, place - 0.7, f"{row.documents_out:,} of {row.documents_in:,}{joined}", va="bottom")
    _finish(axes, "documents (green: passed on)", max(row.documents_in for row in rows))


def _draw_tokens(axes: Any, rows: Sequence[StageCounts], places: Sequence[float]) -> None:
    longest = 0
    for place, row in zip(places, rows, strict=True):
        if row.tokens_out is None:
            axes.text(0, place, "not counted", va="center", color=_COLOURS[-1])
            continue
        lost = [tokens or 0 for _, _, tokens in _reasons(row, _MOST_REASONS)]
        _bar(axes, place, row.tokens_out, lost)
        axes.text(0, place - 0.7, f"{row.tokens_out:,}{_compared(row.tokens_out, row.tokens_in)}", va="bottom")
        longest = max(longest, row.tokens_out + sum(lost))
    _finish(axes, "tokens", longest)


def _compared(out: int, given: int | None) -> str:
    """To what came in. `tokenize` adds tokens, which say where a document begins and ends."""
    if given is None:
        return ""
    return f" of {given:,}" if out <= given else f" ({given:,} and {out - given:,} added)"


def _bar(axes: Any, place: float, passed_on: int, lost: Sequence[int]) -> None:
    axes.barh(place, passed_on, color=_PASSED_ON, height=1.1)
    left = passed_on
    for colour, number in zip(_COLOURS, lost, strict=False):
        axes.barh(place, number, left=left, color=colour, height=1.1)
        left += number


def _write_reasons(axes: Any, rows: Sequence[StageCounts], places: Sequence[float]) -> None:
    for place, row in zip(places, rows, strict=True):
        reasons = _reasons(row, _MOST_REASONS)
        for number, (colour, one) in enumerate(zip(_COLOURS, reasons, strict=False)):
            axes.text(0, place + number - (len(reasons) - 1) / 2, _reason(*one), va="center", color=colour)
    axes.set_xlim(0, 1)
    axes.set_xlabel("left out")
    axes.set_xticks([])
    axes.tick_params(left=False)
    for side in axes.spines.values():
        side.set_visible(False)


def _finish(axes: Any, name: str, longest: int) -> None:
    axes.set_xlim(0, longest or 1)
    axes.set_xlabel(name)
    axes.locator_params(axis="x", nbins=4)
    axes.xaxis.set_major_formatter(lambda number, place: f"{number:,.0f}")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _reasons(row: StageCounts, most: int) -> list[tuple[str, int, int | None]]:
    """Each with its documents and tokens; those beyond `most` as one."""
    items = [(reason, number, row.tokens_left_out.get(reason)) for reason, number in row.left_out.items()]
    if len(items) <= most:
        return items
    rest = items[most:]
    tokens = sum(number or 0 for _, _, number in rest) if row.tokens_left_out else None
    return [*items[:most], (f"for {len(rest)} other reasons", sum(number for _, number, _ in rest), tokens)]


def _reason(reason: str, documents: int, tokens: int | None) -> str:
    return f"{documents:,} {reason}" + ("" if tokens is None else f" ({tokens:,} tokens)")
