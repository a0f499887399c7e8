"""google-research/electra: model/modeling.py, run_pretraining.py; both nets in one checkpoint.

There is no JSON file beside it: shapes say the sizes, heads are of 64 as in util/training_utils.py,
and the activation is the erf GELU.
"""

from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from bertjax.formats.families import bert, electra, electra_net
from bertjax.formats.originals.bert import table_fields, word_head
from bertjax.formats.originals.original import HEAD, Kind, count, renamed, shape
from bertjax.formats.tables import Row, sizes_of
from bertjax.models.electra import beside


def fields(state: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
  """Returns the fields of `config.model`: of the discriminator, and the generator's share of
  them."""
  del given
  found, (width, ffn, depth) = table_fields(state, 'electra/embeddings'), _size(state, 'electra')
  found |= dict(width=width, ffn=ffn, layers=depth, heads=max(1, width // HEAD))
  if found['embedding_width'] == width:
    found['embedding_width'] = 0
  own = any(name.startswith('generator/encoder/') for name in state)
  words = 'generator_predictions/output_bias' in state
  # Without a net of its own, the words are the discriminator's: untied_generator=False.
  kind = 'own' if own else 'shared' if words else 'uniform'
  small, _, few = _size(state, 'generator') if own else (width, ffn, depth)
  found |= dict(
    name='electra', family='electra', norm_eps=1e-12, activation='gelu_erf',
    pooler_activation='gelu_erf', words=True, pooler=False, labels=(), token_labels=(),
    generator=kind, generator_width=small / width, generator_layers=few / depth,
    generator_head=HEAD, tied_embeddings='generator/embeddings/word_embeddings' not in state,
  )  # fmt: skip
  return bert.PLAIN | found, [f'no file says the heads: {found["heads"]}, of {HEAD} each']


def _size(state: Mapping[str, Any], net: str) -> tuple[int, int, int]:
  """Width, feed-forward width and layers of a net."""
  width, ffn = shape(state, f'{net}/encoder/layer_0/intermediate/dense/kernel')
  return width, ffn, count(state, f'{net}/encoder/layer_')


def rows(model: Any) -> tuple[Row, ...]:
  """Returns the discriminator with its head, and the generator, by sizes of its own where it is
  another net."""
  judge = renamed(electra.layout(model).rows, dense_prediction='dense_1')
  words = word_head('generator_predictions', 'generator_predictions')
  if model.generator != 'own':
    return judge + (words if model.generator == 'shared' else ())
  small = ConfigDict(beside(model)['generator'].model(model))
  bare = [row for row in electra_net.layout(small).rows if not row.head]
  bare = renamed(bare, electra='generator')
  net = [row._replace(ours=_of_generator(row.ours)) for row in bare]
  tables = [row for row in net if row.ours.startswith('generator_embeddings/')]
  generator = (*(row for row in net if row not in tables), *words)
  if not model.tied_embeddings:  # else those of the discriminator
    generator += tuple(tables)
  return judge + tuple(row._replace(sizes=sizes_of(small)) for row in generator)


def _of_generator(path: str) -> str:
  """Returns the path in the model of a parameter of its generator as a BERT."""
  if path.startswith('encoder/'):
    return f'generator_net/{path}'
  if path.startswith('embeddings/projection/'):
    return path.replace('embeddings/', 'generator_net/')
  return f'generator_{path}'


KIND = Kind(
  'an ELECTRA', 'electra', '', 'electra/', fields, rows,
  ('discriminator_predictions/', 'generator_predictions/', 'task_specific/'),
)  # fmt: skip
