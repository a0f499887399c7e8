"""What a finished run shows: pseudo-perplexity, completed sentences, and what to do next."""

from typing import Any

import jax
import numpy as np
from rich.console import Console
from rich.table import Table

from bertjax.data.store.reader import Store
from bertjax.data.vocab.vocabulary import load_vocabulary
from bertjax.evals import fill_mask
from bertjax.evals.pseudo_perplexity import pseudo_perplexity
from bertjax.train.phase import Stepper
from bertjax.types import Variables


def token_by_token(stepper: Stepper, variables: Variables, store: Store) -> dict[str, float]:
  """`eval/pseudo_perplexity` of the first held-out rows; empty where it does not apply."""
  config = stepper.system.phase.config.eval
  held_out, template = stepper.system.held_out, stepper.system.template
  if held_out is None or not config.pseudo_perplexity or 'masked_BP' not in template:
    return {}
  rows = np.arange(config.batch_size) % held_out.rows
  batch = held_out.batch(rows, shuffle=False)
  batch.pop('dropped_B')
  value = pseudo_perplexity(
    stepper.eval_step,
    variables,
    stepper.eval_carry(),
    batch,
    stepper.put_eval,
    min(config.pseudo_perplexity, held_out.rows),
    store.special,
  )
  return {'eval/pseudo_perplexity': value}


def completions(stepper: Stepper, variables: Variables, store: Store) -> Table:
  """`config.eval.fill_mask` with the likeliest pieces for each [MASK]."""
  config = stepper.system.phase.config.eval
  vocabulary = load_vocabulary(store.path / 'vocab')
  size = config.batch_size
  template = {
    k: np.zeros((size, *v.shape[1:]), v.dtype) for k, v in stepper.system.template.items()
  }
  sentences = list(config.fill_mask)
  batch = fill_mask.encode(sentences, vocabulary.encode_batch, store.special, template)
  answers = fill_mask.top_predictions(
    stepper.system.objective.predict, variables, stepper.eval_carry(), batch, stepper.put_eval
  )
  table = Table('sentence', 'likeliest pieces', title='Masked tokens, completed')
  for sentence, slots in zip(sentences, answers, strict=True):
    lines = ['  '.join(f'{vocabulary.pieces[i]} {p:.2f}' for i, p in slot) for slot in slots]
    table.add_row(sentence.replace('[', r'\['), '\n'.join(lines))
  return table


def show(config: Any, stepper: Stepper, variables: Variables, store: Store, workdir: str) -> None:
  """Prints the completions and the next commands."""
  console = Console()
  first = jax.process_index() == 0
  if config.eval.fill_mask:
    table = completions(stepper, variables, store)
    if first:
      console.print(table)
  if first:
    print(
      f'\nThe run is in {workdir}: curves.png, metrics.jsonl, checkpoints. Next:\n'
      f'  tensorboard --logdir {workdir}\n'
      f'  python -m bertjax.main --config=... --workdir={workdir} --evaluate\n'
      '  python -m bertjax.main --config=configs/bert.py:tiny --workdir=runs/mine \\\n'
      "      --config.data.input='my_text/*.txt' --config.data.train_vocab.type=wordpiece \\\n"
      '      --config.data.train_vocab.size=16384 --config.total_steps=10000'
    )
