"""Keys that were removed: what configs of older runs still say of them, and what to use instead."""

import fnmatch
import re
from collections.abc import Mapping
from typing import Any

from bertjax import dotted
from bertjax.errors import UserError

_JUDGED_OUTSIDE = 'bertjax.convert --to=hf --sentence-transformers=mean writes what mteb judges'
# Key, but for `phases.NAME.` and `teacher.` -> (the value that is as now; None: any; what to do in
# its place). `KEY@NAME` is of what is chosen by this name, where others have such a key.
REMOVED: dict[str, tuple[Any, str]] = {
  'evals.similarity.file': ('', _JUDGED_OUTSIDE),
  'evals.similarity*': (None, _JUDGED_OUTSIDE),
  'evals.*.rows_of': ('held_out', 'the rows are those of evals.held_out'),
  'data.mask.favor_longer': (False, 'n-grams have P(n) ~ 1 / n; a masking of your own may differ'),
  'data.mask.alpha': (0.0, 'each token has a coin of its own; DistilBERT masks rare words more'),
  'data.mask.block@xlm': (None, 'each token has a coin of its own'),
  'data.mask.replacement': (True, 'positions are drawn with replacement, as in the original'),
  'data.mask.whole_word@xlnet_permutation': (False, 'spans are of pieces, as in the original'),
  'data.plan.rejoin': (True, 'a later sentence that fits joins the first segment, as by default'),
  'data.plan.keep_block': (False, 'a block before too long sentences is lost, as in the original'),
  'data.plan.share': ('sentences', 'languages count by sentences, as in the original'),
  'model.boundary_positions': (15, "the boundary head has the original's 15 places in a span"),
  'model.boundary_width': (200, "places in a span have the original's vectors of 200"),
  'model.mix_decay': (0.0, 'weighted layers have no penalty, as by default before'),
  'fresh_layers': (0, 'a list of subtrees in init_from leaves out those to make anew'),
  'objective.disallow_correct': (False, 'the original word may be drawn, as by default before'),
  'optimizer.trust': ('decayed', 'the ratio is of the tensors whose optimizer.decay is not 0'),
  'optimizer.trust_rules': ([], 'the ratio is of the tensors whose optimizer.decay is not 0'),
}


def refuse(key: str) -> None:
  """Raises UserError if this key of the config was removed, with what stands in its place."""
  if row := _row(key.removeprefix('config.')):
    raise UserError(f'{key} was removed in 0.2, remove it: {row[1]}')


def without(config: Mapping[str, Any]) -> dict[str, Any]:
  """Takes what was removed out of the config or the facts of an older run, JSON values. Raises
  UserError: the run had a value that nothing can have now."""
  flat, kept = dotted.flat(config), {}
  for key, value in flat.items():
    row = _row(key, str(flat.get(f'{key.rpartition(".")[0]}.name')))
    if row is None:
      kept[key] = value
    elif row[0] is not None and value != row[0]:
      raise UserError(f'the run has config.{key}={value!r}, which was removed in 0.2: {row[1]}')
  return dotted.nested(kept)


def _row(key: str, chosen: str = '') -> tuple[Any, str] | None:
  plain = re.sub(r'^(phases\.[^.]+|(objective\.)?teacher)\.', '', key)
  for name, row in REMOVED.items():
    pattern, _, of = name.partition('@')
    if fnmatch.fnmatchcase(plain, pattern) and (not of or chosen in ('', of)):
      return row
  return None
