"""Charts as SVG without any library, in colors that a page's style sheet gives them.

A :class:`Chart` has two axes and marks; everything that is written in it is escaped. Coordinates
are rounded to a tenth of a pixel, so that a page with thousands of points stays small.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from botorch_bandits.markup import Markup, element

LEFT, RIGHT, TOP, BOTTOM = 64.0, 12.0, 10.0, 38.0  # around the axes, in pixels

MOST_LETTERS = 9
"""Longer labels at ticks are cut off."""

SHAPES = {
    "o": "M-{r},0a{r},{r} 0 1,0 {d},0a{r},{r} 0 1,0 -{d},0z",
    "s": "M-{r},-{r}h{d}v{d}h-{d}z",
    "^": "M0,-{r}L{r},{r}H-{r}z",
    "v": "M0,{r}L{r},-{r}H-{r}z",
    "D": "M0,-{r}L{r},0L0,{r}L-{r},0z",
    "x": "M-{r},-{r}L{r},{r}M-{r},{r}L{r},-{r}",
}
"""Outlines of marks around their center; ``r`` is half their size and ``d`` their full size."""


@dataclass(frozen=True)
class Axis:
    """The content of one axis.

    Attributes:
        low: The lower end.
        high: The upper end.
        label: The label of the axis.
        ticks: The positions and texts of the ticks.
    """

    low: float
    high: float
    label: str
    ticks: tuple[tuple[float, str], ...]

    @property
    def can_be_drawn(self) -> bool:
        """Whether its ends are neither too close together nor too far apart for float64."""
        return self.low < self.high and math.isfinite(self.high - self.low)

    def share(self, value: float) -> float:
        """Return the position of a value between the ends, from 0 to 1 if it is within them.

        Args:
            value: A value in the unit of the axis.
        """
        return (value - self.low) / (self.high - self.low)


def numbers_axis(
    values: Iterable[float], label: str, *, whole: bool = False, pad: float = 0.05
) -> Axis:
    """Return an axis that contains some numbers, with a few round ticks.

    Args:
        values: Finite numbers; if there are none, the axis is from 0 to 1.
        label: The label of the axis.
        whole: Whether there are ticks at whole numbers only.
        pad: The free space at each end, as a share of the range.
    """
    found = sorted(values) or [0.0, 1.0]
    low, high = found[0], found[-1]
    if high - low <= 1e-12 * max(abs(low), abs(high)):
        room = 0.5 * max(abs(high), 1.0)
        low, high = low - room, high + room
    else:
        low, high = low - pad * (high - low), high + pad * (high - low)
    return Axis(low, high, label, round_ticks(low, high, whole))


def round_ticks(low: float, high: float, whole: bool = False) -> tuple[tuple[float, str], ...]:
    """Return four to nine round numbers between two ends, and how they are written.

    Args:
        low: The lower end.
        high: The upper end.
        whole: Whether only whole numbers count.

    Example:
        >>> [text for _, text in round_ticks(0.0, 1.0)]
        ['0', '0.2', '0.4', '0.6', '0.8', '1']
    """
    span = high - low
    if not (math.isfinite(span) and span > 0.0):
        return ()
    step = 10.0 ** math.floor(math.log10(span / 4.0))
    step = next(m * step for m in (5.0, 2.0, 1.0) if span / (m * step) >= 4.0)
    step = max(1.0, round(step)) if whole else step
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    if not step > 0.0 or last - first > 20:  # rounding has made the step useless
        return ()
    values = [k * step for k in range(first, last + 1)]
    texts = [f"{v:.6g}" for v in values]
    digits = 6
    while len(set(texts)) < len(texts) and digits < 17:
        digits += 1
        texts = [f"{v:.{digits}g}" for v in values]
    return tuple(zip(values, texts, strict=True))


@dataclass
class Chart:
    """Marks and lines over two axes.

    Attributes:
        x: The horizontal axis.
        y: The vertical axis.
        title: A description for readers who cannot see the chart.
        width: The width in the chart's own pixels; a page may scale it.
        height: The height in the same pixels.
    """

    x: Axis
    y: Axis
    title: str
    width: float = 860.0
    height: float = 280.0
    _parts: list[Markup] = field(default_factory=list)

    def mark(
        self, x: float, y: float, shape: str, kind: str, title: str = "", size: float = 4.0,
        strength: float | None = None,
    ) -> None:  # fmt: skip
        """Draw one mark; if it is outside the vertical range, it is drawn at the edge.

        Args:
            x: The position in the unit of the horizontal axis.
            y: The position in the unit of the vertical axis.
            shape: One of :data:`SHAPES`.
            kind: The class that the style sheet gives a color.
            title: The text that is shown when the pointer is over the mark.
            size: Half its size in pixels.
            strength: The opacity of the inside, from 0 to 1.
        """
        outline = SHAPES[shape].format(r=f"{size:g}", d=f"{2.0 * size:g}")
        at = f"translate({self._across(x):.1f},{self._down(y):.1f})"
        opaque = None if strength is None else f"{strength:.2f}"
        told = [element("title", title)] if title else []
        self._parts.append(
            element("path", *told, d=outline, transform=at, class_=kind, fill_opacity=opaque)
        )

    def line(self, points: Sequence[tuple[float, float | None]], kind: str) -> None:
        """Draw a line through points, with a gap where a height is None.

        Args:
            points: The points in order.
            kind: See :meth:`mark`.
        """
        moves, is_down = [], False
        for x, y in points:
            if y is not None:
                moves.append(f"{'L' if is_down else 'M'}{self._across(x):.1f},{self._down(y):.1f}")
            is_down = y is not None
        if moves:
            self._parts.append(element("path", d="".join(moves), class_=f"line {kind}"))

    def steps(self, points: Sequence[tuple[float, float | None]], kind: str) -> None:
        """Draw a line that keeps each height until the next point.

        Args:
            points: See :meth:`line`.
            kind: See :meth:`mark`.
        """
        stairs: list[tuple[float, float | None]] = []
        for x, y in points:
            if stairs and stairs[-1][1] is not None:
                stairs.append((x, stairs[-1][1]))
            stairs.append((x, y))
        self.line(stairs, kind)

    def across(self, y: float, kind: str) -> None:
        """Draw a horizontal line at a height.

        Args:
            y: The height.
            kind: See :meth:`mark`.
        """
        self.line([(self.x.low, y), (self.x.high, y)], kind)

    def upright(self, x: float, kind: str, title: str = "") -> None:
        """Draw a vertical line.

        Args:
            x: The position of the line.
            kind: See :meth:`mark`.
            title: See :meth:`mark`.
        """
        at, told = f"{self._across(x):.1f}", [element("title", title)] if title else []
        foot = f"{self.height - BOTTOM:.1f}"
        self._parts.append(
            element("line", *told, x1=at, x2=at, y1=f"{TOP:g}", y2=foot, class_=kind)
        )

    def svg(self) -> Markup:
        """Return the chart as one element."""
        box = f"0 0 {self.width:g} {self.height:g}"
        if not (self.x.can_be_drawn and self.y.can_be_drawn):
            return element("p", f"{self.title}: the numbers are too far apart to be drawn.")
        return element(
            "svg",
            element("title", self.title),
            *self._axes(),
            *self._parts,
            viewBox=box,
            role="img",
            style=f"max-width:{self.width:g}px",
        )

    def _across(self, x: float) -> float:
        if not self.x.can_be_drawn:
            return LEFT
        return LEFT + min(max(self.x.share(x), -0.01), 1.01) * (self.width - LEFT - RIGHT)

    def _down(self, y: float) -> float:
        if not self.y.can_be_drawn:
            return TOP
        share = min(max(self.y.share(y), 0.0), 1.0)
        return TOP + (1.0 - share) * (self.height - TOP - BOTTOM)

    def _axes(self) -> list[Markup]:
        left, right, foot = LEFT, self.width - RIGHT, self.height - BOTTOM
        parts = []
        for value, text in self.y.ticks:
            down = f"{self._down(value):.1f}"
            parts.append(element("line", x1=left, x2=right, y1=down, y2=down, class_="grid"))
            parts.append(
                element("text", _short(text), x=left - 6, y=down, dy="0.32em", text_anchor="end")
            )
        for value, text in self.x.ticks:
            across = f"{self._across(value):.1f}"
            parts.append(element("line", x1=across, x2=across, y1=foot, y2=foot + 4, class_="tick"))
            parts.append(element("text", _short(text), x=across, y=foot + 16, text_anchor="middle"))
        parts.append(element("line", x1=left, x2=right, y1=foot, y2=foot, class_="tick"))
        middle, height = (left + right) / 2.0, (TOP + foot) / 2.0
        label = element("text", self.x.label, x=middle, y=self.height - 4, text_anchor="middle")
        turned = f"rotate(-90,12,{height:g})"
        upright = element(
            "text", self.y.label, x=12, y=f"{height:g}", transform=turned, text_anchor="middle"
        )
        return [*parts, label, upright]


def _short(text: str) -> str:
    """Return the part of a text that fits beside an axis."""
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 1]}…"
