"""The recipes of papers on slices of TPUs: python -m bertjax.preflight.papers [--estimate]

Compiles each at its own batch, one after the other, and prints the table of docs/tpu.md as it
grows. All of them take an hour; --only=bert,xlnet picks some. With --estimate they take a minute,
and the table says what shapes alone say. Returns 1 if one does not fit.
"""

import importlib
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from absl import flags

from bertjax.config import command_line, presets
from bertjax.errors import choose, door

_ESTIMATE = flags.DEFINE_bool('estimate', False, 'Say what shapes alone say; do not compile.')
_ONLY = flags.DEFINE_list('only', [], 'Files of configs, e.g. bert,xlnet; all by default.')


class Paper(NamedTuple):
  """A recipe and where it fits.

  Attributes:
    file, size: of the config.
    topology: a slice.
    changes: of the config.
  """

  file: str
  size: str
  topology: str
  changes: Mapping[str, Any] = {}


# Nothing but 1 divides all batches of the recipe: each phase has parts of as many tokens.
_PARTS = dict(
  batch1=7, batch2=21, batch3=35, batch4=49, batch5=63, batch6=77, batch7=77, context1=77,
  context2=78,
)  # fmt: skip
_MODERNBERT_LARGE = {
  'mesh.data': 8, 'mesh.tensor': 2,
  **{f'phases.{phase}.microbatches': parts for phase, parts in _PARTS.items()},
}  # fmt: skip
PAPERS = (
  Paper('bert', 'base', 'v5e:4x4'),
  Paper('bert', 'large', 'v5e:4x4'),
  Paper('roberta', 'base', 'v5e:16x16'),
  Paper('bert_lamb', 'large', 'v5e:16x16', dict(microbatches=8)),
  Paper('albert', 'xxlarge', 'v5e:16x16'),
  Paper('spanbert', 'base', 'v5e:4x4'),
  Paper('ernie', 'base', 'v5e:4x4'),
  Paper('electra', 'base', 'v5e:4x4'),
  Paper('electra', 'large', 'v5e:16x16'),
  Paper('xlnet', 'large', 'v5e:16x16'),
  Paper('transformer_xl', 'wt103_large', 'v5e:4x4'),
  Paper('mbert', 'base', 'v5e:4x4', {'model.vocab_size': 119_547}),
  Paper('xlm', 'xlm15', 'v5e:4x4'),
  Paper('xlm_r', 'base', 'v5e:16x16'),
  Paper('xlm_r', 'large', 'v5e:16x16', {'mesh.fsdp': 2}),
  Paper('xlm_e', 'base', 'v5e:16x16', {'model.vocab_size': 250_002}),
  Paper('modernbert', 'base', 'v5e:8x8', dict(microbatches=3)),
  Paper('modernbert', 'large', 'v5e:4x4', _MODERNBERT_LARGE),
)
HEAD = (
  'config', 'batch', 'slice', 'HBM a chip', 'by shapes alone', 'ratio', 'KB a token, as stored',
  'sent by each chip', 'MFU at most', 'chip-hours at least',
)  # fmt: skip


def row(said: Mapping[str, Any], changes: Mapping[str, Any]) -> tuple[str, ...]:
  """The cells of HEAD, of what `checking.check` returns."""
  gb = lambda count: f'{count / 2**30:.2f}'
  its = {key.removeprefix(f'phases.{said["phase"]}.'): n for key, n in changes.items()}
  shown = [f'{key}={n}' for key, n in its.items() if not key.startswith('phases.')]
  named = ', '.join([said['config'], *shown])
  batch = f'{said["batch_size"]:,} x {said["length"]}'
  first = (named, batch, said['topology'])
  limit, estimated = gb(said['hbm_limit_bytes']), f'{gb(said["estimate_bytes"])} GB'
  if not said['compiled']:
    return (*first, '' if said['fits'] else f'not in {limit} GB', estimated, *[''] * 5)
  ratio = f'{said["estimate_bytes"] / said["hbm_bytes"]:.2f}'
  if not said['fits']:
    return (*first, f'**{gb(said["hbm_bytes"])} of {limit} GB**', estimated, ratio, *[''] * 4)
  sent = sum(each['sent_bytes'] for each in said['collectives']) / 2**20
  return (
    *first, f'{gb(said["hbm_bytes"])} of {limit} GB', estimated, ratio,
    f'{said["bytes_per_token_padded"] / 1e3:,.0f}', f'{sent:,.0f} MB', f'{said["mfu_bound"]:.0%}',
    f'{said["chip_hours"]:,.0f}',
  )  # fmt: skip


def table(papers: Iterable[Paper], compiles: bool) -> Iterator[tuple[str, bool]]:
  """Lines of Markdown, and whether what each speaks of fits."""
  from bertjax.preflight.checking import check, phases  # slow to import

  yield f'| {" | ".join(HEAD)} |', True
  yield f'|{"---|" * len(HEAD)}', True
  for paper in papers:
    config = importlib.import_module(f'configs.{paper.file}').get_config(paper.size)
    config.preset = 'tpu'
    config.update_from_flattened_dict(paper.changes)
    presets.apply(config, paper.changes, os.environ)
    for phase in phases(config, None, None):
      said = check(phase, paper.topology, compiles=compiles)
      yield f'| {" | ".join(row(said, paper.changes))} |', said['fits']


def main() -> int:
  """Prints the table; 1 if something does not fit."""
  for name in _ONLY.value:
    choose(name, dict.fromkeys(paper.file for paper in PAPERS), '--only')
  papers = (p for p in PAPERS if not _ONLY.value or p.file in _ONLY.value)
  fit = True
  for line, fits in table(papers, compiles=not _ESTIMATE.value):
    print(line, flush=True)
    fit = fit and fits
  return 0 if fit else 1


if __name__ == '__main__':
  with door('bertjax.preflight.papers'):
    command_line.run(main, 'bertjax.preflight.papers')
