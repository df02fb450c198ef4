"""A report before it is written: headings, sentences, tables and pictures, and the two ways to write them."""

from __future__ import annotations

import base64
import html
import re
from dataclasses import dataclass, field
from importlib import resources
from string import Template
from typing import TypeAlias

__all__ = [
    "Block",
    "Document",
    "Figure",
    "Gallery",
    "Items",
    "Section",
    "Table",
    "Text",
    "figures_of",
    "to_fragment",
    "to_html",
    "to_markdown",
]


@dataclass(frozen=True)
class Text:
    """A paragraph.

    Parameters
    ----------
    text : str
        What it says.
    strong : bool
        It is the answer.
    code : bool
        It is typed into a shell.
    """

    text: str
    strong: bool = False
    code: bool = False


@dataclass(frozen=True)
class Items:
    """A list.

    Parameters
    ----------
    items : tuple of str
        Its entries.
    """

    items: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A table.

    Parameters
    ----------
    columns : tuple of str
        Headings.
    rows : tuple of tuple of str
        Cells.
    left : frozenset of int
        Columns of text; the others are numbers.
    strong : int or None
        The row to see first.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: frozenset[int] = frozenset({0})
    strong: int | None = None


@dataclass(frozen=True)
class Figure:
    """A picture.

    Parameters
    ----------
    name : str
        For a file beside a Markdown report.
    svg : str
        The picture.
    alt : str
        The same in words.
    narrow : str
        The picture for a phone; empty where the one is good for both.
    """

    name: str
    svg: str
    alt: str
    narrow: str = ""


@dataclass(frozen=True)
class Gallery:
    """Pictures of one size beside each other, as many as there is room for.

    Parameters
    ----------
    figures : tuple of Figure
        In order.
    """

    figures: tuple[Figure, ...]


_NOTEBOOK = (
    ".batchline img{max-width:100%}"
    ".batchline table{border-collapse:collapse;margin:.5em 0}"
    ".batchline th,.batchline td{text-align:right;padding:.15em .8em}"
    ".batchline .text{text-align:left}"
    ".batchline .strong{font-weight:700}"
)
"""Notebooks centre tables and let pictures run out of the cell; fonts and colours are left to them."""

_PHONE = "(max-width: 640px)"

Block: TypeAlias = Text | Items | Table | Figure | Gallery


@dataclass(frozen=True)
class Section:
    """A heading and what follows.

    Parameters
    ----------
    title : str
        The heading.
    blocks : tuple of Block
        What stands below it.
    """

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Document:
    """A report.

    Parameters
    ----------
    title : str
        Above everything.
    byline : str
        What made it, and when.
    language : str
        "en" or "ko".
    colours : dict
        Of the theme.
    dark : dict
        Colours in place of them where the reader's system is dark; empty where the theme stays.
    font : str
        A CSS list.
    sections : tuple of Section
        In order.
    """

    title: str
    byline: str
    language: str
    colours: dict[str, str] = field(repr=False)
    font: str
    sections: tuple[Section, ...]
    dark: dict[str, str] = field(default_factory=dict, repr=False)


def figures_of(block: Block) -> tuple[Figure, ...]:
    """Pictures that a block has.

    Parameters
    ----------
    block : Block
        Any.

    Returns
    -------
    tuple of Figure
        In order; none of a block of words.
    """
    if isinstance(block, Gallery):
        return block.figures
    return (block,) if isinstance(block, Figure) else ()


def _escaped(text: str) -> str:
    return html.escape(text, quote=True)


def _table_html(table: Table) -> str:
    def row(cells: tuple[str, ...], tag: str, kind: str = "") -> str:
        made = "".join(
            f"<{tag}{' class=text' if i in table.left else ''}{' scope=col' if tag == 'th' else ''}>"
            f"{_escaped(cell)}</{tag}>"
            for i, cell in enumerate(cells)
        )
        return f"<tr{kind}>{made}</tr>"

    rows = [row(cells, "td", " class=strong" if i == table.strong else "") for i, cells in enumerate(table.rows)]
    return f'<div class="scroll"><table>{row(table.columns, "th")}{"".join(rows)}</table></div>'


def _block_html(block: Block) -> str:
    if isinstance(block, Text):
        tag = "pre" if block.code else "p"
        said = f"<strong>{_escaped(block.text)}</strong>" if block.strong else _escaped(block.text)
        return f"<{tag}{' class=strong' if block.strong else ''}>{said}</{tag}>"
    if isinstance(block, Items):
        return "<ul>" + "".join(f"<li>{_escaped(item)}</li>" for item in block.items) + "</ul>"
    if isinstance(block, Table):
        return _table_html(block)
    if isinstance(block, Gallery):
        return f'<div class="gallery">{"".join(map(_picture_html, block.figures))}</div>'
    return f"<div>{_picture_html(block)}</div>"


def _picture_html(figure: Figure) -> str:
    """A picture of its own: the parts of two drawings in one page would share their names."""

    def address(svg: str) -> str:
        return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"

    drawn = f'<img src="{address(figure.svg)}" alt="{_escaped(figure.alt)}">'
    if not figure.narrow:
        return drawn
    return f'<picture><source media="{_PHONE}" srcset="{address(figure.narrow)}">{drawn}</picture>'


def _colours(colours: dict[str, str]) -> str:
    """Colours as variables of a style sheet."""
    return " ".join(f"--{name}: {value};" for name, value in colours.items())


def to_html(document: Document) -> str:
    """Write a report as one page that needs nothing else.

    Parameters
    ----------
    document : Document
        The report.

    Returns
    -------
    str
        HTML.
    """
    page = Template(resources.files("batchline").joinpath("data/report.html").read_text(encoding="utf-8"))
    body = "".join(
        f"<section><h2>{_escaped(section.title)}</h2>{''.join(map(_block_html, section.blocks))}</section>\n"
        for section in document.sections
    )
    return page.substitute(
        language=document.language,
        scheme="light dark" if document.dark else "only light",
        colours=_colours(document.colours),
        dark=_colours(document.dark),
        phone=_PHONE,
        title=_escaped(document.title),
        byline=_escaped(document.byline),
        font=document.font,
        body=body,
    )


def to_fragment(*parts: Block) -> str:
    """Write blocks as a piece of a page, as a notebook shows it.

    Parameters
    ----------
    *parts : Block
        What is shown, from above.

    Returns
    -------
    str
        HTML without a head, in the notebook's own fonts and colours.
    """
    return f'<div class="batchline"><style>{_NOTEBOOK}</style>{"".join(map(_block_html, parts))}</div>'


def _marked(text: str) -> str:
    """Text in Markdown: nothing in it becomes markup."""
    return re.sub(r"([\\`*_{}\[\]<>#|])", r"\\\1", text).replace("\n", " ")


def _table_markdown(table: Table) -> str:
    rules = ["---" if i in table.left else "---:" for i in range(len(table.columns))]
    rows = [[_marked(cell) for cell in row] for row in table.rows]
    if table.strong is not None:
        rows[table.strong] = [f"**{cell}**" if cell else "" for cell in rows[table.strong]]
    lines = [[_marked(name) for name in table.columns], rules, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _block_markdown(block: Block, stem: str) -> str:
    if isinstance(block, Text):
        if block.code:
            return "\n".join(f"    {line}" for line in block.text.splitlines())
        return f"**{_marked(block.text)}**" if block.strong else _marked(block.text)
    if isinstance(block, Items):
        return "\n".join(f"- {_marked(item)}" for item in block.items)
    if isinstance(block, Table):
        return _table_markdown(block)
    return "\n".join(f"![{_marked(one.alt)}]({stem}-{one.name}.svg)" for one in figures_of(block))


def to_markdown(document: Document, stem: str) -> str:
    """Write a report as Markdown; its pictures are files beside it.

    Parameters
    ----------
    document : Document
        The report.
    stem : str
        What the pictures' names begin with.

    Returns
    -------
    str
        Markdown.
    """
    parts = [f"# {_marked(document.title)}", _marked(document.byline)]
    for section in document.sections:
        parts += [f"## {_marked(section.title)}", *(_block_markdown(block, stem) for block in section.blocks)]
    return "\n\n".join(parts) + "\n"
