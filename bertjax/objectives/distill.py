"""A student learns what its teacher says, and what its data say: knowledge distillation.

Of a label, one of the tasks of classify.py (Hinton et al. 2015; Patient KD, Sun et al. 2019,
intersun/PKD-for-BERT-Model-Compression):

  hard * CE(label) + soft * T^2 * KL(teacher || student at T) + states * PT

where PT is the mean squared error between the states of the first token in the student's layers,
all but the last, and in some of the teacher's. Of words (DistilBERT, Sanh et al. 2019):

  hard * masked-LM CE + soft * T^2 * KL over all tokens + cosine * (1 - cos of the last states)

Where hard is 0 its loss is a metric alone; other losses with a factor of 0 are not computed. The
teacher has no dropout and no gradient.
"""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bertjax.errors import UserError, amount
from bertjax.field_types import NONE, Natural, NonNegative, Positive
from bertjax.kernels.cross_entropy import Scores, logits
from bertjax.models.layers.contracts import TargetModel
from bertjax.models.layers.heads import at_targets, gather_positions
from bertjax.objectives import (
  check_heads,
  classify,
  has_words,
  labels_of,
  mlm,
  soft_labels,
  teaching,
)
from bertjax.objectives.teaching import KEY, divergence
from bertjax.types import Array, Batch, Context, Factory, Objective, Out, Term


class Options(NamedTuple):
  """The fields of `config.objective`.

  Attributes:
    teacher: whose parameters are the collection 'teacher'.
    hard: factor of the loss on the data's own labels or words; Patient KD's 1 - alpha.
    soft: factor of the divergence from the teacher, Patient KD's alpha; of a number, of the squared
      error.
    temperature: T, by which the logits of both are divided.
    kl: a divergence is the sum over the classes, or their mean, as in the code of Patient KD, whose
      factors go with it.
    everywhere: of words, whether soft is of all tokens (DistilBERT), or of the masked ones alone.
    cosine: factor of the angle between the last states.
    states: factor of the squared error of states.
    state_layers: layers of the teacher, from 0, one for each layer of the student but the last.
    normalize: whether states are divided by their lengths first.
  """

  hard: NonNegative
  soft: NonNegative
  temperature: Positive
  kl: Literal['sum', 'mean']
  teacher: Mapping[str, Any] = NONE
  everywhere: bool = False
  cosine: NonNegative = 0.0
  states: NonNegative = 0.0
  state_layers: tuple[Natural, ...] = ()
  normalize: bool = False


def word_divergence(teacher: Scores, student: Scores, temperature: float) -> Array:
  """`divergence` of the words at each position, float32 [B, P]."""

  def part(theirs_BPE: Array, ours_BPE: Array) -> Array:
    wanted_BPV = logits(teacher._replace(hidden_BPE=theirs_BPE))
    return divergence(wanted_BPV, logits(student._replace(hidden_BPE=ours_BPE)), temperature)

  hiddens = (teacher.hidden_BPE, student.hidden_BPE)
  return teaching.by_columns(part, hiddens, student.table_VE.shape[0])


def at_every_token(batch: Batch) -> Batch:
  """Returns the batch for a model that is to make scores of each token."""
  shape = batch['token_BT'].shape
  return dict(batch, target_pos_BP=jnp.broadcast_to(jnp.arange(shape[1], dtype=jnp.int32), shape))


def state_error(
  teacher_LBTD: Array, student_LBTD: Array, batch: Batch, layers: tuple[int, ...], normalize: bool
) -> Array:
  """Returns the mean over layers and width of the squared error of the first tokens' states, [B,
  G], of the outputs of all layers; `layers` are the teacher's for the student's but the last."""
  first = jax.vmap(lambda x_BTD: gather_positions(x_BTD, batch['first_BG']))
  theirs = first(teacher_LBTD[np.array(layers)]).astype(jnp.float32)
  ours = first(student_LBTD[:-1]).astype(jnp.float32)
  if normalize:
    theirs, ours = _unit(theirs), _unit(ours)
  return jnp.mean(jnp.square(theirs - ours), (0, -1))


def make(config) -> Objective:
  """Builds the objective from a run's config, whose teacher has been opened. Raises UserError: see
  `teaching.pair_of` and `classify.classes_of`; a teacher of another width, or factors for what the
  student has not."""
  given = config.objective
  pair = teaching.pair_of(config, TargetModel)
  words = has_words(config.model)
  _check(config, words)
  factor = {name: float(given[name]) for name in ('hard', 'soft', 'cosine', 'states')}
  temperature, layers = float(given.temperature), tuple(given.state_layers)
  everywhere = words and given.everywhere
  inner = factor['states'] > 0

  def word_terms(out, theirs, batch: Batch) -> dict[str, Term]:
    real_BT = (batch['example_BT'] > 0).astype(jnp.float32)
    targets = at_targets(out['word'], batch) if everywhere else out['word']
    terms = mlm.masked_terms(targets, batch, 0.0, factor['hard'])
    if factor['soft']:
      weight_BP = real_BT if everywhere else batch['weight_BP']
      error_BP = word_divergence(theirs['word'], out['word'], temperature)
      if given.kl == 'mean':
        error_BP /= config.model.vocab_size
      terms['soft'] = Term.mean(error_BP, weight_BP, factor['soft'] * temperature**2)
    if factor['cosine']:
      near_BT = jnp.sum(_unit(out['last_BTD']) * _unit(theirs['last_BTD']), -1)
      terms['cosine'] = Term.mean(1.0 - near_BT, real_BT, factor['cosine'])
    return terms

  def label_terms(out, theirs, batch: Batch) -> dict[str, Term]:
    ours_BGC, theirs_BGC = (x['label_BGC'][classify.LABEL] for x in (out, theirs))
    terms = soft_labels.terms(ours_BGC, theirs_BGC, batch, given)
    if inner:
      error_BG = state_error(
        theirs['hidden_LBTD'], out['hidden_LBTD'], batch, layers, given.normalize
      )
      terms['states'] = Term.mean(error_BG, batch['example_weight_BG'], factor['states'])
    return terms

  def loss(variables, carry, batch: Batch, ctx: Context) -> Out:
    seen = at_every_token(batch) if everywhere else batch
    out, theirs = pair.outputs(variables, seen, ctx, inner)
    return Out((word_terms if words else label_terms)(out, theirs, batch), carry)

  def predict(variables, carry, batch: Batch) -> dict[str, Array]:
    out = pair.predict(variables, carry, batch)
    return dict(out, logits_BPV=logits(out['word'])) if words else out

  def flops(batch: Batch) -> float:
    if everywhere:
      batch = dict(batch, weight_BP=np.asarray(batch['example_BT']) > 0)
    return pair.flops(batch)

  evals = ('loss', 'pseudo_perplexity', 'fill_mask') if words else ('classification',)
  return Objective(pair.init, loss, predict, lambda batch: (), flops, evals=evals)


def _check(config, words: bool) -> None:
  """Refuses factors for what student or teacher have not."""
  given, student, teacher = config.objective, config.model, config.objective.teacher.model
  head = 'words' if words else 'labels'
  if words:
    check_heads(config, words=True)
    teaching.check_vocabulary(config)
  classes = None if words else classify.classes_of(config)
  theirs = dict(labels_of(teacher)).get(classify.LABEL)
  if not (has_words(teacher) if words else theirs):
    raise UserError(
      f'{KEY}.teacher has no head for {head}, which the student is to learn from: expected one '
      f'that was {"pretrained" if words else "fine-tuned on the task"}'
    )
  if theirs != classes and not words:
    raise UserError(
      f'{KEY}.teacher tells {theirs} classes apart, the student {classes}: expected a teacher that '
      'was fine-tuned on this task'
    )
  for name, only in (('cosine', True), ('states', False)):
    if given[name] and only != words:
      raise UserError(
        f'{KEY}.{name}={given[name]} is of {"words" if only else "labels"}: set it to 0'
      )
    if given[name] and teacher.width != student.width:
      raise UserError(
        f'{KEY}.{name}={given[name]} compares states of one width, and the teacher has '
        f'{teacher.width}, the student {student.width}: set it to 0'
      )
  chosen, wanted = tuple(given.state_layers), student.layers - 1
  if given.states and (len(chosen) != wanted or any(n >= teacher.layers for n in chosen)):
    raise UserError(
      f'{KEY}.state_layers: expected {amount(wanted, "layers")} below {teacher.layers}, one for '
      f"each of the student's but the last, got {chosen!r}"
    )
  if not any(given[name] for name in ('soft', 'cosine', 'states')):
    raise UserError(f'{KEY}: expected soft, cosine or states above 0; else it needs no teacher')


def _unit(x: Array) -> Array:
  """float32 vectors of length 1 along the last axis."""
  x = x.astype(jnp.float32)
  return x / jnp.maximum(jnp.linalg.norm(x, axis=-1, keepdims=True), 1e-12)


OBJECTIVE = Factory(
  Options, make, targets=lambda config: mlm.targets(config) if has_words(config.model) else ()
)
