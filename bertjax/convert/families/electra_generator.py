"""ElectraForMaskedLM: the generator of an ELECTRA run.

Both classes hold the embeddings that our two nets share. To write a run's generator:

  generator, model = electra_generator.select(params, config.model)
  state_dict = huggingface.to_huggingface(generator, model)
"""

from collections.abc import Mapping
from typing import Any

from bertjax.convert.families.bert import encoder
from bertjax.convert.huggingface import Family, Row, dense, norm
from bertjax.errors import UserError
from bertjax.models.electra import generator_size


def family() -> Family:
  """The table of this family."""
  return Family(
    rows=(
      *encoder('electra', 'generator_net/'),
      *dense('mlm/dense', 'generator_predictions.dense', 'E', 'D'),
      *norm('mlm/norm', 'generator_predictions.LayerNorm', 'E'),
      Row('mlm/bias', 'generator_lm_head.bias', 'V->V'),
    ),
    projection=dense('generator_net/projection', 'electra.embeddings_project', 'D', 'E'),
    pooled=(),
    tied={'generator_lm_head.weight': 'electra.embeddings.word_embeddings.weight'},
    ignored=('.position_ids',),
  )


def select(params: Mapping[str, Any], config_model: Any) -> tuple[dict[str, Any], Any]:
  """The generator in an ELECTRA model, as parameters and `config.model` of this family.

  Raises:
    UserError: a model whose generator is no single net.
  """
  if config_model.generator not in ('own', 'shared'):
    raise UserError(
      "the class of transformers holds one generator: expected config.model.generator='own' or "
      f"'shared', got {config_model.generator!r}"
    )
  own = config_model.generator == 'own'
  chosen = dict(
    embeddings=params.get('generator_embeddings', params['embeddings']),
    generator_net=params['generator_net' if own else 'discriminator'],
    mlm=params['mlm'],
  )
  table_width = chosen['embeddings']['word'].shape[1]
  config = config_model.copy_and_resolve_references()
  config.update(dict(family='electra_generator', embedding_width=table_width))
  if own:
    config.update(generator_size(config_model))
  return chosen, config
