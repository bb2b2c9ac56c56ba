"""Text or Markdown from HTML pages: WARC files or shards with a field of HTML in, documents out.

A page without text, or one on which the library fails, is rejected; there are no documents without text. WARC records
that are not pages (requests, redirects, images) are dropped and counted. Pages of a known kind can be cleaned first
(`cleaners/`): the library then extracts text from what is left.

| library | text | Markdown | ms a page, about |
|---|---|---|---|
| resiliparse | yes | no | 0.5 |
| html-to-markdown | no | yes | 2 |
| trafilatura | yes | yes | 15 |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from marin_rules import THIS_OUTPUT_PATH, InputName
from marin_rules.pipeline.cleaners import Cleaner, Unusable, Unwanted
from marin_rules.pipeline.core.account import Account
from marin_rules.pipeline.core.errors import DataError
from marin_rules.pipeline.core.pages import decoded_page
from marin_rules.pipeline.core.records import Record
from marin_rules.pipeline.core.shard_files import FORMATS
from marin_rules.pipeline.core.shard_map import DamagedShards, Shard, ShardSettings, map_shards
from marin_rules.pipeline.core.warc import WARC_SUFFIXES, read_pages

if TYPE_CHECKING:
    from resiliparse.parse.html import HTMLTree

type Library = Literal["resiliparse", "trafilatura", "html-to-markdown"]
type TextFormat = Literal["text", "markdown"]

type _ToText = Callable[[str | HTMLTree], str]


@dataclass(frozen=True)
class ExtractConfig:
    """Documents from the HTML pages below `input_path`."""

    input_path: str | InputName
    """Folder of WARC files, or of shards whose records have an `id` and a field with HTML."""

    library: Library = "resiliparse"
    text_format: TextFormat = "text"

    main_content: bool = True
    """Whether resiliparse leaves out navigation, headers and footers, which is not asked of pages that were cleaned.
    The other libraries do so in any case."""

    cleaner: Cleaner | None = None
    """Removes from pages of its kind what is not text."""

    largest_page: int = 4_000_000
    """Characters. A longer page is rejected: resiliparse takes minutes for one of 8 million that is one long list of
    paragraphs, and hours for larger ones. html-to-markdown takes seconds for any."""

    html_field: str = "html"
    """Which field of a record is the page. Its other fields become those of the document."""

    source: str = "web"
    """The `source` of documents whose page names none."""

    damaged_shards: DamagedShards = "fail"
    output_format: str = ".jsonl.zst"
    shards: ShardSettings = field(default_factory=ShardSettings)
    output_path: str = THIS_OUTPUT_PATH


def extract(config: ExtractConfig) -> dict[str, Any]:
    """Write a shard of documents for each input file."""
    to_text = _extractor(config)

    def transform(shard: Shard, account: Account) -> Iterator[Record]:
        if shard.name.endswith(WARC_SUFFIXES):
            yield from _from_warc(shard, account, config, to_text)
        else:
            yield from _from_records(shard, account, config, to_text)

    return map_shards(
        transform,
        str(config.input_path),
        config.output_path,
        output_format=config.output_format,
        suffixes=(*WARC_SUFFIXES, *FORMATS),
        settings=config.shards,
        damaged_shards=config.damaged_shards,
    )


def _from_records(shard: Shard, account: Account, config: ExtractConfig, to_text: _ToText) -> Iterator[Record]:
    html_field = config.html_field
    used_fields = {html_field, *(config.cleaner.used_fields if config.cleaner else ())}

    def fault(record: Record) -> str | None:
        if not isinstance(record.get("id"), str) or not record["id"]:
            return "no id"
        return None if isinstance(record.get(html_field), str) else f"no {html_field}"

    for row in shard.rows(account, fault):
        text = _text_of(row.record, row.number, account, config, to_text)
        if text is not None:
            others = {name: value for name, value in row.record.items() if name not in used_fields}
            yield {"source": config.source, **others, "text": text}


def _from_warc(shard: Shard, account: Account, config: ExtractConfig, to_text: _ToText) -> Iterator[Record]:
    pages = read_pages(shard.path, shard.name, account, shard.settings.largest_record_bytes)
    for page in shard.until_damage(pages, account):
        record = {"id": page.id, config.html_field: decoded_page(page.body, page.charset)}
        text = _text_of(record, page.number, account, config, to_text)
        if text is not None:
            yield {
                "id": page.id,
                "text": text,
                "source": config.source,
                "metadata": {"url": page.url, "date": page.date},
            }


def _text_of(record: Record, number: int, account: Account, config: ExtractConfig, to_text: _ToText) -> str | None:
    """None for a page that was rejected or dropped."""
    html, id = record[config.html_field], record["id"]
    if len(html) > config.largest_page:
        account.reject(number, "too large a page", id=id, detail=f"{len(html):,} characters", content=html)
        return None
    try:
        text = to_text(html if config.cleaner is None else config.cleaner.clean({**record, "html": html}))
    except Unusable as error:
        account.reject(number, error.reason, id=id, detail=error.detail, content=html)
        return None
    except Unwanted as unwanted:
        account.drop(str(unwanted))
        return None
    except Exception as error:  # A library met something unforeseen: the page's fault, not the step's.
        account.reject(number, "the library failed", id=id, detail=f"{type(error).__name__}: {error}", content=html)
        return None
    if not text or text.isspace():
        account.reject(number, "a page without text", id=id, content=html)
        return None
    return text


def _extractor(config: ExtractConfig) -> _ToText:
    library, markdown = config.library, config.text_format == "markdown"
    if library == "resiliparse" and not markdown:
        from resiliparse.extract.html2text import extract_plain_text

        main_content = config.main_content and config.cleaner is None

        def by_resiliparse(page: str | HTMLTree) -> str:
            text: str = extract_plain_text(page, main_content=main_content, links=False)
            return text

        return by_resiliparse
    if library == "trafilatura":
        import trafilatura

        def by_trafilatura(page: str | HTMLTree) -> str:
            return trafilatura.extract(str(page), output_format="markdown" if markdown else "txt") or ""

        return by_trafilatura
    if library == "html-to-markdown" and markdown:
        import html_to_markdown

        options = html_to_markdown.ConversionOptions(extract_metadata=False)  # Otherwise each text begins with YAML.

        def by_html_to_markdown(page: str | HTMLTree) -> str:
            return html_to_markdown.convert(str(page), options).content or ""

        return by_html_to_markdown
    raise DataError(
        f"{library!r} makes no {config.text_format!r} of pages: resiliparse makes text, html-to-markdown makes"
        " Markdown, trafilatura both"
    )
