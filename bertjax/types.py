"""The contract between the train loop and a training system, and the one alphabet of axis letters.

Axis letters, in einsum strings and as the suffix of every array of rank >= 2:

  B batch rows     T query length      S key length      N heads       H head size
  D model width    F feed-forward      V vocabulary      L layers      M memory length
  P predicted slots per row            G packed examples per row       R relative positions

The batch schema. Every array has B first; integers are int32, weights float32. A recipe emits the
keys that its objective reads, always in these shapes:

  token_BT         input ids, corrupted where the objective says so
  example_BT       1, 2, .. number the packed examples of a row, 0 is padding; equal ids attend
  type_BT          segment A or B (0 or 1); feeds the embedding, never the mask
  position_BT      position within the packed example, from 0
  target_pos_BP    column of each predicted token in its row, ascending; 0 in unused slots
  target_BP        the original id there
  weight_BP        1.0 for a used slot, 0.0 for an unused one
  masked_BP        1.0 where the input shows the mask token at that slot (0.8 of them for BERT), or
                   the target comes later (causal), for any target but [CLS] and [SEP]. Where every
                   position is predicted (objectives/lm.py), P = T and slot t is column t: the
                   target is the token after it, of the last column the next batch's first
  left_BP, right_BP  columns of the tokens around the span of a target (SpanBERT)
  offset_BP        its place in the span, from 0
  pair_weight_BP   1.0 where it is predicted from these two
  first_BG         column of the first token of each packed example; 0 in unused slots
  example_weight_BG  1.0 for a used packed example
  next_BG          next-sentence label: 0 is next, 1 is random (google-research/bert)
  <name>_BG        any other label of `config.model.labels`
  span_start_BG, span_end_BG  columns of the ends of an answer; that of [CLS] where there is none
  span_impossible_BG  1 where the question has no answer in the whole of its text
  tag_BT, tag_weight_BT  tag of a word at its first piece, and 1.0 there
  <name>_BT        ids of a table of `config.model.extra`: language, role
  order_q_BT, order_k_BT  query t sees key s iff order_q > order_k (XLNet's permutations)
  start_B          1 where the row does not go on where this row of the last batch stopped
  direction_B      -1 where the row's text runs backwards, else 1
  row_B            global row number within the step; added by the train step, keys the dropout
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import jax
import numpy as np

Array = jax.Array
Batch = Mapping[str, Any]  # arrays of the device or of the host
Variables = Mapping[str, Any]  # collections; only 'params' is trained


class Factory(NamedTuple):
  """What a model and an objective are chosen by: models/NAME.py exports it as MODEL,
  objectives/NAME.py as OBJECTIVE.

  Attributes:
    options: a class or function whose annotated keyword arguments are the fields of `config.model`
      or `config.objective`, besides its name.
    make: builds it: of a model from `config.model`, of an objective from the run's config.
  """

  options: Callable[..., Any]
  make: Callable[[Any], Any]


class Ranges(NamedTuple):
  """Where the tokens of some examples lie in the store; suffix n: one entry per token, r: per
  range, s: per special token, E: per example.

  The examples are laid end to end. Their special tokens are not in the store; all other places are
  filled, in order, with the tokens of the ranges.

  Attributes:
    start_r, length_r: int64, first token and tokens (>= 0) of each range of the store.
    special_s: int64, places of the special tokens; one may be named twice.
    id_s: int32, their ids.
    length_E: int64, tokens of each example, special ones included.
    type_n: int32 segment, 0, 1 or 2; None: all 0.
    label: name -> int32 [E]; becomes the batch's `<name>_BG`.
    table: name -> int32 [n]; becomes the batch's `<name>_BT`.
    position_n: int32 positions that the model sees; None: each token's place in its example.
    row: name -> [E], of a plan whose examples are rows; becomes the batch's `<name>_B`.
    order_n: int64, for each token that is not special its place among those of the ranges, where
      text is read in another order than the store's; None: as they come.
    ahead: whether each example is followed, in the ranges and places, by one more token, which is
      not part of it: the one that the next batch begins with.
  """

  start_r: np.ndarray
  length_r: np.ndarray
  special_s: np.ndarray
  id_s: np.ndarray
  length_E: np.ndarray
  type_n: np.ndarray | None = None
  label: Mapping[str, np.ndarray] = {}
  table: Mapping[str, np.ndarray] = {}
  position_n: np.ndarray | None = None
  row: Mapping[str, np.ndarray] = {}
  order_n: np.ndarray | None = None
  ahead: bool = False


Columns = Mapping[str, np.ndarray]  # one entry per example: what a plan keeps
Piece = tuple[dict[str, np.ndarray], dict[str, int]]  # some examples' columns, and counts


class Spec(NamedTuple):
  """What a plan's examples follow from, besides the store.

  Attributes:
    options: an instance of `Plan.options`.
    length: T, tokens per row, special tokens included.
    seed: of all draws.
    rows: rows of a batch; plans that are `ordered` alone read it.
  """

  options: Any
  length: int
  seed: int
  rows: int = 0


class Chosen(NamedTuple):
  """Examples whose ranges are asked for.

  Attributes:
    column: the plan's columns at these examples.
    index_E: int64, their numbers in the epoch.
    epoch: of an ordered plan, whose rows are asked for epoch by epoch.
    shuffle: of an ordered plan: whether the epoch has an order of its own.
  """

  column: Columns
  index_E: np.ndarray
  epoch: int = 0
  shuffle: bool = False


class Plan(NamedTuple):
  """Which tokens make up which example: data/plans/NAME.py exports it as PLAN.

  Attributes:
    options: a frozen dataclass, the fields of `config.data.plan` besides its name.
    special: names of the special tokens that it needs.
    build: (store, spec) -> the examples in pieces, made as they are read. Reads the store's offsets
      and columns, never its tokens. The column `length` is each example's tokens, special ones
      included; `group`, where there is one, its language, and `weight` what it counts for its
      language's share, 1 where there is none. What cannot work is refused at the call.
    ranges: (store, spec, chosen) -> where the tokens of these examples lie.
    ordered: rows go on where the same rows of the batch before stopped; they are never permuted,
      and every example is a row.
    row: names of the `<name>_B` that it gives.
  """

  options: type
  special: Sequence[str]
  build: Callable[[Any, Spec], Iterator[Piece]]
  ranges: Callable[[Any, Spec, Chosen], Ranges]
  ordered: bool = False
  row: Sequence[str] = ()


def one_row(options: Any) -> int:
  """Rows are corrupted one by one."""
  del options
  return 1


class Masking(NamedTuple):
  """What is hidden and predicted: data/masking/NAME.py exports it as MASKING.

  Attributes:
    options: a frozen dataclass, the fields of `config.data.mask` besides its name. One that draws
      has `static`: whether it draws the same in every epoch.
    special: names of the special tokens that it needs.
    check: (options, store, length); refuses what cannot work.
    corrupt: (rows, options, store) -> the batch's token_BT and targets, see `targets.emit`.
    slots: (options, length) -> P, predicted slots of a row.
    block: options -> how many rows must be corrupted together.
    row: names of the `<name>_B` that it reads, which the plan must give.
  """

  options: type
  special: Sequence[str]
  check: Callable[[Any, Any, int], None]
  corrupt: Callable[[Any, Any, Any], dict[str, np.ndarray]]
  slots: Callable[[Any, int], int]
  block: Callable[[Any], int] = one_row
  row: Sequence[str] = ()


class Labelled(NamedTuple):
  """Labelled examples as rows of tokens; suffix n: one entry per example.

  Attributes:
    id_n: int32 ids of each, special tokens included.
    type_n: int32 segments of its tokens.
    label: name -> [n], or [n, G] where a row has G parts; becomes the batch's `<name>_BG`. Or
      [n, G, C], `<name>_BGC`.
    cut: how many lost tokens, since they were too long.
    token_label: name -> what each token of each has, [T]; becomes the batch's `<name>_BT`.
    part_n: int32 number of the part that each token is of, from 1: parts do not see each other,
      and every row has as many. (): each row is one part.
    truth: what an evaluator compares predictions with, where the rows do not hold all of it.
  """

  id_n: Sequence[np.ndarray]
  type_n: Sequence[np.ndarray]
  label: Mapping[str, np.ndarray]
  cut: int
  token_label: Mapping[str, Sequence[np.ndarray]] = MappingProxyType({})
  part_n: Sequence[np.ndarray] = ()
  truth: Sequence[Any] = ()

  def take(self, number_n: np.ndarray) -> 'Labelled':
    """The examples of these numbers, in this order."""
    chosen = lambda found: [found[number] for number in number_n] if len(found) else found
    return Labelled(
      chosen(self.id_n), chosen(self.type_n), {k: v[number_n] for k, v in self.label.items()},
      self.cut, {k: chosen(v) for k, v in self.token_label.items()}, chosen(self.part_n),
      chosen(self.truth),
    )  # fmt: skip


class Beam(NamedTuple):
  """The likeliest starts of the answers of a batch and the likeliest ends of each, best first.

  Attributes:
    start_BK: float32 log-probabilities.
    start_column_BK: int32.
    end_BKK: log-probabilities of the ends of each start, if the answer starts there.
    end_column_BKK: int32.
    none_B: log-odds that there is no answer.
  """

  start_BK: Array
  start_column_BK: Array
  end_BKK: Array
  end_column_BKK: Array
  none_B: Array


class Task(NamedTuple):
  """What people have labelled: data/labelled/NAME.py exports it as TASK.

  Attributes:
    options: a frozen dataclass, the fields of `config.data.task` besides its name.
    check: options -> None; refuses what cannot work.
    read: (path, options) -> the records of a file, one by one.
    classes: options -> label of examples or of tokens -> how many classes it has; 1: it is a
      number.
    encode: (records, options, vocabulary, length) -> examples, whose parts are no longer than
      length.
    encode_cls_last: the same for encoders whose [CLS] is the last token; None: the rows of `encode`
      with the [CLS] of each part behind it.
  """

  options: type
  check: Callable[[Any], None]
  read: Callable[[str, Any], Iterator[Any]]
  classes: Callable[[Any], Mapping[str, int]]
  encode: Callable[[Sequence[Any], Any, Any, int], Labelled]
  encode_cls_last: Callable[[Sequence[Any], Any, Any, int], Labelled] | None = None


class RowSource(Protocol):
  """Rows by number: `Examples` over a store, a seqio stream, or labelled ones in memory."""

  @property
  def ordered(self) -> bool:
    """Whether rows go on where those of the batch before them stopped."""
    ...

  @property
  def stats(self) -> dict[str, float]:
    """What is worth saying of it before a run."""
    ...

  def batch(self, row_n: np.ndarray, shuffle: bool) -> dict[str, np.ndarray]:
    """These rows, counted over all epochs, as a batch with dropped_B."""
    ...


class TrainingRows(RowSource, Protocol):
  """Rows to train on."""

  def template(self) -> dict[str, np.ndarray]:
    """One of them, as long as the longest, without dropped_B: for its shapes and dtypes."""
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


class Reader(NamedTuple):
  """Where the rows of a run come from: data/readers/NAME.py exports it as READER.

  Attributes:
    reads: the sections of `config.data` that say what is made of its rows: plan and mask, or task.
    ensure: (config.data, seed, workdir) -> the directory that `open` takes; makes what is missing.
    open: that directory -> the store, of the vocabulary alone where there is no text in it.
    rows: (config of a phase, store, directory for plans) -> the rows to train on, and those that
      their source holds out, or None.
    says: (configs of all phases, directory of the store) -> what is read, a line for people.
    text: whether the store has the text, in files that are compared with their record.
    repeats: whether every host can make any batch at any time; else they come in order, and one
      thread asks for them.
    unit: rows are as long as they need be, in multiples of so many tokens; 0: all have one length.
  """

  reads: Sequence[str]
  ensure: Callable[[Any, int, str], str]
  open: Callable[[Any], Any]
  rows: Callable[[Any, Any, str | None], tuple[TrainingRows, HeldOutRows | None]]
  says: Callable[[Sequence[Any], str], str]
  text: bool = False
  repeats: bool = True
  unit: int = 0


class Term(NamedTuple):
  """A weighted mean, kept as sum and weight until both are global.

  The loop trains on `sum over terms of scale * total / (weight + plus)`, with total and weight
  summed over all devices and microbatches first, and logs `total / weight` under the term's name.

  Attributes:
    total: sum of the weighted values of these rows, which may be those of a microbatch on a device:
      rows do not know of each other. A metric's total may be a vector.
    weight: sum of the weights. Of a trained term it must not depend on the parameters.
    scale: its share of the trained loss; 0 makes it a metric.
    plus: added once to the global weight (BERT's 1e-5).
  """

  total: Array
  weight: Array
  scale: float = 0.0
  plus: float = 0.0


TEACHER = 'teacher'  # the collection of variables that nobody trains and no checkpoint holds
FIT = 'fit'  # parameters that training alone has: who reads a run's model gets none of them


class Context(NamedTuple):
  """What a step knows besides variables and batch.

  Attributes:
    key: PRNG key of this step; equal on every device and in every microbatch.
    step: the global step, traced, int32.
    train: static; False switches dropout off. An objective that samples does so in
      evaluation too, with a key that stays.
  """

  key: Array
  step: Array
  train: bool


class Out(NamedTuple):
  """What an objective returns.

  Attributes:
    terms: name -> Term.
    carry: what this batch hands the next one; B first in every leaf.
    updates: collections to replace after the optimizer step (never 'params').
  """

  terms: dict[str, Term]
  carry: Any = ()
  updates: Mapping[str, Any] = {}


def means(sums: Mapping[str, tuple[Any, Any]]) -> dict[str, float]:
  """name -> total / weight on the host; terms without weight are left out."""
  return {k: float(total) / float(weight) for k, (total, weight) in sums.items() if weight > 0}


class Objective(NamedTuple):
  """A training system as pure functions; the loop knows nothing else about it.

  Attributes:
    init: (key, batch) -> variables, a dict of collections whose leaves are flax.linen partitioning
      boxes.
    loss: (variables, carry, batch, ctx) -> Out.
    predict: (variables, carry, batch) -> dict of arrays: logits and, where asked, hidden states.
    carry: (batch) -> the carry before the first batch; () if there is none.
    flops: (host batch) -> model FLOPs of one forward and backward pass over it: see
      `bertjax/models/layers/flops.py`.
    finish: name -> (total, weight) on the host -> the metrics that are logged; an objective with
      vector totals (counts, histograms) makes its scalars here.
    enter: variables -> variables, applied once, before the first step of the phase (a warm start
      of one part from another); or None.
    evals: the modules of bertjax/evals that can judge it.
  """

  init: Callable[[Array, Batch], Variables]
  loss: Callable[[Variables, Any, Batch, Context], Out]
  predict: Callable[[Variables, Any, Batch], dict[str, Array]]
  carry: Callable[[Batch], Any]
  flops: Callable[[Batch], float]
  finish: Callable[[Mapping[str, tuple[Any, Any]]], dict[str, float]] = means
  enter: Callable[[Variables], Variables] | None = None
  evals: Sequence[str] = ('loss',)


class Subject(NamedTuple):
  """What an evaluator judges: one phase of a run.

  Attributes:
    config: the phase's, references resolved.
    make: config -> Objective, for one with other fields of the model than in training.
    objective: the one that is trained.
    shapes: (Objective, batch) -> its variables as shapes.
    variables: those of `objective`.
    template: a host batch of zeros in the shapes of training.
    store: of the training text; it knows the vocabulary and how often each id occurs.
    held_out: store of the text that is kept for evaluation, or None.
    stream: rows of a stream that are kept for it (config.data.reader='seqio'), or None.
    fallback: directory for plans where that of the store cannot be written.
    ways: the rows of a batch must be a multiple of it.
    eval_step: Objective -> (variables, carry, device batch) -> (sums, carry), compiled at its first
      use.
    compile: function -> the function, compiled for the run's mesh at its first use.
    put: global host batch -> global arrays; every process sends its rows.
    shared: what the evaluators of the phase made and may take from each other.
  """

  config: Any
  make: Callable[[Any], Objective]
  objective: Objective
  shapes: Callable[[Objective, Batch], Any]
  variables: Any
  template: Batch
  store: Any
  held_out: Any
  stream: HeldOutRows | None
  fallback: str | None
  ways: int
  eval_step: Callable[[Objective], Callable[..., tuple[Any, Any]]]
  compile: Callable[[Callable], Callable]
  put: Callable[[Batch], Any]
  shared: dict[Any, Any]


class Report(NamedTuple):
  """What an evaluation found.

  Attributes:
    scores: name -> number.
    table: a rich table to be shown with them, or None.
  """

  scores: Mapping[str, float]
  table: Any = None


class Evaluation(NamedTuple):
  """An evaluator that is ready for one phase.

  Attributes:
    names: of the scores that it may give.
    run: (variables, step) -> Report; every process calls it.
  """

  names: frozenset[str]
  run: Callable[[Variables, int], Report]


class Evaluator(NamedTuple):
  """A way to judge a model: evals/NAME.py exports it as EVALUATOR.

  Attributes:
    options: a NamedTuple class, the fields of a set in `config.evals` besides type and every.
    make: (Subject, options) -> Evaluation; whatever cannot work is refused here, before training.
    idle: options -> whether they ask for nothing, and no objective need support it.
  """

  options: type
  make: Callable[[Subject, Any], Evaluation]
  idle: Callable[[Any], bool] = lambda options: False
