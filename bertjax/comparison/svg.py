"""Curves as inline SVG: a line for each arm, a band over its seeds, values where the pointer is."""

import html
import math
from collections.abc import Sequence
from typing import NamedTuple

WIDTH, HEIGHT = 420, 260
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 26, 40  # margins


class Place(NamedTuple):
  """A point of a curve."""

  x: float
  low: float  # of the seeds
  middle: float
  high: float


class Curve(NamedTuple):
  """A line with its band."""

  name: str
  color: str
  places: Sequence[Place]


def chart(curves: Sequence[Curve], title: str, unit: str) -> str:
  """Returns an <svg> of some curves: `title` is of the values, `unit` of the x axis."""
  drawn = [curve for curve in curves if curve.places]
  right = max((p.x for c in drawn for p in c.places), default=0.0) or 1.0
  low = min((p.low for c in drawn for p in c.places), default=0.0)
  high = max((p.high for c in drawn for p in c.places), default=1.0)
  room = 0.05 * (high - low) or 0.5
  low, high = low - room, high + room
  x_at = lambda x: LEFT + (WIDTH - LEFT - RIGHT) * x / right
  y_at = lambda y: TOP + (HEIGHT - TOP - BOTTOM) * (high - y) / (high - low)
  at = lambda x, y: f'{x_at(x):.1f},{y_at(y):.1f}'
  parts = [
    f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(title)}">',
    f'<text x="4" y="15" class="title">{html.escape(title)}</text>',
  ]
  for y in ticks(low, high):
    parts.append(f'<path d="M{at(0, y)}H{WIDTH - RIGHT}" class="grid"/>')
    parts.append(f'<text x="{LEFT - 6}" y="{y_at(y) + 4:.1f}" class="left">{y:g}</text>')
  for x in ticks(0, right):
    parts.append(f'<text x="{x_at(x):.1f}" y="{HEIGHT - 22}" class="below">{short(x)}</text>')
  end, unit = WIDTH - RIGHT, html.escape(unit)
  parts.append(f'<text x="{end}" y="{HEIGHT - 5}" class="left">{unit}</text>')
  for name, color, places in drawn:
    band = [at(p.x, p.high) for p in places] + [at(p.x, p.low) for p in reversed(places)]
    parts.append(f'<polygon points="{" ".join(band)}" fill="{color}" opacity=".18"/>')
    line = ' '.join(at(p.x, p.middle) for p in places)
    parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
    for p in places:
      said = f'{name}: {p.middle:.4f} ({p.low:.4f} to {p.high:.4f}) at {p.x:.3g} {unit}'
      parts.append(
        f'<circle cx="{x_at(p.x):.1f}" cy="{y_at(p.middle):.1f}" r="4" fill="{color}">'
        f'<title>{html.escape(said)}</title></circle>'
      )
  return '\n'.join([*parts, '</svg>'])


def color(index: int) -> str:
  """Returns a color for each of many curves: hues by the golden angle, in three lightnesses."""
  return f'hsl({137.5 * index % 360:.0f} 70% {(32, 46, 58)[index % 3]}%)'


def ticks(low: float, high: float) -> list[float]:
  """Returns 2 to 6 round numbers of an interval."""
  raw = (high - low) / 5
  power = 10.0 ** math.floor(math.log10(raw))
  step = next(power * m for m in (1, 2, 5, 10) if power * m >= raw * 0.999)
  first = math.ceil(low / step)
  return [round(step * i, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def short(value: float) -> str:
  """Returns a number with k, M, G, T or P."""
  for size, letter in ((1e15, 'P'), (1e12, 'T'), (1e9, 'G'), (1e6, 'M'), (1e3, 'k')):
    if abs(value) >= size:
      return f'{value / size:g}{letter}'
  return f'{value:g}'
