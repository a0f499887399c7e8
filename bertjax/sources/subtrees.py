"""Subtrees of parameters put in the place of others: which layers, and which rows of words, by the
vocabularies of both models."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import multihost_utils

from bertjax import sharding
from bertjax.errors import UserError
from bertjax.vocab import formats, sentencepiece_model
from bertjax.vocab.vocabulary import Vocabulary

# Leaves with one row per id: the word table, and the bias of its head.
_OF_WORDS = (':word', "['word']", ":mlm['bias']", ":head['bias']", ":boundary['bias']")

_CHINESE = '\u2e80'  # the first character of scripts without spaces between words
_NO_TEXT = '\ufffd'  # what a part of a character's bytes decodes to
_UNKNOWN = '\ue000'  # of private use


class Rows(NamedTuple):
  """The rows of words that move from a table to another."""

  # here, there: ids of the pieces that both vocabularies have
  here: np.ndarray
  there: np.ndarray
  new: np.ndarray  # ids here of pieces that the model lacks
  # of each of them, the ids there whose rows it begins as the mean of; () all
  cut: Sequence[Sequence[int]]
  size: int  # of the vocabulary there


def find(tree: Any, path: str, what: str) -> Any:
  """Returns the subtree of nested mappings, `what` in messages, at a path as 'params/encoder'."""
  for depth, key in enumerate(path.split('/')):
    if not isinstance(tree, Mapping) or key not in tree:
      found = sorted(tree) if isinstance(tree, Mapping) else 'an array'
      above = '/'.join(path.split('/')[:depth]) or 'the top'
      raise UserError(f'config.init_from: {what} has no {path!r}; {above} holds {found}')
    tree = tree[key]
  return tree


def replaced(tree: Mapping, path: Sequence[str], value: Any) -> Any:
  """Returns the tree with a value in the place of the subtree at a path."""
  if not path:
    return value
  return dict(tree, **{path[0]: replaced(tree[path[0]], path[1:], value)})


def taken(
  source: Any, target: Any, layers: Sequence[int], where: str, rows: Rows | None
) -> Callable[[Any], Any]:
  """Compares leaves of source with those of target, of which shapes are enough, and returns a
  function of target, which copies the leaves of source to where those of target are. `layers` picks
  from the leading axis of leaves under 'layers', () all; `where` names the source and its path,
  which tells words; `rows` are those of words that move, None all. UserError: another structure or
  shape."""
  theirs, ours = _names(source), _names(target)
  if theirs != ours:
    raise UserError(
      f'config.init_from: {where} has {_some(theirs - ours)} that the model lacks, and lacks '
      f'{_some(ours - theirs)} that the model has: leave out what config.model says otherwise than '
      'that model does, or name subtrees that are alike'
    )

  moves = lambda name: rows is not None and f'{where}{name}'.endswith(_OF_WORDS)

  def picked(path, new, old):
    name = jax.tree_util.keystr(path)
    if layers and "['layers']" in name:
      new = new[np.asarray(layers)]
    if new.shape != old.shape and not moves(name):
      raise UserError(
        f'config.init_from: {where}{name} has shape {new.shape}, the model {old.shape}'
      )
    return new

  new = jax.tree_util.tree_map_with_path(picked, source, target)

  def copy(path, new, old):
    if moves(jax.tree_util.keystr(path)):
      assert rows is not None
      moved = np.array(multihost_utils.process_allgather(old, tiled=True))
      theirs = np.asarray(new)[: rows.size]
      moved[rows.here] = theirs[rows.there]
      whole = theirs.mean(0)
      for row, ids in zip(rows.new, rows.cut, strict=True):
        moved[row] = theirs[ids].mean(0) if len(ids) else whole
      own = len(rows.here) + len(rows.new)
      behind = min(len(moved) - own, len(new) - rows.size)  # GPT-1 has its positions there
      moved[own:][:behind] = np.asarray(new)[rows.size :][:behind]
      new = moved
    return sharding.put_whole(np.asarray(new, old.dtype), old.sharding)

  return lambda target: jax.tree_util.tree_map_with_path(copy, new, target)


def _names(tree: Any) -> set[str]:
  leaves = jax.tree_util.tree_leaves_with_path(tree)
  return {jax.tree_util.keystr(path, simple=True, separator='/') for path, _ in leaves}


def _some(names: set[str]) -> str:
  """Returns the first of some parameters, and how many there are."""
  if not names:
    return 'none'
  more = f' and {len(names) - 3} more' if len(names) > 3 else ''
  return f'the parameters {", ".join(sorted(names)[:3])}{more}'


def same_ids(one: Vocabulary, other: Vocabulary) -> bool:
  """Returns whether the ids of two vocabularies mean the same pieces; the files may differ."""
  return one.sha256 == other.sha256 or list(one.pieces) == list(other.pieces)


def moved(
  name: str, theirs: Vocabulary | None, ours: Vocabulary | None, remap: bool, key: str
) -> tuple[Rows | None, list[str]]:
  """Returns the rows that move and lines for people; rows None: all stay, or a vocabulary is not
  known. `key` of the config names the model. A piece that theirs lacks begins as the mean of those
  that theirs cuts it into (Gee et al. 2022, Fast Vocabulary Transfer); where it cannot cut it, as
  the mean of all rows, as in ULMFiT (fastai 0.7, courses/dl2/imdb_scripts/finetune_lm.py).
  UserError: the vocabularies differ, and without `remap` rows must not move, or have no piece in
  common."""
  if theirs is None or ours is None:
    return None, [f'{name} comes without a vocabulary: that its ids are ours is not checked']
  if same_ids(theirs, ours):
    return None, []
  if not remap:
    remedy = ', or give --remap_vocab, which moves the rows of the pieces that both have'
    raise UserError(f'{refusal(name, theirs.sha256, ours, key)}{remedy}')
  there = theirs.index
  shared = {i: there[piece] for i, piece in enumerate(ours.pieces) if piece in there}
  if not shared.keys() - set(ours.special.values()):
    raise UserError(
      f'{key}: {name} knows none of the {ours.size:,} pieces of this vocabulary, so none of its '
      'rows can move: take its vocabulary (config.data.vocab), or one that is cut alike'
    )
  for role, mine in ours.special.items():  # [CLS] is <s>, whatever it is called
    other = theirs.special.get(role)
    if mine is not None and other is not None:
      shared[mine] = other
  here = np.array(sorted(shared), np.int64)
  there = np.array([shared[i] for i in here], np.int64)
  new = np.setdiff1d(np.arange(ours.size), here)
  rows = Rows(here, there, new, _cut(theirs, ours, new), theirs.size)
  said = f'{len(shared):,} of {ours.size:,} pieces are in the vocabulary of {name}'
  cut = sum(map(bool, rows.cut))
  return rows, [
    f'{said}; {cut:,} begin as the mean of the rows that it cuts them into, {len(new) - cut:,} as '
    'that of all rows'
  ]


def _cut(theirs: Vocabulary, ours: Vocabulary, new: np.ndarray) -> list[list[int]]:
  """Returns the ids that `theirs` cuts each of our pieces into where text has it, at the beginning
  of a word or inside one; () where one is unknown. Between two of bytes a part of a character's
  bytes is cut, too."""
  # Where pieces have no sign of a space, one of several characters, or a letter, begins a word.
  signs = ours.type != 'wordpiece' and not ours.word_starts.all()
  unknown, special = theirs.special['unk'], {*ours.special.values()}
  space = ' ' if theirs.reads_first_space else ''
  bytewise = all(formats.BYTE_SPACE in vocabulary.pieces for vocabulary in (theirs, ours))
  words, parts, of_bytes = [], [], []
  for i in map(int, new):
    piece, text = ours.pieces[i], ours.decode([i]).removeprefix('##')
    begins = signs and piece.startswith((formats.BYTE_SPACE, sentencepiece_model.SPACE))
    if not signs:
      begins = ours.word_starts[i] and (len(text) > 1 or text.isalnum() and text < _CHINESE)
    known = i not in special and _NO_TEXT not in text
    words.append(space + text.strip(' ') if known and begins else '')
    parts.append(text if known and not begins else '')
    of_bytes.append(piece if bytewise and _NO_TEXT in text else '')
  cut: Any = theirs.tokenizer
  spelled = ([token.id for token in cut.model.tokenize(x)] if x else [] for x in of_bytes)
  both = zip(theirs.encode_unended(words), _inside(theirs, parts), spelled, strict=True)
  cuts = ([int(i) for i in (*word, *inside, *some)] for word, inside, some in both)
  return [[] if unknown in ids else ids for ids in cuts]


def _inside(theirs: Vocabulary, texts: Sequence[str]) -> list[Any]:
  """Returns the ids of texts that stand behind a letter, or on their own if those never do."""
  if theirs.type != 'wordpiece':
    ahead = '' if theirs.reads_first_space else _UNKNOWN  # which no piece holds
    first, *cuts = theirs.encode_unended([ahead, *(ahead + text for text in texts)])
    return [ids[len(first) :] if [*ids[: len(first)]] == [*first] else [] for ids in cuts]
  tokenizer: Any = theirs.tokenizer
  model, cuts = tokenizer.model, []
  for text, ids in zip(texts, theirs.encode_unended(texts), strict=True):
    change = tokenizer.normalizer
    whole = 'a' + text if change is None else change.normalize_str('a' + text)
    (word, _), *more = tokenizer.pre_tokenizer.pre_tokenize_str(whole)
    if word[1:] and not more:
      ids = [token.id for token in model.tokenize(model.continuing_subword_prefix + word[1:])]
    cuts.append(ids)
  return cuts


def refusal(name: str, theirs: str, ours: Vocabulary, key: str) -> str:
  """Returns the error text for a model of another vocabulary, whose sha256 is `theirs`."""
  return (
    f'{key}: {name} was trained with another vocabulary (sha256 {theirs[:12]}) than this run '
    f'({ours.size} ids, {ours.sha256[:12]}), and its ids mean other pieces: take its '
    'vocabulary (config.data.vocab)'
  )
