"""google-research/albert: modeling.py, run_pretraining.py."""

from collections.abc import Mapping
from typing import Any

from bertjax.formats.families.bert import PLAIN
from bertjax.formats.originals import bert
from bertjax.formats.originals.original import Part, count, shape
from bertjax.formats.originals.tensorflow_rows import Kind, dense, embeddings, layer
from bertjax.formats.tables import Row

GROUPS = 'bert/encoder/transformer/group_'
NAMES = dict(
  bert.NAMES, embedding_width='embedding_size', groups='num_hidden_groups',
  inner_groups='inner_group_num',
)  # fmt: skip


def fields(state: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
  """Returns the fields of `config.model`; only albert_config.json says how often the blocks are
  visited."""
  block = f'{GROUPS}0/inner_group_0'
  found = bert.table_fields(state, 'bert/embeddings')
  width, ffn = shape(state, f'{block}/ffn_1/intermediate/dense/kernel')
  groups, inner = count(state, GROUPS), count(state, f'{GROUPS}0/inner_group_')
  found |= dict(width=width, ffn=ffn, groups=groups, inner_groups=inner)
  found, assumed = bert.described(found, given, NAMES, 'albert_config.json')
  if 'layers' not in found:
    # Large and xlarge have 24, base and xxlarge 12.
    found['layers'] = 24 if found['width'] in (1024, 2048) else 12
    assumed.append(f'no albert_config.json says the layers: {found["layers"]}, as published')
  if found['embedding_width'] == found['width']:
    found['embedding_width'] = 0
  model = PLAIN | found | bert.head_fields(state, 'order')
  return dict(model, name='bert', family='albert', norm_eps=1e-12, sharing='all'), assumed


def parts(model: Any) -> tuple[Part, ...]:
  """Returns the tables, their projection where widths differ, the blocks of all groups, and the
  heads."""
  ours = f'encoder/{"shared" if model.groups * model.inner_groups == 1 else "layers"}'
  rows: tuple[Row, ...] = embeddings('bert/embeddings')
  if model.embedding_width:
    rows += dense('embeddings/projection', 'bert/encoder/embedding_hidden_mapping_in', 'D', 'E')
  rows += layer(
    ours,
    f'{GROUPS}{{group}}/inner_group_{{inner}}/*',
    'attention_1/self/query attention_1/self/key attention_1/self/value attention_1/output/dense '
    'LayerNorm ffn_1/intermediate/dense ffn_1/intermediate/output/dense LayerNorm_1',
  )
  return (Part(rows + bert.head_rows(model), model),)


KIND = Kind(
  title='an ALBERT',
  family='albert',
  recipe='albert',
  config='albert_config.json',
  mark=GROUPS,
  fields=fields,
  parts=parts,
  heads=bert.HEADS,
)
