"""The leaderboard as a page of one file: it opens from a disk, loads nothing, and sorts by a click on a column."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

_COLUMNS = (
    ("rank", "#"),
    ("name", "run"),
    ("author", "author"),
    ("bits_per_byte", "bits per byte"),
    ("flops", "FLOPs"),
    ("seconds", "seconds"),
    ("device", "device"),
    ("parameters", "parameters"),
    ("tokens", "tokens"),
    ("hashes", "code, recipe, data"),
    ("description", "description"),
)
_TEXTS = frozenset({"name", "author", "device", "hashes", "description"})


def page(title: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Everything that comes from records is escaped."""
    heads = "".join(
        f'<th scope="col"{"" if key in _TEXTS else " class=number"}><button type="button">{label}</button></th>'
        for key, label in _COLUMNS
    )
    body = "\n".join(f"<tr>{''.join(_cell(key, row) for key, _ in _COLUMNS)}</tr>" for row in rows)
    first = rows[0]
    by_chance = sorted(rows, key=lambda row: float(row["chance"]))
    chances = list(dict.fromkeys(_with_error(row["chance"], row["chance_standard_error"], 3) for row in by_chance))
    chance = chances[0] if len(chances) == 1 else f"{chances[0]} to {chances[-1]}, by tokenizer"
    note = (
        f"Held-out set {first['set']}; lower is better, and a model that gives all tokens the same probability gets"
        f" {chance}. ± is one standard error: differences of less than three of them may be chance."
    )
    return _PAGE.format(title=html.escape(title), note=html.escape(note), heads=heads, body=body)


def _with_error(value: float, error: float | None, digits: int) -> str:
    return f"{value:.{digits}f}" + ("" if error is None else f" ± {error:.{digits}f}")


def _cell(key: str, row: Mapping[str, Any]) -> str:
    if key == "hashes":
        shown = ", ".join((row.get(one) or "?")[:8] for one in ("code", "recipe_sha256", "data_sha256"))
        return f"<td><code>{html.escape(shown)}</code></td>"
    value = row.get(key)
    if key == "bits_per_byte":
        shown = _with_error(row["bits_per_byte"], row.get("standard_error"), 4)
    elif key in ("flops", "seconds"):
        shown = f"{value:.3g}"
    elif key in ("parameters", "tokens"):
        shown = f"{value:,}"
    else:
        shown = "" if value is None else str(value)
    if key in _TEXTS:
        return f"<td>{html.escape(shown)}</td>"
    return f'<td class=number data-value="{html.escape(str(value))}">{html.escape(shown)}</td>'


_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }}
h1 {{ font-size: 1.4rem; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }}
th, td {{ padding: 0.35rem 0.7rem; text-align: left; border-bottom: 1px solid #8884; vertical-align: top; }}
.number {{ text-align: right; white-space: nowrap; }}
th button {{ all: unset; cursor: pointer; font-weight: 600; }}
th button:focus-visible {{ outline: 2px solid; }}
code {{ font-size: 0.85em; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>{note}</p>
<div class="scroll"><table>
<thead><tr>{heads}</tr></thead>
<tbody>
{body}
</tbody>
</table></div>
<script>
document.querySelectorAll("th button").forEach((button, column) => {{
  let rising = true;
  button.addEventListener("click", () => {{
    const body = document.querySelector("tbody");
    const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
    const rows = [...body.rows].sort((one, other) =>
      String(key(one)).localeCompare(String(key(other)), "en", {{ numeric: true }}));
    const numbers = rows.every((row) => row.cells[column].dataset.value !== undefined);
    if (numbers) rows.sort((one, other) => Number(key(one)) - Number(key(other)));
    body.append(...(rising ? rows : rows.reverse()));
    rising = !rising;
  }});
}});
</script>
</body>
</html>
"""
