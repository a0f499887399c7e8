"""SpanBERT: masked tokens, and the tokens of a span from the two around it.

  sum of nll over masked tokens / their number
  + boundary_scale * sum of nll over the boundary's targets / (their number + plus)

facebookresearch/SpanBERT, span_bert_loss.py. Both denominators are global here, where the original
takes those of a GPU. Its trainer then multiplies the gradients of these means by
1 / (masked tokens of a GPU), as if they were sums: `gradient_scale`. Adam hides most of it, but
clipping at 1 never binds and eps weighs so much more. 1.0 mends it.
"""

from typing import Any, NamedTuple

from bertjax.errors import UserError
from bertjax.field_types import NonNegative, Positive
from bertjax.kernels.cross_entropy import cross_entropy
from bertjax.models.span_boundary import POSITIONS, SpanBert
from bertjax.objectives import in_one_pass, mlm, model_of
from bertjax.types import Batch, Factory, Objective, Term


class Options(NamedTuple):
  """The fields of `config.objective`.

  Attributes:
    boundary_scale: of the boundary's loss; 0: spans alone.
    plus: added to the number of the boundary's targets.
    gradient_scale: of the gradients of both losses; 1.0 leaves them as they are.
  """

  plus: NonNegative
  gradient_scale: Positive
  boundary_scale: NonNegative = 1.0


def boundary_terms(scores, batch: Batch, scale: float, plus: float) -> dict[str, Term]:
  """Returns boundary, the trained loss over the spans' targets, and boundary_accuracy, by the
  scores of the boundary head at every target; those outside of pairs do not count."""
  nll_BP, right_BP, _ = cross_entropy(scores, batch['target_BP'])
  return Term.learned('boundary', nll_BP, right_BP, batch['pair_weight_BP'], scale, plus)


def make(config) -> Objective:
  """Builds the objective from a run's config. Raises UserError: spans longer than the table of
  places, or see `model_of`."""
  settings, model = config.objective, model_of(config.model, config.objective.name, SpanBert)
  most = config.data.mask.max_pair_targets
  if most > POSITIONS:
    raise UserError(
      f'config.data.mask.max_pair_targets={most} is more than the {POSITIONS} places in a span '
      'that the boundary head tells apart: lower it'
    )
  gradient_scale = float(settings.gradient_scale)
  boundary_scale = gradient_scale * float(settings.boundary_scale)
  plus, masked = float(settings.plus), mlm.make(config)

  def terms(out: Any, batch: Batch) -> dict[str, Term]:
    found = mlm.masked_terms(out['word'], batch, 0.0, gradient_scale)
    return found | boundary_terms(out['boundary'], batch, boundary_scale, plus)

  return masked._replace(loss=in_one_pass(model, terms, ()).loss)


OBJECTIVE = Factory(Options, make, targets=lambda config: ('spans',))
