"""One net of ELECTRA as a BERT: ElectraForMaskedLM, a run's generator; the headless ElectraModel,
and a discriminator with the heads of fine-tuning.

The heads of these classes have the erf GELU whatever `hidden_act` says.
"""

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from bertjax.errors import UserError
from bertjax.formats.families import bert, electra
from bertjax.formats.family import Family, Layout
from bertjax.formats.tables import dense
from bertjax.models.electra import as_bert, encoder_of, generator_size


def layout(model: Any) -> Layout:
  """Returns the tables, their projection where widths differ, the layers and the heads."""
  rows = bert.encoder('electra')
  if model.embedding_width not in (0, model.width):
    rows += dense('embeddings/projection', 'electra.embeddings_project', 'D', 'E')
  words = bert.word_head(
    'generator_predictions.dense', 'generator_predictions.LayerNorm', 'generator_lm_head.bias'
  )
  tied = {'generator_lm_head.weight': 'electra.embeddings.word_embeddings.weight'}
  return bert.whole(model, rows, words, tied, bert.dense_heads(model, 'sequence_summary.summary'))


def write(model: Any) -> dict[str, Any]:
  """Returns the width of the tables; raises UserError as `bert.require_gelu`."""
  width = model.embedding_width or model.width
  return bert.require_gelu(model, 'ElectraForMaskedLM') | dict(embedding_size=width)


def model_of(model: Any) -> Any:
  """Returns the `config.model` of the generator in an ELECTRA model, of this family. Raises
  UserError: a model whose generator is no single net."""
  if model.generator not in ('own', 'shared'):
    raise UserError(
      "the class of transformers holds one generator: expected config.model.generator='own' or "
      f"'shared', got {model.generator!r}"
    )
  config = ConfigDict(as_bert(model))
  if model.generator == 'own':
    size = generator_size(model)
    width = model.embedding_width or model.width
    if not model.tied_embeddings:
      width = min(width, size['width'])
    config.update(size | dict(embedding_width=width))
  return config


def select(params: Mapping[str, Any], model: Any) -> dict[str, Any]:
  """Returns the parameters of the generator in an ELECTRA model, as those of `model_of`."""
  net = params['generator_net' if model.generator == 'own' else 'discriminator']
  tables = params.get('generator_embeddings', params['embeddings'])
  return dict(encoder_of(tables, net), mlm=params['mlm'])


def join(judge: Mapping[str, Any], generator: Mapping[str, Any], model: Any) -> dict[str, Any]:
  """Returns the parameters of an ELECTRA model with a generator of its own, the inverse of
  `select`; tied tables are those of the discriminator `judge`."""
  tables = dict(generator['embeddings'])
  net = dict(encoder=generator['encoder'])
  if 'projection' in tables:
    net['projection'] = tables.pop('projection')
  params = dict(judge, generator_net=net, mlm=generator['mlm'])
  return params if model.tied_embeddings else dict(params, generator_embeddings=tables)


FAMILY = Family(
  model='bert',
  model_type='electra',
  base='electra',
  classes=bert.masked_classes('Electra', ''),
  layout=layout,
  fields=electra.FIELDS,
  fixed=electra.FIXED,
  # The summary is what ElectraForMultipleChoice reads.
  theirs=dict(
    bert.THEIRS, summary_type=('first',), summary_use_proj=(True,), summary_activation=('gelu',)
  ),
  write=write,
  read=lambda given: dict(pooler_dropout=True),
)
