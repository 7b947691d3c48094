"""A matplotlib plot as SVG for a page: small, without inline styles, in the colours of the page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAMES = ("ink", "dim", "line", "reference", "port", "noise", "aligned", "rounding", "diverged", "inconclusive")
ROLES = {name: f"#{number:06x}" for number, name in enumerate(_NAMES, start=1)}
"""Name -> placeholder colour for matplotlib; the page's style sheet has the real colours."""

_ROLE_OF = {colour: role for role, colour in ROLES.items()}
_SVG = "{http://www.w3.org/2000/svg}"
_LINK = "{http://www.w3.org/1999/xlink}href"
_NUMBER = re.compile(r"-?\d+\.\d{2,}")
_STROKE = {f"stroke-{what}" for what in ("width", "dasharray", "linecap", "linejoin", "opacity")}
_KEPT = {"fill", "stroke", "opacity", "fill-opacity", "text-anchor", "font-size", *_STROKE}
_BORING = {("stroke-linecap", "butt"), ("stroke-width", "1"), ("opacity", "1")}


def page_svg(figure: Figure, identifier: str, title: str, text: str) -> str:
    """The figure, drawn in the colours of `ROLES`, as an `<svg>` element with `title` and `text` for screen readers."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # glyphs that matplotlib's own font lacks: the page's font has them
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    root = ElementTree.fromstring(buffer.getvalue())
    _drop(root)
    used = {value.strip("#") for element in root.iter() for value in _references(element)}
    for element in root.iter():
        _clean(element, identifier, used)
    _name(root, identifier, title, text)
    ElementTree.register_namespace("", _SVG[1:-1])
    return ElementTree.tostring(root, encoding="unicode")


def _drop(parent: ElementTree.Element) -> None:
    """Remove metadata, style sheets and white space."""
    parent.text = parent.text if parent.tag == f"{_SVG}text" else None
    for child in list(parent):
        child.tail = None
        if child.tag in (f"{_SVG}metadata", f"{_SVG}style"):
            parent.remove(child)
        else:
            _drop(child)


def _references(element: ElementTree.Element) -> list[str]:
    found = [element.get(_LINK, "")] if element.get(_LINK) else []
    return found + re.findall(r"url\((#[^)]+)\)", element.get("clip-path", ""))


def _clean(element: ElementTree.Element, identifier: str, used: set[str]) -> None:
    attributes: dict[str, str] = {}
    for key, value in {**element.attrib, **_declarations(element.attrib)}.items():
        if key == "style":
            continue
        if key == "id":
            if value in used:
                attributes["id"] = f"{identifier}-{value}"
        elif key == _LINK:
            attributes["href"] = f"#{identifier}-{value[1:]}"
        elif key == "clip-path":
            attributes[key] = value.replace("url(#", f"url(#{identifier}-")
        else:
            attributes[key] = _NUMBER.sub(lambda found: f"{float(found[0]):.1f}", value)
    classes = [
        f"{key[0]}-{_ROLE_OF[attributes.pop(key)]}" for key in ("fill", "stroke") if attributes.get(key) in _ROLE_OF
    ]
    if classes:
        attributes["class"] = " ".join(classes)
    element.attrib.clear()
    element.attrib.update(attributes)


def _declarations(attributes: Mapping[str, str]) -> dict[str, str]:
    """An inline style, which the page's security policy forbids, as presentation attributes."""
    found = {}
    for declaration in attributes.get("style", "").split(";"):
        key, _, value = (part.strip() for part in declaration.partition(":"))
        if key == "font":
            size = re.search(r"([\d.]+)px", value)
            key, value = "font-size", size[1] if size else "10"
        if key in _KEPT and (key, value) not in _BORING:
            found[key] = value
    return found


def _name(root: ElementTree.Element, identifier: str, title: str, text: str) -> None:
    _, _, width, height = root.get("viewBox", "0 0 400 240").split()
    root.attrib.clear()
    labels = f"{identifier}-title {identifier}-text"
    root.attrib.update({"viewBox": f"0 0 {width} {height}", "role": "img", "aria-labelledby": labels})
    for position, (tag, content) in enumerate((("title", title), ("desc", text))):
        element = ElementTree.Element(_SVG + tag, {"id": f"{identifier}-{'text' if position else 'title'}"})
        element.text = content
        root.insert(position, element)
