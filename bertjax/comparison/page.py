"""The page of a comparison: report.md, and report.html, one file that opens without a network;
report.jsonl has the numbers of each run."""

import html
import json
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from bertjax.comparison import svg
from bertjax.comparison.results import Point, Result, chosen, grouped
from bertjax.comparison.tables import Table, short, tables_of
from bertjax.errors import writing
from bertjax.tools.bench.parts.timing import environment

AXES = (('FLOPs', 'flops'), ('real tokens', 'tokens'), ('seconds of training', 'seconds'))
PROBE = 'eval/linear_probe/accuracy'
TITLE = 'Systems at equal compute'
HEAD = (
  '<!doctype html><html lang="en"><head><meta charset="utf-8">'
  f'<meta name="viewport" content="width=device-width"><title>{TITLE}</title>'
)
STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:1300px;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse;font-size:14px;display:block;overflow-x:auto}
td,th{padding:3px 10px;border-bottom:1px solid #ddd;text-align:right;vertical-align:top}
td:first-child,th:first-child{text-align:left}
.charts{display:flex;flex-wrap:wrap;gap:8px}.charts svg{flex:1 1 340px;max-width:420px}
svg text{font:11px system-ui,sans-serif;fill:#444}svg .title{font-size:13px;font-weight:600}
svg .left{text-anchor:end}svg .below{text-anchor:middle}svg .grid{stroke:#eee}
.key span{margin-right:1.2em;white-space:nowrap}.key b{display:inline-block;width:1em;height:.7em}
details{margin:.3em 0}pre{font-size:12px;overflow-x:auto;background:#f6f6f6;padding:.6em}
p{max-width:75ch}
"""


def write(results: Sequence[Result], directory: pathlib.Path, command: str) -> None:
  """Writes both forms of the page and the numbers of its runs into a directory, and says where;
  `command` repeats them."""
  tables, arms, made_by = tables_of(results), grouped(results, lambda r: r.arm), environment()
  versions = ', '.join(f'{name} {version}' for name, version in made_by['versions'].items())
  facts = f'{made_by["hardware"]}, {made_by["cores"]} cores; {versions}.'
  directory.mkdir(parents=True, exist_ok=True)
  markdown, page, numbers = (directory / f'report.{kind}' for kind in ('md', 'html', 'jsonl'))
  with writing('the page', directory):
    markdown.write_text(_markdown(tables, facts, command), encoding='utf-8')
    page.write_text(_html(tables, arms, facts, command), encoding='utf-8')
    numbers.write_text(''.join(f'{json.dumps(_numbers(run))}\n' for run in results), 'utf-8')
  print(f'The page: {page}, {markdown}; the numbers of its runs: {numbers}')


def _numbers(run: Result) -> dict[str, Any]:
  curve = lambda metric: [point._asdict() for point in run.curve(metric)]
  said = dict(arm=run.arm, peak=run.peak, seed=run.seed, finished=run.finished, score=run.metric)
  said |= dict(curve=curve(run.metric), unigram=run.unigram, probe_while_trained=curve(PROBE))
  tuned = [one._replace(directory=one.directory.name)._asdict() for one in run.tuned]
  return said | dict(fine_tuned=tuned, scores=run.measured[0])


def _markdown(tables: Sequence[Table], facts: str, command: str) -> str:
  lines = [f'# {TITLE}', '']
  cell = lambda text: text.replace('|', '\\|')
  for title, note, head, rows in tables:
    lines += [f'## {title}', '', note, '', f'| {" | ".join(map(cell, head))} |']
    lines.append(f'|---|{"--:|" * (len(head) - 1)}')
    lines += [f'| {" | ".join(map(cell, row))} |' for row in rows] + ['']
  return '\n'.join([*lines, '## To repeat it', '', f'    {command}', '', facts, ''])


def _html(
  tables: Sequence[Table], arms: Mapping[str, Sequence[Result]], facts: str, command: str
) -> str:
  colors = {arm: svg.color(i) for i, arm in enumerate(arms)}
  said = html.escape
  parts = [f'<h1>{TITLE}</h1>', '<p class="key">']
  parts += [
    f'<span><b style="background:{color}"></b> {said(arm)}</span>' for arm, color in colors.items()
  ]
  parts += ['</p>', *_curves(arms, colors)]
  for title, note, head, rows in tables:
    parts.append(f'<h2>{said(title)}</h2><p>{said(note)}</p><table>')
    parts += [f'<tr>{"".join(f"<th>{said(name)}</th>" for name in head)}</tr>']
    parts += [f'<tr>{"".join(f"<td>{said(cell)}</td>" for cell in row)}</tr>' for row in rows]
    parts.append('</table>')
  parts.append('<h2>Runs</h2>')
  for arm, runs in arms.items():
    for run in runs:
      state = ' (failed or unfinished)' if run.lost else ''
      settings = '\n'.join(f'{key} = {value}' for key, value in run.config.items())
      why = '\n'.join(f'{name}: {reason}' for name, reason in run.measured[1].items())
      title = f'{arm}, peak {run.peak}, seed {run.seed}{state}'
      parts.append(f'<details><summary>{said(title)}</summary>')
      parts.append(f'<pre>{said(why)}\n{said(settings)}</pre></details>')
  parts.append(f'<h2>To repeat it</h2><pre>{said(command)}</pre><p>{said(facts)}</p>')
  return '\n'.join([HEAD, f'<style>{STYLE}</style></head><body>', *parts, '</body></html>', ''])


def _curves(arms: Mapping[str, Sequence[Result]], colors: Mapping[str, str]) -> list[str]:
  """Returns a row of charts for each score that arms have, by what was spent."""
  charts: dict[str, dict[str, list[list[Point]]]] = {PROBE: {}}
  for arm, of_arm in arms.items():
    runs = chosen(of_arm)
    for metric in [PROBE, *(run.metric for run in runs[:1])]:
      own = [run.curve(metric) for run in runs]
      if own and all(own):
        charts.setdefault(PROBE if metric == PROBE else short(metric), {})[arm] = own
  found = []
  for name, own in charts.items():
    if not own:
      continue
    found.append('<div class="charts">')
    for unit, field in AXES:
      curves = [svg.Curve(arm, colors[arm], _band(own[arm], field)) for arm in own]
      found.append(svg.chart(curves, name.removeprefix('eval/'), unit))
    found.append('</div>')
  return found


def _band(curves: Sequence[Sequence[Point]], field: str) -> list[svg.Place]:
  """Returns the curve of several seeds, as long as the shortest."""
  places = []
  for points in zip(*curves, strict=False):
    values = [point.value for point in points]
    x = statistics.median(getattr(point, field) for point in points)
    places.append(svg.Place(x, min(values), statistics.median(values), max(values)))
  return places
