"""Small models and random batches that several test files share."""

import importlib

import jax
import jax.numpy as jnp
import numpy as np
from flax.core import meta
from small_stores import write_store

from bertjax.config import sections
from bertjax.models.layers import pad_id
from bertjax.vocab.vocabulary import load_vocabulary

VOCAB = 211  # padded to 256 rows


def config(family: str, **model):
  """A config of the test size with VOCAB ids; `model` overrides fields of `config.model`."""
  c = importlib.import_module(f'configs.{family}').get_config('test')
  sections.complete(c)
  if 'positions' in c.model:
    c.model.positions = max(c.model.positions + 64 - 512, 64)
  c.model.update(dict(vocab_size=VOCAB) | model)
  pad_id.fill(c.model, 1)  # as RoBERTa of transformers
  return c


def batch(rows, length: int, types: int = 2, slots: int = 6, seed: int = 0, label: str = 'next'):
  """A batch of random examples.

  Args:
    rows: for each row the lengths of its packed examples.
    length: columns; the rest is padding.
    types: how many segments an example is cut into.
    slots: predicted slots of an example; the last one of each stays unused.
    seed: of ids, targets and labels.
    label: name of the label.
  """
  rng, examples = np.random.default_rng(seed), max(len(row) for row in rows)
  segments = {
    0: lambda count: 0,
    1: lambda count: 0,
    2: lambda count: np.arange(count) > count // 2,
  }
  segment = segments.get(types, lambda count: np.arange(count) * types // count)
  z = lambda width: np.zeros((len(rows), width), np.int32)
  zf = lambda width: np.zeros((len(rows), width), np.float32)
  out = dict(
    token_BT=z(length), example_BT=z(length), type_BT=z(length), position_BT=z(length),
    target_pos_BP=z(slots * examples), target_BP=z(slots * examples),
    weight_BP=zf(slots * examples), masked_BP=zf(slots * examples),
    first_BG=z(examples), example_weight_BG=zf(examples),
  )  # fmt: skip
  out[f'{label}_BG'] = z(examples)
  for b, lengths in enumerate(rows):
    start = 0
    for g, count in enumerate(lengths):
      columns, used = slice(start, start + count), slice(g * slots, (g + 1) * slots - 1)
      out['token_BT'][b, columns] = rng.integers(5, VOCAB, count)
      out['example_BT'][b, columns] = g + 1
      out['type_BT'][b, columns] = segment(count)
      out['position_BT'][b, columns] = np.arange(count)
      out['target_pos_BP'][b, used] = start + np.sort(rng.choice(count, slots - 1, replace=False))
      out['target_BP'][b, used] = rng.integers(5, VOCAB, slots - 1)
      out['weight_BP'][b, used] = 1
      out['masked_BP'][b, used] = rng.random(slots - 1) < 0.8
      out['first_BG'][b, g], out['example_weight_BG'][b, g] = start, 1
      out[f'{label}_BG'][b, g] = rng.integers(2)
      start += count
  return out


def random_params(shapes, std: float, seed: int = 0):
  """Normal values for a tree of shapes, so that no bias is zero and no norm the identity."""
  rng = np.random.default_rng(seed)
  draw = lambda path, s: rng.normal(
    float('scale' in jax.tree_util.keystr(path)), std, s.shape
  ).astype(np.float32)
  return jax.tree_util.tree_map_with_path(draw, shapes)


def variables(init, *given, std: float = 0.1):
  """Random variables of what `init` begins with a key and what is given, see `random_params`."""
  shapes = meta.unbox(jax.eval_shape(init, jax.random.key(0), *given))
  return jax.tree.map(jnp.asarray, random_params(shapes, std))


def write_rich_store(path) -> None:
  """Documents of random sentences in three languages, with units and roles, and translations; a
  fifteenth as many held out."""
  special = dict(pad=0, unk=1, cls=2, sep=3, mask=4, eod=1)
  pieces = [f'[{name.upper()}]' for name in special if name != 'eod']
  pieces += [f'piece{i}' for i in range(len(pieces), VOCAB)]
  (path / 'vocab').mkdir(parents=True)
  (path / 'vocab' / 'vocab.txt').write_text('\n'.join(pieces))
  sha256 = load_vocabulary(path / 'vocab').sha256
  vocabulary = dict(type='wordpiece', size=VOCAB, sha256=sha256, special=special)
  vocabulary['sentinels'] = list(range(VOCAB - 1, VOCAB - 41, -1))  # of texts with spans left out
  for folder, count, seed in ((path, 300, 0), (path / 'heldout', 20, 1)):
    rng = np.random.default_rng(seed)
    sentence = lambda rng=rng: rng.integers(5, VOCAB, rng.integers(3, 12)).tolist()
    documents = [[sentence() for _ in range(rng.integers(2, 9))] for _ in range(count)]
    language = [[number % 3] * len(document) for number, document in enumerate(documents)]
    documents += [[sentence(), sentence()] for _ in range(count // 5)]
    language += [[0, 1 + number % 2] for number in range(count // 5)]
    units = [[[1, *rng.integers(0, 3, len(s) - 1)] for s in document] for document in documents]
    roles = [[turn % 2 for turn in range(len(document))] for document in documents]
    columns = dict(language=language, role=roles)
    write_store(
      folder, documents, vocabulary, units=units, columns=columns, languages=('de', 'en', 'fr')
    )
