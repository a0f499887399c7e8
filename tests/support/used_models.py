"""Small trained-looking models: the same parameters as a run and as a class of transformers."""

import json
import pathlib
from typing import NamedTuple

import cases
import jax
import numpy as np
import tokenizers
import torch_models
from flax.core import meta
from slow_imports import transformers

import bertjax
from bertjax import sharding
from bertjax.formats import directory
from bertjax.sources import runs
from bertjax.use import nets
from bertjax.vocab.vocabulary import load_vocabulary

BERT = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]')
XLNET = ('<unk>', '<pad>', '<cls>', '<sep>', '<mask>')
STREAM = ('<eos>', '<unk>')


class Pair(NamedTuple):
  """A run and its twin."""

  workdir: pathlib.Path  # of the run
  model: object  # its `config.model`
  twin: object  # of transformers, in evaluation mode; None where it has no class for it


def write_vocabulary(path: pathlib.Path, first: tuple[str, ...]) -> None:
  """Words w5, w6, .. whose ids are their numbers, behind the special ones."""
  path.mkdir(parents=True)
  pieces = [*first, *(f'w{n}' for n in range(len(first), cases.VOCAB))]
  if first[: len(BERT)] == BERT:
    (path / 'vocab.txt').write_text('\n'.join(pieces))
    return
  index = {piece: number for number, piece in enumerate(pieces)}
  tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(index, '<unk>'))
  tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
  tokenizer.add_special_tokens([piece for piece in first if piece in XLNET])
  tokenizer.save(str(path / 'tokenizer.json'))


def make(path: pathlib.Path, recipe: str, twin: str = '', first=BERT, **model) -> Pair:
  """A run with random parameters.

  Args:
    path: of its workdir, and of the directory of its twin.
    recipe: module of `configs`.
    twin: class of transformers that loads what the run exports, if any.
    first: the special tokens of the vocabulary, and more behind BERT's.
    **model: fields of `config.model`.
  """
  config = cases.config(recipe, **model).copy_and_resolve_references()
  write_vocabulary(path / 'words', first)
  vocabulary = load_vocabulary(path / 'words')
  shapes = meta.unbox(nets.shapes(nets.make(config.model, vocabulary.special)))
  params = cases.random_params(shapes, 0.1)['params']
  (path / 'run').mkdir()
  runs.write_run(path / 'run', config, params, vocabulary, {})
  if not twin:
    return Pair(path / 'run', config.model, None)
  (path / 'twin').mkdir()
  directory.write(
    path / 'twin', jax.tree.map(np.asarray, params), config.model, None, 'float32', 1 << 40
  )
  loaded = getattr(transformers, twin).from_pretrained(path / 'twin', attn_implementation='eager')
  return Pair(path / 'run', config.model, loaded.eval())


def save(case: str, path: pathlib.Path, **tokenizer) -> None:
  """A directory of a case of `torch_models` with words w5, w6, .."""
  torch_models.save(case, path)
  write_vocabulary(path / 'words', BERT)
  words = str(path / 'words' / 'vocab.txt')
  transformers.BertTokenizer(words, **tokenizer).save_pretrained(path)


def load(path, **options) -> bertjax.Model:
  """The model of a run or of a directory, on one device unless a mesh is given."""
  one = sharding.make_mesh(dict(data=1, fsdp=1, tensor=1), jax.devices()[:1])
  return bertjax.Model.load(path, **dict(mesh=one) | options)


def numbers(text: str) -> list[int]:
  """The ids of words."""
  return [int(word[1:]) for word in text.split()]


def texts(count: int, longest: int, seed: int = 0) -> list[str]:
  """Texts of 1 to so many words."""
  rng = np.random.default_rng(seed)
  lengths = rng.integers(1, longest + 1, count)
  return [' '.join(f'w{n}' for n in rng.integers(5, cases.VOCAB, size)) for size in lengths]


def json_lines(text: str) -> list[dict]:
  """What a command printed."""
  return [json.loads(line) for line in text.splitlines()]
