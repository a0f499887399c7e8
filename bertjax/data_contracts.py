"""The contracts of the data path, from a store or a file to the rows of a batch.

  Reader    where the rows of a run come from     examples/readers/NAME.py
  Plan      which tokens make up which example    examples/plans/NAME.py
  Masking   what noise hides and asks for         examples/noise/NAME.py
  Task      what people have labelled             examples/labelled/NAME.py

The arrays of a batch and the letters of their axes are in bertjax/types.py.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

# Letter of a text's columns -> what the names of its arrays begin with.
PREFIX = {'T': '', 'U': 'out_'}

Targets = Literal[
  'hidden', 'spans', 'next', 'permuted', 'written', 'framed', 'both_ways', 'tags', 'answers'
]  # fmt: skip
# Kind of the targets that rows have, by which an objective asks for them -> what they are. Labels
# of whole examples are none of them: they have names (`config.model.labels`).
TARGETS: Mapping[str, str] = dict(
  hidden='tokens that are hidden, or shown otherwise',  # that of each slot's column
  spans='spans that are hidden, with the tokens around them',
  next='the token after each, which the model must not see',  # slot t is column t
  permuted='tokens in a drawn order',  # seen by order_q_BT and order_k_BT
  written='a second text, behind the id 0 (T5)',  # the token after each of its columns
  framed='a second text within [CLS] and [SEP], behind a [SEP] (BART)',
  both_ways='the next token of a text and of the text backwards',
  tags='the tag of each word',
  answers='the ends of the answer to a question',
)


class Ranges(NamedTuple):
  """The tokens of some examples as ranges of the store; suffix n: one entry per token, r: per
  range, s: per special token, E: per example.

  The examples are laid end to end. Their special tokens are not in the store; all other places are
  filled, in order, with the tokens of the ranges.
  """

  # start_r, length_r: int64, first token and tokens (>= 0) of each range of the store
  start_r: np.ndarray
  length_r: np.ndarray
  special_s: np.ndarray  # int64, places of the special tokens
  id_s: np.ndarray  # int32, their ids
  length_E: np.ndarray  # int64, tokens of each example, special ones included
  type_n: np.ndarray | None = None  # int32 segment, 0, 1 or 2; None: all 0
  label: Mapping[str, np.ndarray] = {}  # name -> int32 [E]; becomes the batch's `<name>_BG`
  table: Mapping[str, np.ndarray] = {}  # name -> int32 [n]; becomes the batch's `<name>_BT`
  # int32 positions that the model sees; None: each token's place in its example
  position_n: np.ndarray | None = None
  # name -> [E], of a plan whose examples are rows; becomes the batch's `<name>_B`
  row: Mapping[str, np.ndarray] = {}
  # int64, for each token that is not special, its place among those of the ranges, if the text is
  # read in another order than the store's; None: in store order
  order_n: np.ndarray | None = None
  # True if one more token follows each example in the ranges and places, which is not part of it:
  # the token that the next batch begins with
  ahead: bool = False


Columns = Mapping[str, np.ndarray]  # one entry per example: what a plan keeps
Piece = tuple[dict[str, np.ndarray], dict[str, int]]  # some examples' columns, and counts
Kept = tuple[np.ndarray, dict[str, int]]  # which examples stay, bool [E], and counts


class Spec(NamedTuple):
  """The inputs, besides the store, that determine a plan's examples."""

  options: Any  # an instance of `Plan.options`
  # tokens of text per row, special tokens included: T, unless the noise gives other sizes
  length: int
  seed: int  # seed of all draws
  rows: int = 0  # rows of a batch; only plans that are `ordered` read it


class Chosen(NamedTuple):
  """Examples whose ranges are asked for."""

  column: Columns  # the plan's columns at these examples
  index_E: np.ndarray  # int64, their numbers in the epoch
  epoch: int = 0  # of an ordered plan, whose rows are asked for epoch by epoch
  shuffle: bool = False  # of an ordered plan: whether the epoch has an order of its own


class Plan(NamedTuple):
  """The rule by which tokens make up examples: examples/plans/NAME.py exports it as PLAN."""

  options: type  # a frozen dataclass, the fields of `config.data.plan` besides its name
  special: Sequence[str]  # names of the special tokens that it needs
  # (store, spec) -> the examples in pieces, made as they are read. Reads the store's offsets and
  # columns, never its tokens; a `window` changes the pieces, not the plan. The column `length` is
  # each example's tokens, special ones included, int32; `group`, where the store knows languages,
  # its language, int32, and `weight` what it counts for its language's share, 1 where there is
  # none. It raises UserError at the call, not while it is read.
  build: Callable[[Any, Spec], Iterator[Piece]]
  # (store, spec, chosen) -> where the tokens of these examples lie
  ranges: Callable[[Any, Spec, Chosen], Ranges]
  # options -> tokens of the shortest row that it can fill, special ones included
  least: Callable[[Any], int] = lambda options: 1
  # rows go on where the same rows of the batch before stopped; they are never permuted, and every
  # example is a row
  ordered: bool = False
  row: Sequence[str] = ()  # names of the `<name>_B` that it gives
  # options -> of an ordered plan, rows are as long as a batch's longest, in multiples of so many
  # columns; 0: all have T
  unit: Callable[[Any], int] = lambda options: 0
  columns: Sequence[str] = ()  # the columns of the store that it needs: language, role
  # chooses examples by their tokens: (store, options, all tokens end to end, number of tokens of
  # each) -> `Kept`. Runs while the plan is built, before examples have numbers. None: all stay, and
  # no token is read.
  keep: Callable[[Any, Any, np.ndarray, np.ndarray], Kept] | None = None


class Stream(NamedTuple):
  """A text that a noise makes of the examples of a batch; suffix m: one entry per token."""

  token_m: np.ndarray  # int32 ids, example by example; each example has one at least
  # int64, the token of `layout.Rows` that each stands for: it has that one's example, segment and
  # ids of tables
  source_m: np.ndarray
  # name -> [m], becomes the batch's `<name>_B<letter>`: target, weight; or [m, W],
  # `<name>_B<letter>W`: character
  field: Mapping[str, np.ndarray] = MappingProxyType({})


class Masking(NamedTuple):
  """The noise: which tokens are hidden and predicted. MASKING in examples/noise/NAME.py.

  Most noises leave each token in its column. One with `sizes` makes other texts of an example, of
  other lengths: 568 tokens become 512 with sentinels and 114 to write (T5).
  """

  # a frozen dataclass, the fields of `config.data.mask` besides its name. A masking that draws has
  # `static`: whether it draws the same in every epoch.
  options: type
  special: Sequence[str]  # names of the special tokens that it needs
  # (options, store, tokens of text per row); refuses what cannot work
  check: Callable[[Any, Any, int], None]
  # (rows, options, store) -> the batch's token_BT and targets, see `targets.emit`; equal keys and
  # tokens of an example give equal ones, whatever else is in the batch. With `sizes`: letter ->
  # `Stream`, of each letter of `PREFIX` that it fills; the streams are laid out as they are, so
  # that a decoder's is moved by one already.
  corrupt: Callable[[Any, Any, Any], Mapping[str, Any]]
  # options -> number of rows that must be corrupted together
  block: Callable[[Any], int] = lambda options: 1
  row: Sequence[str] = ()  # names of the `<name>_B` that it reads, which the plan must give
  # options -> whether it reads the store's units, phrases and entities
  units: Callable[[Any], bool] = lambda options: False
  # (options, T) -> tokens of text that a row takes
  raw: Callable[[Any, int], int] = lambda options, length: length
  # (options, tokens of an example) -> letter -> columns that these become at most, for one number
  # or elementwise for an array; longer examples need no less. A row has T columns and, of the other
  # letters, what `raw` tokens become. None: tokens stay in their columns.
  sizes: Callable[[Any, Any], Mapping[str, Any]] | None = None
  targets: Sequence[Targets] = ('hidden',)  # the kinds that its targets are of


class Labelled(NamedTuple):
  """Labelled examples as rows of tokens; suffix n: one entry per example."""

  id_n: Sequence[np.ndarray]  # int32 ids of each, special tokens included
  type_n: Sequence[np.ndarray]  # int32 segments of its tokens
  # name -> [n], or [n, G] where a row has G parts; becomes the batch's `<name>_BG`. Or [n, G, C],
  # `<name>_BGC`.
  label: Mapping[str, np.ndarray]
  cut: int  # number of examples that lost tokens, since they were too long
  # name -> what each token of each has, [T]; becomes the batch's `<name>_BT`
  token_label: Mapping[str, Sequence[np.ndarray]] = MappingProxyType({})
  # int32 number of the part that each token is of, from 1: parts do not see each other, and every
  # row has as many. (): each row is one part.
  part_n: Sequence[np.ndarray] = ()
  # answers that an evaluator compares predictions with, if the rows lack part of them
  truth: Sequence[Any] = ()
  # name -> what each column of the second text of each has, [U]; becomes the batch's `<name>_BU`:
  # out_token, target, weight
  second: Mapping[str, Sequence[np.ndarray]] = MappingProxyType({})
  # U of rows that are as long as any, where there are second texts
  columns: int = 0


INFER = ('infer',)


class Task(NamedTuple):
  """A kind of labelled examples: examples/labelled/NAME.py exports it as TASK."""

  options: type  # a frozen dataclass, the fields of `config.data.task` besides its name
  check: Callable[[Any], None]  # options -> None; refuses what cannot work
  read: Callable[[str, Any], Iterator[Any]]  # (path, options) -> the records of a file, one by one
  # options -> label of examples or of tokens -> its number of classes; 1: the label is a number
  classes: Callable[[Any], Mapping[str, int]]
  # (records, options, vocabulary, length) -> examples, whose parts are no longer than length
  encode: Callable[[Sequence[Any], Any, Any, int], Labelled]
  # the same for encoders whose [CLS] is the last token; None: the rows of `encode` with the [CLS]
  # of each part behind it
  encode_cls_last: Callable[[Sequence[Any], Any, Any, int], Labelled] | None = None
  # (record, options) -> the classes that it names; None: `classes` cannot be inferred
  named: Callable[[Any, Any], Iterable[str]] | None = None
  targets: Sequence[Targets] = ()  # the kinds that its targets are of, besides labels of examples

  @staticmethod
  def infers(options: Any) -> bool:
    """Returns whether `config.data.task.classes` is to be those of the examples of a run."""
    return getattr(options, 'classes', ()) == INFER


class RowSource(Protocol):
  """Rows by number: `Examples` over a store, a seqio stream, or labelled ones in memory."""

  @property
  def ordered(self) -> bool:
    """True if each row continues the same row of the batch before it."""
    ...

  @property
  def stats(self) -> dict[str, float]:
    """Numbers on the rows to log before a run, by name."""
    ...

  def batch(self, row_n: np.ndarray, shuffle: bool) -> dict[str, np.ndarray]:
    """These rows, counted over all epochs, as a batch with dropped_B."""
    ...


class TrainingRows(RowSource, Protocol):
  """Rows to train on."""

  def template(self) -> dict[str, np.ndarray]:
    """One of them, as long as the longest by every letter, without dropped_B: for its shapes and
    dtypes."""
    ...


class HeldOutRows(RowSource, Protocol):
  """Rows to evaluate on: `Examples` over a store, or rows in memory."""

  @property
  def rows(self) -> int:
    """Rows of an epoch."""
    ...

  @property
  def store(self) -> Any:
    """Knows the vocabulary."""
    ...

  def batch(
    self, row_n: np.ndarray, shuffle: bool, place_n: np.ndarray | None = None
  ) -> dict[str, np.ndarray]:
    """These rows; `place_n` are their places among those of an evaluation, which stand for their
    numbers where draws are spread over rows."""
    ...


class Reader(NamedTuple):
  """A source of a run's rows: examples/readers/NAME.py exports it as READER."""

  # the keys of `config.data` that it reads, besides those of every run (reader, languages, vocab,
  # lowercase, threads): also plan and mask, or task, which say what is made of its rows
  reads: Sequence[str]
  # (config.data, seed, workdir) -> the directory that `open` takes; makes what is missing
  ensure: Callable[[Any, int, str], str]
  # that directory -> the store, of the vocabulary alone where there is no text in it
  open: Callable[[Any], Any]
  # (config of a phase, store, directory for plans) -> the rows to train on, and those that their
  # source holds out, or None
  rows: Callable[[Any, Any, str | None], tuple[TrainingRows, HeldOutRows | None]]
  # (configs of all phases, directory of the store) -> what is read, a line for people
  says: Callable[[Sequence[Any], str], str]
  text: bool = False  # whether the store has the text, in files that are compared with their record
  # True: every host can make any batch at any time; False: batches come in order, and one thread
  # asks for them
  repeats: bool = True
  # rows are as long as they need be, in multiples of so many tokens; 0: all have one length
  unit: int = 0
  # keys of `config.data` that only `ensure` reads: no phase may override them
  of_run: Sequence[str] = ()
  # (config of a phase) -> nothing; refuses what `rows` would, as far as can be told before
  # `ensure`, which may take hours
  check: Callable[[Any], None] = lambda config: None
