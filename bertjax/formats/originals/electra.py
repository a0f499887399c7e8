"""google-research/electra: model/modeling.py, run_pretraining.py; both nets in one checkpoint.

There is no JSON file beside it: shapes say the sizes, heads are of 64 as in util/training_utils.py,
and the activation is the erf GELU.
"""

from collections.abc import Mapping
from typing import Any

from bertjax.formats.families import electra_net
from bertjax.formats.families.bert import PLAIN
from bertjax.formats.originals.bert import HEAD, table_fields
from bertjax.formats.originals.original import Part, count, shape
from bertjax.formats.originals.tensorflow_rows import Kind, dense, embeddings, layers, word_head
from bertjax.formats.tables import Row, heads

NETS = ('electra', 'generator')


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
  assumed = [f'no file says the heads: {found["heads"]}, of {HEAD} each']
  return (
    PLAIN
    | found
    | dict(
      name='electra', family='electra', norm_eps=1e-12, activation='gelu_erf',
      pooler_activation='gelu_erf', words=True, pooler=False, labels=(), token_labels=(),
      generator=kind, generator_width=small / width, generator_layers=few / depth,
      generator_head=HEAD, tied_embeddings='generator/embeddings/word_embeddings' not in state,
    ),
    assumed,
  )  # fmt: skip


def _size(state: Mapping[str, Any], net: str) -> tuple[int, int, int]:
  """Width, feed-forward width and layers of a net."""
  width, ffn = shape(state, f'{net}/encoder/layer_0/intermediate/dense/kernel')
  return width, ffn, count(state, f'{net}/encoder/layer_')


def parts(model: Any) -> tuple[Part, ...]:
  """Returns the discriminator with its head; the generator, where it is a net of its own, as a
  BERT."""
  rows = embeddings('electra/embeddings')
  rows += _net('electra', model, 'discriminator/projection', 'discriminator/encoder')
  judge = 'discriminator_predictions'
  rows += heads(
    (
      *dense('rtd/dense', f'{judge}/dense', 'O', 'D'),
      *dense('rtd/out', f'{judge}/dense_1', 'A', 'D'),
    )
  )
  words = word_head('generator_predictions', 'generator_predictions')
  if model.generator != 'own':
    return (Part(rows + (words if model.generator == 'shared' else ()), model),)
  small = electra_net.model_of(model)
  scope = 'electra' if model.tied_embeddings else 'generator'
  generator = embeddings(f'{scope}/embeddings')
  generator += _net('generator', small, 'embeddings/projection', 'encoder')
  return Part(rows, model), Part(generator + words, small)


def _net(theirs: str, model: Any, projection: str, encoder: str) -> tuple[Row, ...]:
  rows: tuple[Row, ...] = ()
  if model.embedding_width not in (0, model.width):
    rows = dense(projection, f'{theirs}/embeddings_project', 'D', 'E')
  return rows + layers(f'{theirs}/encoder', encoder)


def join(params: list[dict[str, Any]], model: Any) -> dict[str, Any]:
  """Returns the parameters of both nets as those of the model."""
  return electra_net.join(params[0], params[1], model) if len(params) > 1 else params[0]


KIND = Kind(
  title='an ELECTRA',
  family='electra',
  recipe='electra',
  config='',
  mark='electra/',
  fields=fields,
  parts=parts,
  heads=('discriminator_predictions/', 'generator_predictions/', 'task_specific/'),
  join=join,
)
