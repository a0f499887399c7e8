"""Held-out losses and metrics, each example counted once, and the baselines they must beat."""

import collections
from typing import Any

import jax
import numpy as np

from bertjax.evals.held_out import rows
from bertjax.objectives.rtd import BY_WORD, auc
from bertjax.types import Evaluation, Evaluator, Report, Subject, Variables


def unigram_nll(counts_V: np.ndarray) -> np.ndarray:
  """Returns -log of the add-one smoothed unigram of the training tokens, float64 [V], by how often
  each id occurs in the training store."""
  smoothed_V = counts_V.astype(np.float64) + 1.0
  return np.log(smoothed_V.sum()) - np.log(smoothed_V)


def frequency_auc(labels_2V: np.ndarray, counts_V: np.ndarray) -> float | None:
  """Chance that a replaced token is rarer in the training text than an original one, ties one half.
  What a detector reaches that knows no context. Ids that the training text lacks, as it does the
  special tokens, count as the most frequent. labels_2V is how often each id is original, and
  replaced; counts_V how often it occurs in the training text. None where one label does not
  occur."""
  rarity_V = np.where(counts_V > 0, -counts_V.astype(np.int64), np.iinfo(np.int64).min)
  _, rank_V = np.unique(rarity_V, return_inverse=True)
  original, replaced = (np.bincount(rank_V, n_V) for n_V in np.asarray(labels_2V, np.float64))
  return auc(original, replaced) if original.sum() and replaced.sum() else None


def evaluate(
  held_out: rows.HeldOut, variables: Variables, counts_V: np.ndarray
) -> dict[str, float]:
  """Scores the rows. Returns what `finish` of the objective makes of every term's global sums, and
  `unigram_entropy`: the cross-entropy, under the smoothed unigram of the training store (counts_V,
  all 0 where it is not known), of the targets that the input shows as the mask token (those of
  `mlm_masked`). Beside every accuracy of a label, `<label>_majority`: the share of its most
  frequent class among the same examples. Where tokens are detected, `rtd_auc_unigram`: see
  `frequency_auc`."""
  nll_V, carry = unigram_nll(counts_V), held_out.carry()
  totals: dict[str, tuple[Any, Any]] = {}
  unigram, classes = [0.0, 0.0], {}
  for batch in held_out.batches():
    sums, carry = held_out.step(variables, carry, held_out.put(batch))
    for name, (total, weight) in jax.device_get(sums).items():
      before = totals.get(name, (0.0, 0.0))
      totals[name] = (before[0] + np.float64(total), before[1] + np.float64(weight))
    if 'masked_BP' in batch and counts_V.any():
      masked_BP = batch['weight_BP'] * batch['masked_BP']
      unigram[0] += float((nll_V[batch['target_BP']] * masked_BP).sum())
      unigram[1] += float(masked_BP.sum())
    for name in (name for name in totals if f'{name}_BG' in batch):
      used_N = batch[f'{name}_BG'][batch['example_weight_BG'] > 0]
      classes.setdefault(name, collections.Counter()).update(used_N.tolist())
  for name, counted in classes.items():
    totals[f'{name}_majority'] = (max(counted.values(), default=0), counted.total())
  if unigram[1]:
    totals['unigram_entropy'] = (unigram[0], unigram[1])
  labels_2V, _ = totals.pop(BY_WORD, (None, 0.0))
  found = held_out.objective.finish(totals)
  if labels_2V is not None and counts_V.any():
    auc = frequency_auc(labels_2V, counts_V)
    found |= {} if auc is None else dict(rtd_auc_unigram=auc)
  return found


def make(subject: Subject, options: rows.Options) -> Evaluation:
  """Returns the loss of the held-out rows with these options; no scores where nothing is held
  out."""
  held_out = rows.hold_out(subject, options)
  if held_out is None:
    return rows.NOTHING
  counts_V = subject.store.counts
  names = set(rows.score_names(subject, held_out))
  names |= {f'{name}_majority' for name in names if f'{name}_BG' in held_out.template}
  if 'masked_BP' in held_out.template and counts_V.any():
    names.add('unigram_entropy')
  if 'rtd_auc' in names and counts_V.any():
    names.add('rtd_auc_unigram')
  return Evaluation(frozenset(names), lambda v, step: Report(evaluate(held_out, v, counts_V)))


EVALUATOR = Evaluator(rows.Options, make)
