"""Replaced-token detection: a generator fills the masks, a discriminator finds what it filled in.

Clark et al. 2020, google-research/electra, run_pretraining.py:

  generator_weight * sum(w nll) / (sum(w) + plus)
  + discriminator_weight * sum over real tokens of BCE / (their number + plus)

[CLS] and [SEP] are real tokens, with label 0. Both denominators are global here, those of a device
there. A slot's replacement is drawn from softmax(logits / temperature), without a gradient, by one
uniform of its position (`kernels/sampling.py`), so that the slots of a position agree. The
original draws for each slot by itself and takes the average of the ids of a position drawn twice,
which is no sample: not kept. A token is labelled replaced if it differs from the original.

`train` says what a phase trains: 'both', 'generator' (masked-LM alone, the discriminator does not
run) or 'discriminator' (the generator draws, its loss is a metric). Which parameters move is the
optimizer's to say. `copy_generator` copies the generator into the discriminator when the phase
begins: the paper's two-stage training.

Electric (Clark et al. 2020b): `electric` adds log q(token | the others) of a two-tower generator
and log(rate / (1 - rate)) to the discriminator's logit D, and labels every token that was drawn,
also where the original was drawn again: it tells noise from data, and the best D is
-log p(token | the others). Two towers learn from every token but the first and last of a segment,
which are special in the plans that this is for.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bertjax.errors import UserError
from bertjax.field_types import NonNegative, Positive
from bertjax.kernels import dropout, sampling
from bertjax.kernels.cross_entropy import Scores, cross_entropy, logits
from bertjax.kernels.dropout import Noise, noise_from_key
from bertjax.models.electra import Electra, generator_size
from bertjax.models.layers.heads import at_targets
from bertjax.objectives import model_of
from bertjax.objectives.mlm import masked_terms
from bertjax.types import Array, Batch, Context, Factory, Objective, Out, Term, means

Trained = Literal['both', 'generator', 'discriminator']

BINS, BIN_WIDTH = 2048, 1 / 64  # of the logits, from -16 to 16
BY_WORD = 'rtd_by_word'
_SITE = ('rtd', 'sample')


class Options(NamedTuple):
  """The fields of `config.objective`.

  Attributes:
    plus: added to the weights of both losses.
    generator_weight, discriminator_weight: of the losses; the defaults, and that of temperature,
      are those of electra/configure_pretraining.py.
    temperature: of the generator's draws.
    electric: the discriminator tells noise from data, with a generator of two towers (Electric).
    train: the net that learns.
    copy_generator: the discriminator begins as a copy of the generator when the phase begins.
  """

  plus: NonNegative
  generator_weight: NonNegative = 1.0
  discriminator_weight: NonNegative = 50.0
  temperature: Positive = 1.0
  electric: bool = False
  train: Trained = 'both'
  copy_generator: bool = False


def replace(token_BT: Array, id_BP: Array, batch: Batch) -> Array:
  """token_BT with the ids written at the used slots; the largest id where slots coincide."""
  column_BP = jnp.where(batch['weight_BP'] > 0, batch['target_pos_BP'], token_BT.shape[1])

  def row(token_T, column_P, id_P):
    new_T = jnp.full_like(token_T, -1).at[column_P].max(id_P, mode='drop')
    return jnp.where(new_T >= 0, new_T, token_T)

  return jax.vmap(row)(token_BT, column_BP, id_BP)


def drawn(batch: Batch) -> Array:
  """Marks the tokens that the generator writes, with the original id or another, bool [B, T]."""
  none_BT, one_BP = jnp.zeros_like(batch['token_BT']), jnp.ones_like(batch['target_BP'])
  return replace(none_BT, one_BP, batch) > 0


def bits(batch: Batch, noise: Noise) -> Array:
  """uint32 [B, P]; slots of one position have the same."""
  bits_BT = dropout.random_bits(noise, dropout.site(_SITE), batch['token_BT'].shape)
  return jnp.take_along_axis(bits_BT, batch['target_pos_BP'], axis=1)


def draw(scores: Scores, batch: Batch, noise: Noise, temperature: float) -> Array:
  """Returns ids of the generator at the targets, int32 [B, P], by its scores there, the keys of the
  step and the temperature of the softmax."""
  return sampling.sample(scores, sampling.uniform(bits(batch, noise)), temperature)


def text_weight(batch: Batch) -> Array:
  """1.0 at the tokens of a segment but the first of an example and the last of each segment."""
  same = lambda x_BT: jnp.pad(x_BT[:, 1:] == x_BT[:, :-1], ((0, 0), (0, 1)))
  inside_BT = same(batch['example_BT']) & same(batch['type_BT'])
  return (inside_BT & (batch['position_BT'] > 0) & (batch['example_BT'] > 0)).astype(jnp.float32)


def detection_terms(
  logit_BT: Array, replaced_BT: Array, real_BT: Array, scale: float, plus: float
) -> dict[str, Term]:
  """rtd: the trained loss over real tokens. rtd_histogram: their logits by label, [2, BINS]."""
  real_BT, label_BT = real_BT.astype(jnp.float32), replaced_BT.astype(jnp.float32)
  bce_BT = jax.nn.softplus(logit_BT) - label_BT * logit_BT
  low = jax.lax.stop_gradient(jnp.floor(logit_BT / BIN_WIDTH)) + BINS // 2
  cell_BT = jnp.clip(low, 0, BINS - 1).astype(jnp.int32) + BINS * replaced_BT
  histogram = jnp.zeros(2 * BINS).at[cell_BT.reshape(-1)].add(real_BT.reshape(-1))
  return dict(
    rtd=Term.mean(bce_BT, real_BT, scale, plus),
    rtd_histogram=Term(histogram.reshape(2, BINS), jnp.sum(real_BT)),
  )


def labels_by_word(token_BT: Array, replaced_BT: Array, real_BT: Array, size: int) -> Term:
  """Counts each id as original and as replaced, among real tokens: float32 [2, size]."""
  real_BT = real_BT.astype(jnp.float32)
  cell_n = (token_BT + size * replaced_BT).reshape(-1)
  count = jnp.zeros(2 * size).at[cell_n].add(real_BT.reshape(-1))
  return Term(count.reshape(2, size), jnp.sum(real_BT))


def auc(original: np.ndarray, replaced: np.ndarray) -> float:
  """Returns the chance that a replaced token lies in a higher bin than an original one, by float64
  counts of both in ascending bins. Pairs within a bin count as one half, so it is off by at most
  half the share of such pairs, and far less where the densities are smooth in a bin."""
  below = np.cumsum(original) - original / 2
  return float((replaced * below).sum() / (replaced.sum() * original.sum()))


def finish(sums: Mapping[str, tuple[Any, Any]]) -> dict[str, float]:
  """Returns the means, and what the histogram of the logits tells about detection: rtd_auc, see
  `auc`; rtd_precision and rtd_recall of "replaced", logit above 0 (a bin begins there, so they are
  exact); rtd_replaced, the share of tokens with that label. What has no tokens to count is left
  out."""
  sums = {k: v for k, v in sums.items() if k != BY_WORD}  # for who knows how frequent words are
  histogram, _ = sums.pop('rtd_histogram', (None, 0))
  found = means(sums)
  if histogram is None:
    return found
  original, replaced = np.asarray(histogram, np.float64)
  negatives, positives = original.sum(), replaced.sum()
  if negatives + positives:
    found['rtd_replaced'] = float(positives / (negatives + positives))
  if negatives and positives:
    found['rtd_auc'] = auc(original, replaced)
  hits, alarms = replaced[BINS // 2 :].sum(), original[BINS // 2 :].sum()
  if positives:
    found['rtd_recall'] = float(hits / positives)
  if hits + alarms:
    found['rtd_precision'] = float(hits / (hits + alarms))
  return found


def copy_generator(variables: Mapping[str, Any]) -> dict[str, Any]:
  """Variables whose discriminator has the generator's weights; its head stays as it is."""
  params = dict(variables['params'])
  params['discriminator'] = params['generator_net']
  params['embeddings'] = params.get('generator_embeddings', params['embeddings'])
  return dict(variables, params=jax.tree.map(jnp.copy, params))


def check(config: Any) -> None:
  """Checks `config.objective` against the model. Raises UserError for what the model cannot do."""
  settings, model = config.objective, config.model
  if settings.electric and model.generator != 'two_tower':
    raise UserError(
      "config.objective.electric needs q of every token: set config.model.generator='two_tower', "
      f'got {model.generator!r}'
    )
  if settings.train == 'generator' and model.generator == 'uniform':
    raise UserError("config.objective.train='generator', but config.model.generator is 'uniform'")
  ours = generator_size(model)
  theirs = {key: model[key] for key in ours}
  if settings.copy_generator and (model.generator != 'own' or ours != theirs):
    raise UserError(
      'config.objective.copy_generator needs a generator of the size of the discriminator, '
      f"{theirs}, got {ours} and config.model.generator={model.generator!r}: set 'own', "
      'generator_width=1.0, generator_layers=1.0 and generator_head=width // heads'
    )


def make(config) -> Objective:
  """Builds the objective from a run's config. Raises UserError: see `model_of` and `check`."""
  model = model_of(config.model, config.objective.name, Electra)
  check(config)
  settings = config.objective
  pair = _Pair(model, settings, _log_odds(config) if settings.electric else 0.0)
  enter = copy_generator if settings.copy_generator else None
  words = () if model.generator == 'uniform' else ('pseudo_perplexity', 'fill_mask')
  evals = ('loss', 'linear_probe', *words)
  carry = lambda batch: ()
  return Objective(model.init, pair.loss, pair.predict, carry, pair.flops, finish, enter, evals)


def _log_odds(config: Any) -> float:
  """Returns the log-odds that a token is replaced; raises what `check` raises."""
  rate = config.data.mask.rate if 'rate' in config.data.mask else None
  if not rate or rate >= 1:
    raise UserError(
      f'config.objective.electric needs a share of tokens that are replaced: expected a mask '
      f'with rate below 1, got {config.data.mask.name!r} with {rate}'
    )
  return math.log(rate / (1 - rate))


class _Pair(NamedTuple):
  """Generator and discriminator, as the functions of an `Objective`."""

  model: Electra
  settings: Any  # `config.objective`
  odds: float  # log odds of a token being replaced, where that is asked for

  def loss(self, variables, carry, batch: Batch, ctx: Context) -> Out:
    """Computes the terms of the generator and of the discriminator, as `Objective.loss`."""
    noise = noise_from_key(ctx.key, batch['row_B'])
    dropped = noise if ctx.train else None
    original_BT = replace(batch['token_BT'], batch['target_BP'], batch)
    if self.model.generator == 'uniform':
      terms, scores = {}, None
      id_BP = (bits(batch, noise) % jnp.uint32(self.model.vocab_size)).astype(jnp.int32)
    else:
      terms, scores, picked = self._generated(variables, batch, original_BT, dropped)
      if self.settings.train == 'generator':
        return Out(terms, carry)
      id_BP = draw(picked, batch, noise, self.settings.temperature)
    fake_BT = replace(batch['token_BT'], id_BP, batch)
    shown = dict(batch, token_BT=fake_BT), dropout.fork(dropped, 'fake')
    logit_BT = self._apply('discriminate', variables, *shown)['rtd_BT']
    return Out(terms | self._detected(logit_BT, fake_BT, original_BT, scores, batch, ctx), carry)

  def _generated(
    self, variables, batch: Batch, original_BT: Array, noise: Noise | None
  ) -> tuple[dict[str, Term], Scores, Scores]:
    """Returns the generator's terms, its scores, and those at the targets."""
    train = self.settings.train
    generator_scale = 0.0 if train == 'discriminator' else float(self.settings.generator_weight)
    towers, plus = self.model.generator == 'two_tower', self.settings.plus
    # Two towers do not see the token that they predict, so nothing is hidden from them.
    seen = dict(batch, token_BT=original_BT) if towers else batch
    scores = self._apply('generate', variables, seen, noise)
    if not towers:
      return masked_terms(scores, batch, plus, generator_scale), scores, scores
    weight_BT = text_weight(batch)
    cloze = Term.mean(cross_entropy(scores, original_BT)[0], weight_BT, generator_scale, plus)
    picked = at_targets(scores, batch)
    return masked_terms(picked, batch, plus, 0.0) | dict(cloze=cloze), scores, picked

  def _detected(
    self, logit_BT: Array, fake_BT: Array, original_BT: Array, scores: Scores | None, batch: Batch,
    ctx: Context,
  ) -> dict[str, Term]:  # fmt: skip
    """Returns the discriminator's terms."""
    real_BT, replaced_BT = batch['example_BT'] > 0, fake_BT != original_BT
    if self.settings.electric:
      assert scores is not None, 'two towers: see `check`'
      logit_BT += jax.lax.stop_gradient(self.odds - cross_entropy(scores, fake_BT)[0])
      replaced_BT = drawn(batch)
    scale = float(self.settings.discriminator_weight)
    terms = detection_terms(logit_BT, replaced_BT, real_BT, scale, self.settings.plus)
    if ctx.train:
      return terms
    by_word = labels_by_word(fake_BT, fake_BT != original_BT, real_BT, self.model.vocab_size)
    return terms | {BY_WORD: by_word}

  def _apply(self, method: str, variables, *args: Any) -> Any:
    return self.model.apply(variables, *args, method=method)

  def predict(self, variables, carry, batch: Batch) -> dict[str, Array]:
    """logits_BPV of the generator, and what the discriminator says of the batch as it is."""
    out = self._apply('discriminate', variables, batch, None)
    if self.model.generator != 'uniform':
      out['logits_BPV'] = logits(self._apply('word_scores', variables, batch))
    return out

  def flops(self, batch: Batch) -> float:
    """Returns the FLOPs of generator and discriminator for a batch, as `Objective.flops`."""
    if self.settings.train == 'generator':
      return self.model.generator_flops(batch)
    # A generator that only draws runs forward alone, a third of forward and backward.
    share = 1 / 3 if self.settings.train == 'discriminator' else 1
    return self.model.discriminator_flops(batch) + self.model.generator_flops(batch) * share


OBJECTIVE = Factory(Options, make, targets=lambda config: ('hidden',))
