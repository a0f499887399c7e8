"""Labelled examples as the rows of a run: `TrainingRows` and `HeldOutRows` of data_contracts.py.

All are in memory. An epoch is a permutation of them, drawn from the seed; any batch of it is made
at once, so that a resumed run reads nothing twice. A row is no longer than the longest example of
its batch asks for, by a few lengths that fit the examples, since each is compiled for: as many as
take least over the run (`Rows.fewer`). Batches have little padding, since examples of like lengths
come together: of each `config.data.length_block` whole batches of an epoch the rows are put in
order of length, and then the batches are shuffled.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from bertjax import counter_rng
from bertjax.data_contracts import Labelled
from bertjax.errors import UserError
from bertjax.examples.shuffle import order
from bertjax.store.reader import Store

LENGTHS = 4  # of rows, at most
UNIT = 8  # tokens: each is a multiple, or `config.length`
# Model FLOPs of the time that a further length is compiled in: 10 s of two cores at 100 GFLOP/s
# (LOG.md, 2026-11-27); on other platforms 10 s at 100 TFLOP/s.
COMPILE, COMPILE_ELSEWHERE = dict(cpu=1e12), 1e15
_SITE = 'labelled epoch'
_BLOCK_SITE = 'labelled batches'


@dataclasses.dataclass(frozen=True, eq=False)
class Rows:
  """The rows of a file."""

  store: Store  # knows the vocabulary
  examples: Labelled
  length: int  # of a row at most
  seed: int  # of the order of an epoch
  together: int  # rows from a multiple of this number on have one length: those of a batch
  # batches whose rows are put in order of length together; 1: rows lie in any batch
  length_block: int = 1
  stands_last: bool = False  # whether the last token of each part stands for it, and not the first
  # table of `config.model.extra` -> the id of all tokens, `<name>_BT`
  extra_ids: Mapping[str, int] = dataclasses.field(default_factory=dict)
  # token_BT -> its words' characters, of a model that reads them; their ids may be new ones
  spell: Callable[[np.ndarray], np.ndarray] | None = None
  most: int = LENGTHS  # lengths of a row
  ordered = False  # each row stands for itself

  @property
  def rows(self) -> int:
    """Rows of an epoch."""
    return len(self.examples.id_n)

  @functools.cached_property
  def size_n(self) -> np.ndarray:
    """Tokens of each example, int64 [rows]."""
    return np.fromiter(map(len, self.examples.id_n), np.int64, self.rows)

  @property
  def stats(self) -> dict[str, float]:
    """Examples, those that were cut, tokens of the mean and the longest one."""
    size_n = self.size_n
    return dict(
      examples=self.rows, cut=self.examples.cut, mean_tokens=float(size_n.mean()),
      longest=int(size_n.max()),
    )  # fmt: skip

  def batch(
    self, row_n: np.ndarray, shuffle: bool, place_n: np.ndarray | None = None
  ) -> dict[str, np.ndarray]:
    """Returns rows, counted over all epochs, in the order asked for; with shuffle each epoch has
    its own; their places in an evaluation change nothing."""
    number_n = self._examples_of(row_n, shuffle)
    # All rows of the batches that these rows belong to, so that hosts agree.
    first = int(np.min(row_n)) // self.together * self.together
    stop = int(np.max(row_n)) // self.together * self.together + self.together
    whole_n = np.arange(first, stop) if shuffle else row_n
    length = self.bucket(int(self.size_n[self._examples_of(whole_n, shuffle)].max()))
    pad = self.store.special['pad'] or 0
    batch: dict[str, Any] = {
      f'{name}_BT': np.full((len(row_n), length), value, np.int32)
      for name, value in dict(token=pad, example=0, type=0, position=0, **self.extra_ids).items()
    }
    for name, value_n in self.examples.token_label.items():
      batch[f'{name}_BT'] = _columns([value_n[number] for number in number_n], length)
    batch |= self._second(number_n)
    first_n = []
    for row, number in enumerate(number_n):
      size, part_n = int(self.size_n[int(number)]), self.examples.part_n
      part_T = part_n[number] if part_n else np.ones(size, np.int32)
      start_p = starts(part_T)
      first_n.append(ends(part_T) if self.stands_last else start_p)
      batch['token_BT'][row, :size] = self.examples.id_n[number]
      batch['type_BT'][row, :size] = self.examples.type_n[number]
      batch['example_BT'][row, :size] = part_T
      batch['position_BT'][row, :size] = np.arange(size) - start_p[part_T - 1]
    if self.spell:
      batch['character_BTW'] = self.spell(batch['token_BT'])
    batch['first_BG'] = np.stack(first_n).astype(np.int32)
    batch['example_weight_BG'] = np.ones(batch['first_BG'].shape, np.float32)
    for name, label_n in self.examples.label.items():
      own = label_n[number_n]
      own = own[:, None] if own.ndim == 1 else own
      suffix, count = 'BGC' if own.ndim == 3 else 'BG', batch['first_BG'].shape[1]
      # That of a row is that of each of its parts.
      batch[f'{name}_{suffix}'] = np.repeat(own, count // own.shape[1], 1)
    batch['dropped_B'] = np.zeros(len(row_n), np.int32)
    return batch

  @functools.cached_property
  def _second_columns(self) -> int:
    return -(-max(map(len, self.examples.second['out_token'])) // UNIT) * UNIT

  def _second(self, number_n) -> dict[str, np.ndarray]:
    """Returns the second texts of these examples, as long as the longest of all."""
    second = self.examples.second
    if not second:
      return {}
    columns = self._second_columns
    size_n = [len(second['out_token'][number]) for number in number_n]
    made = dict(out_example=list(map(np.ones, size_n)), out_position=list(map(np.arange, size_n)))
    batch = {f'{k}_BU': _columns(v, columns).astype(np.int32) for k, v in made.items()}
    for name, value_n in second.items():
      empty = (self.store.special['pad'] or 0) if name == 'out_token' else 0
      batch[f'{name}_BU'] = _columns([value_n[number] for number in number_n], columns, empty)
    return batch

  def template(self) -> dict[str, np.ndarray]:
    """Returns a row of the full length, of zeros."""
    row = self.batch(np.zeros(1, np.int64), shuffle=False)
    texts = lambda name, x: (1, self.length, *x.shape[2:]) if '_BT' in name else x.shape
    return {k: np.zeros(texts(k, x), x.dtype) for k, x in row.items() if k != 'dropped_B'}

  def _examples_of(self, row_n: np.ndarray, shuffle: bool) -> np.ndarray:
    epoch_n, number_n = np.divmod(np.asarray(row_n, np.int64), self.rows)
    if not shuffle:
      return number_n
    found_n = np.empty_like(number_n)
    for epoch in np.unique(epoch_n).tolist():
      mine_n = epoch_n == epoch
      found_n[mine_n] = self._order_of(epoch)[number_n[mine_n]]
    return found_n

  @functools.cached_property
  def _order_of(self) -> Callable[[int], np.ndarray]:
    """Epoch -> the order of its examples, int64 [rows]; a batch seldom is of more than two."""
    return functools.lru_cache(maxsize=2)(self._make_order)

  def _make_order(self, epoch: int) -> np.ndarray:
    order_n = order(counter_rng.fold(counter_rng.root(self.seed, _SITE), epoch), self.rows)
    block_key = counter_rng.fold(counter_rng.root(self.seed, _BLOCK_SITE), epoch)
    # The batches that an epoch shares with those before and after it stay as they are.
    first = -epoch * self.rows % self.together
    stop = first + (self.rows - first) // self.together * self.together
    block = self.length_block * self.together
    for start in range(first, stop, block):
      mine_n = order_n[start : min(start + block, stop)]
      by_length_n = mine_n[np.argsort(self.size_n[mine_n], kind='stable')]
      batch_n = order(counter_rng.fold(block_key, start), len(mine_n) // self.together)
      mine_n[:] = by_length_n.reshape(-1, self.together)[batch_n].reshape(-1)
    return order_n

  def by_length(self) -> np.ndarray:
    """Returns the numbers of the rows, those of the shortest first, int64 [rows]."""
    return np.argsort(self.size_n, kind='stable')

  def bucket(self, size: int) -> int:
    """Returns the least length of a row that holds so many tokens."""
    return next(length for length in self.lengths if length >= size)

  @property
  def lengths(self) -> list[int]:
    """At most `most` row lengths, ascending: those that pad the examples least in total."""
    return self._choices[self.most - 1][0]

  def fewer(
    self, flops: Callable[..., float], template: Mapping[str, Any], seen: float, platform: str
  ) -> 'Rows':
    """Returns the rows in as many lengths as take least while `seen` of them go through a model: a
    further one saves padding, and is compiled for. `flops` are an objective's, of a batch like
    `template`."""
    batch = {name: np.ones_like(x) for name, x in template.items()}
    compiling = COMPILE.get(platform, COMPILE_ELSEWHERE) * batch['token_BT'].size / flops(batch)
    epochs = seen / self.rows
    costs = [n * compiling + tokens * epochs for n, (_, tokens) in enumerate(self._choices, 1)]
    return dataclasses.replace(self, most=int(np.argmin(costs)) + 1)

  @functools.cached_property
  def _choices(self) -> list[tuple[list[int], float]]:
    """Returns the best of at most 1, 2, .. lengths, and the tokens of an epoch in them."""
    unit_n = -(-self.size_n // UNIT)
    units = int(unit_n.max())
    below_u = np.searchsorted(np.sort(unit_n), np.arange(units + 1), 'right')  # examples that fit
    tokens_u, chosen, choices = np.where(np.arange(units + 1) > 0, np.inf, 0.0), [], []
    for _ in range(LENGTHS):
      # Examples that fit into u units, but not into v, the length before, are u long.
      tokens_uv = tokens_u + (below_u[:, None] - below_u) * np.arange(units + 1)[:, None]
      tokens_uv[np.triu_indices(units + 1, 1)] = np.inf
      chosen.append(tokens_uv.argmin(1))
      tokens_u = tokens_uv.min(1)
      found, last = set(), units
      for before_u in reversed(chosen):
        found.add(min(last * UNIT, self.length))
        last = int(before_u[last])
      choices.append((sorted(found - {0}), float(tokens_u[units] * UNIT)))
    return choices


def parts_of(examples: Labelled) -> int:
  """Returns the number of parts of a row: an example, the choices of one or its texts in both
  orders."""
  return int(examples.part_n[0].max()) if examples.part_n else 1


def is_cls_last(model: Any) -> bool:
  """Returns True if a `config.model` reads rows in which [CLS] ends each part."""
  return 'pooling' in model and model.pooling == 'last'


def stands_last(model: Any) -> bool:
  """Returns True if a `config.model` reads labels of examples off the last token of each part."""
  return 'pooling' in model and model.pooling in ('last', 'end')


def with_both_orders(examples: Labelled) -> Labelled:
  """Returns pairs of texts in both orders as two parts: [CLS] a [SEP] b [SEP], and behind it [CLS]
  b [SEP] a [SEP]. Raises UserError: examples of one text."""
  if examples.part_n or not all(type_T.any() for type_T in examples.type_n):
    raise UserError(
      'config.model.both_orders reads two texts in both orders: expected config.data.task.name='
      "'classify' with two columns in config.data.task.text; set config.model.both_orders=False"
    )
  sizes = [(int(np.argmax(type_T)), len(type_T)) for type_T in examples.type_n]
  # [CLS] and the last token stay where they are: a row of GPT-1 ends otherwise than a text in it.
  swap = lambda x_T, at, end: x_T[[0, *range(at, end - 1), at - 1, *range(1, at - 1), end - 1]]
  each = list(zip(examples.id_n, sizes, strict=True))
  return examples._replace(
    id_n=[np.concatenate([id_T, swap(id_T, *size)]) for id_T, size in each],
    type_n=[
      np.repeat(np.array([0, 1, 0, 1], np.int32), (at, end - at, end - at + 1, at - 1))
      for at, end in sizes
    ],
    part_n=[np.repeat(np.array([1, 2], np.int32), end) for _, end in sizes],
  )


def with_cls_last(examples: Labelled) -> Labelled:
  """Returns the examples as XLNet reads them: the [CLS] that begins a part ends it, in segment 2.
  [CLS] a [SEP] b [SEP] becomes a [SEP] b [SEP] [CLS] (zihangdai/xlnet, classifier_utils.py). The
  original pads on the left, which tells a model nothing that knows distances alone."""
  part_n = examples.part_n or [np.ones(len(id_n), np.int32) for id_n in examples.id_n]
  turned = lambda found: [_turned(x_T, p_T) for x_T, p_T in zip(found, part_n, strict=True)]
  type_n = turned(examples.type_n)
  for type_T, part_T in zip(type_n, part_n, strict=True):
    type_T[ends(part_T)] = 2
  tokens = {name: turned(found) for name, found in examples.token_label.items()}
  return examples._replace(id_n=turned(examples.id_n), type_n=type_n, token_label=tokens)


def _turned(x_T: np.ndarray, part_T: np.ndarray) -> np.ndarray:
  """Returns the first entry of each part behind its others."""
  column_T = np.arange(1, len(x_T) + 1)
  column_T[ends(part_T)] = starts(part_T)
  return x_T[column_T]


def starts(part_T: np.ndarray) -> np.ndarray:
  """Returns the first column of each part."""
  return np.flatnonzero(np.diff(part_T, prepend=0))


def ends(part_T: np.ndarray) -> np.ndarray:
  """Returns the last column of each part."""
  return np.flatnonzero(np.diff(part_T, append=0))


def _columns(value_n: list[np.ndarray], columns: int, empty: int = 0) -> np.ndarray:
  """Lays one array per row out in its first columns, [B, columns]."""
  found = np.full((len(value_n), columns), empty, value_n[0].dtype)
  for row, value in enumerate(value_n):
    found[row, : len(value)] = value
  return found
