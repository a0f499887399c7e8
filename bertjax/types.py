"""The contract between the train loop and a training system, and the one alphabet of axis letters.

Axis letters, in einsum strings and as the suffix of every array of rank >= 2:

  B batch rows     T query length      S key length      N heads       H head size
  D model width    F feed-forward      V vocabulary      L layers      M memory length
  P predicted slots per row            G packed examples per row       R relative positions
  U columns of a second text, a decoder's                 C classes     W characters of a word

The batch schema. Every array has B first; integers are int32, weights float32. All arrays of a
batch agree in the size of a letter (`sizes`). A recipe emits the keys that its
objective reads, always in these shapes:

  token_BT         input ids, corrupted where the objective says so
  example_BT       1, 2, .. number the packed examples of a row, 0 is padding; equal ids attend
  type_BT          segment A or B (0 or 1); feeds the embedding, never the mask
  position_BT      position within the packed example, from 0
  target_pos_BP    column of each predicted token in its row, ascending; 0 in unused slots
  target_BP        the original id there
  weight_BP        1.0 for a used slot, or its weight in the loss; 0.0 for an unused one
  divisor_B        what the loss at the targets of a row is divided by, where it is not the sum of
                   weight_BP (masked diffusion: all tokens of the row)
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
  out_token_BU     second text of each example as the decoder reads it: the token before each target
  out_example_BU   its example, with the numbers of example_BT, so that equal ids attend across the
                   texts too. It alone tells padding: the first column may hold id 0 and be real
  out_position_BU  position within the example's second text, from 0
  target_BU, weight_BU  the token to predict at each column of the second text, and 1.0 there
  target_BT, weight_BT  the same of the first text, where two directions each read one (ELMo)
  <name>_BT        ids of a table of `config.model.extra`: language, role
  order_q_BT, order_k_BT  query t sees key s iff order_q > order_k (XLNet's permutations)
  start_B          1 where the row does not go on where this row of the last batch stopped
  character_BTW, out_character_BUW  the characters of each word, where words are spelled (ELMo)
  second_B         token of the row before the noise with which its second text begins (ELMo)
  direction_B      -1 where the row's text runs backwards, else 1
  row_B            global row number within the step; added by the train step, keys the dropout
"""

import sys

if __name__ == 'types':  # of `python bertjax/main.py`: that folder's file hides Python's own
  module = sys.argv[0].rpartition('/')[2].removesuffix('.py')
  sys.exit(f'{sys.argv[0]}: expected python -m bertjax.{module}')

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax

from bertjax.data_contracts import HeldOutRows, Targets

Array = jax.Array
Batch = Mapping[str, Any]  # arrays of the device or of the host
Variables = Mapping[str, Any]  # collections; only 'params' is trained


def sizes(batch: Batch) -> dict[str, int]:
  """Returns letter -> size of the axis, by the names of a batch's arrays. Raises ValueError if two
  arrays have other sizes of one letter, or one has other axes than its name."""
  found: dict[str, int] = {}
  for name, value in batch.items():
    axes = name.rpartition('_')[2]
    if len(axes) != value.ndim or any(
      found.setdefault(letter, size) != size for letter, size in zip(axes, value.shape, strict=True)
    ):
      raise ValueError(f'{name} has the shape {value.shape}, the arrays before it {found}')
  return found


class Part(NamedTuple):
  """The way to take a part of a model, such as its encoder, from it."""

  # `config.model` of the whole -> that of the encoder
  model: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda model: model
  # parameters of the whole -> those of the encoder, and heads that go with it
  select: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda params: params


class Factory(NamedTuple):
  """A named choice of `config.model` or `config.objective`: models/NAME.py exports it as MODEL,
  objectives/NAME.py as OBJECTIVE."""

  # a class or function whose annotated keyword arguments are the fields of `config.model` or
  # `config.objective`, besides its name
  options: Callable[..., Any]
  # builds a model from `config.model`, or an objective from the run's config
  make: Callable[[Any], Any]
  # of a model, the part without what serves pretraining alone: what a student learns from
  encoder: Part = Part()
  tuned: Part | None = None  # of a model, what fine-tuning begins with; None: the encoder
  # name of a model that this one may begin as, its own or another -> (`config.model` of the run,
  # and of the other) -> what it takes of it
  begins: Mapping[str, Callable[[Any, Mapping[str, Any]], Part]] = MappingProxyType({})
  # of a model: (`config.model`, `config.data.task`) -> fields that it leaves to the task
  of_task: Callable[[Any, Mapping[str, Any]], Mapping[str, Any]] = lambda model, task: {}
  # of a model: `config.model` -> nets beside it that classes of transformers hold by themselves, by
  # the name of the folder that they go to
  beside: Callable[[Any], Mapping[str, Part]] = lambda model: {}
  # of an objective: (the run's config) -> the kinds of targets that it can learn from, one of which
  # its rows must have; (): it reads none; None: it does not say so, and all rows are taken
  targets: Callable[[Any], Sequence[Targets]] | None = None


class Beam(NamedTuple):
  """The likeliest starts of the answers of a batch and the likeliest ends of each, best first."""

  start_BK: Array  # float32 log-probabilities
  start_column_BK: Array  # int32
  end_BKK: Array  # log-probabilities of the ends of each start, if the answer starts there
  end_column_BKK: Array  # int32
  none_B: Array  # log-odds that there is no answer


class Term(NamedTuple):
  """A weighted mean, kept as sum and weight until both are global.

  The loop trains on `sum over terms of scale * total / (weight + plus)`, with total and weight
  summed over all devices and microbatches first, and logs `total / weight` under the term's name.
  """

  # sum of the weighted values of these rows, which may be those of a microbatch on a device: rows
  # do not know of each other. A metric's total may be a vector.
  total: Array
  weight: Array  # sum of the weights. Of a trained term it must not depend on the parameters.
  scale: float = 0.0  # its share of the trained loss; 0 makes it a metric
  plus: float = 0.0  # added once to the global weight (BERT's 1e-5)

  @classmethod
  def mean(cls, value: Array, weight: Array, scale: float = 0.0, plus: float = 0.0) -> 'Term':
    """Returns the mean of some values by their weights."""
    return cls(jax.numpy.sum(weight * value), jax.numpy.sum(weight), scale, plus)

  @classmethod
  def learned(
    cls, name: str, loss: Array, right: Array, weight: Array, scale: float = 1.0, plus: float = 0.0
  ) -> dict[str, 'Term']:
    """Returns the mean of a trained loss, `name`, and of what is right, `<name>_accuracy`."""
    means = cls.mean(loss, weight, scale, plus), cls.mean(right, weight)
    return dict(zip((name, f'{name}_accuracy'), means, strict=True))


TEACHER = 'teacher'  # the collection of variables that nobody trains and no checkpoint holds
FIT = 'fit'  # parameters that training alone has: who reads a run's model gets none of them


class Touched(NamedTuple):
  """The rows of tables that a training step reads, see `Objective.touched`."""

  # path of a parameter -> int32 ids [n], different from each other and sorted; those that fill up
  # are beyond the table
  rows: Mapping[str, Array] = {}
  drawn: Any = ()  # what was drawn to find them, for the loss


class Context(NamedTuple):
  """The inputs of a step besides variables and batch."""

  key: Array  # PRNG key of this step; equal on every device and in every microbatch
  step: Array  # the global step, traced, int32
  # static; False switches dropout off. An objective that samples also does so in evaluation, with a
  # fixed key.
  train: bool
  touched: Touched = Touched()  # what the tables of the variables have alone


class Out(NamedTuple):
  """The result of an objective."""

  terms: dict[str, Term]  # name -> Term
  carry: Any = ()  # state that this batch hands to the next one; B first in every leaf
  # collection (never 'params') -> (totals, weights), two trees like it. Both are summed over all
  # devices and microbatches; after the optimizer step each array of the collection becomes total /
  # weight, or stays as it is where the weight is 0.
  updates: Mapping[str, Any] = {}


def means(sums: Mapping[str, tuple[Any, Any]]) -> dict[str, float]:
  """name -> total / weight on the host; terms without weight are left out."""
  return {k: float(total) / float(weight) for k, (total, weight) in sums.items() if weight > 0}


class Objective(NamedTuple):
  """A training system as pure functions; the loop knows nothing else about it."""

  # (key, batch) -> variables, a dict of collections whose leaves are flax.linen partitioning boxes
  init: Callable[[Array, Batch], Variables]
  loss: Callable[[Variables, Any, Batch, Context], Out]  # (variables, carry, batch, ctx) -> Out
  # (variables, carry, batch) -> dict of arrays: logits and last hidden states
  predict: Callable[[Variables, Any, Batch], dict[str, Array]]
  carry: Callable[[Batch], Any]  # (batch) -> the carry before the first batch; () if there is none
  # (host batch) -> model FLOPs of one forward and backward pass over it: see
  # `bertjax/models/layers/flops.py`
  flops: Callable[[Batch], float]
  # name -> (total, weight) on the host -> the metrics that are logged; an objective with vector
  # totals (counts, histograms) makes its scalars here
  finish: Callable[[Mapping[str, tuple[Any, Any]]], dict[str, float]] = means
  # variables -> variables, applied once, before the first step of the phase (a warm start of one
  # part from another); or None
  enter: Callable[[Variables], Variables] | None = None
  evals: Sequence[str] = ('loss',)  # the modules of bertjax/evals that can judge it
  # (global batch, ctx) -> all rows of tables that a training step's loss reads. Where the optimizer
  # leaves other rows as they are, the loss is given tables of these alone, and `ctx.touched`.
  # Objectives that are combined give whole tables.
  touched: Callable[[Batch, Context], Touched] = lambda batch, ctx: Touched()


class Subject(NamedTuple):
  """The subject of an evaluator: one phase of a run."""

  config: Any  # config of the phase, references resolved
  # config -> Objective, for a model with other fields than in training
  make: Callable[[Any], Objective]
  objective: Objective  # the one that is trained
  shapes: Callable[[Objective, Batch], Any]  # (Objective, batch) -> its variables as shapes
  variables: Any  # those of `objective`
  template: Batch  # a host batch of zeros in the shapes of training
  store: Any  # of the training text; it knows the vocabulary and how often each id occurs
  held_out: Any  # store of the text that is kept for evaluation, or None
  # rows of a stream that are kept for it (config.data.reader='seqio'), or None
  stream: HeldOutRows | None
  fallback: str | None  # directory for plans where that of the store cannot be written
  ways: int  # number that must divide the rows of a batch
  # Objective -> (variables, carry, device batch) -> (sums, carry), compiled at its first use
  eval_step: Callable[[Objective], Callable[..., tuple[Any, Any]]]
  # function of (variables, ..) -> the function, compiled for the run's mesh at its first use with
  # arrays of these shapes
  compile: Callable[[Callable], Callable]
  put: Callable[[Batch], Any]  # global host batch -> global arrays; every process sends its rows
  shared: dict[Any, Any]  # results that evaluators of the phase share with each other, by key
  # of the set of `config.evals` that an evaluator is asked for, for messages
  key: str = 'config.evals'


class Report(NamedTuple):
  """The result of an evaluation."""

  scores: Mapping[str, float]  # name -> number
  table: Any = None  # a rich table to be shown with them, or None


class Evaluation(NamedTuple):
  """An evaluator that is ready for one phase."""

  names: frozenset[str]  # of the scores that it may give
  run: Callable[[Variables, int], Report]  # (variables, step) -> Report; every process calls it


class Evaluator(NamedTuple):
  """A way to judge a model: evals/NAME.py exports it as EVALUATOR."""

  options: type  # a NamedTuple class, the fields of a set in `config.evals` besides type and every
  # (Subject, options) -> Evaluation; whatever cannot work is refused here, before training
  make: Callable[[Subject, Any], Evaluation]
  # options -> whether they ask for nothing, and no objective need support it
  idle: Callable[[Any], bool] = lambda options: False
  # True if a set is evaluated at the end of the run alone, unless its `every` says more
  at_end: bool = False
