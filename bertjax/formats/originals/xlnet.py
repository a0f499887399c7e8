"""zihangdai/xlnet: modeling.py (transformer_xl, lm_loss), xlnet.py."""

from collections.abc import Mapping
from typing import Any

from bertjax.errors import UserError
from bertjax.formats.families import xlnet
from bertjax.formats.originals.original import Kind, activation, count, renamed, shape
from bertjax.formats.tables import Row, heads

NET = 'model/transformer'
BIASES = dict(u='r_w_bias', w='r_r_bias', z='r_s_bias')
ACTIVATIONS = dict(gelu='gelu_tanh', relu='relu')  # modeling.py, the tanh approximation
NAMES = dict(
  vocab_size='n_token', width='d_model', layers='n_layer', heads='n_head', ffn='d_inner',
  untie_r='untie_r',
)  # fmt: skip
# Of run_classifier.py, run_squad.py and run_race.py; the first is spelled so there.
TASKS = ('sequnece_summary', 'classification', 'regression', 'start_logits', 'end_logits')


def fields(state: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
  """Returns the fields of `config.model`. Memory is of a run, not of a checkpoint: mem_len,
  reuse_len and clamp_len are the recipe's. UserError: heads that are not of width / heads."""
  width, count_heads, head_size = shape(state, f'{NET}/layer_0/rel_attn/q/kernel')
  head_size = given.get('d_head', head_size)
  found: dict[str, Any] = dict(
    vocab_size=shape(state, f'{NET}/word_embedding/lookup_table')[0], width=width,
    layers=count(state, f'{NET}/layer_'), heads=count_heads,
    ffn=shape(state, f'{NET}/layer_0/ff/layer_1/kernel')[-1],
    untie_r=len(shape(state, f'{NET}/r_w_bias')) == 3,
  )  # fmt: skip
  found |= {ours: given[theirs] for ours, theirs in NAMES.items() if theirs in given}
  if found['heads'] * head_size != found['width']:
    raise UserError(
      f'our XLNet has heads of width / heads = {found["width"] / found["heads"]:g}, got '
      f'd_head={head_size}'
    )
  assumed = []
  if 'ff_activation' not in given:
    assumed.append("no xlnet_config.json says the activation: 'gelu'")
  found['activation'] = activation(given.get('ff_activation', 'gelu'), ACTIVATIONS)
  words = 'model/lm_loss/bias' in state
  return dict(found, name='xlnet', family='xlnet', norm_eps=1e-12, words=words), assumed


def rows(model: Any) -> tuple[Row, ...]:
  """Returns the table, the mask's vector, the layers and, where there is one, the head's bias. The
  biases of all layers are one tensor."""
  found = [
    Row('word', f'{NET}/word_embedding/lookup_table', 'V,D->VD'),
    Row('mask', f'{NET}/mask_emb/mask_emb', 'A,A,D->D'),
    *(row._replace(theirs=f'model/{row.theirs}') for row in renamed(xlnet.layers())),
    Row('layers/segment', f'{NET}/seg_embed', 'L,S,N,H->LSNH'),
  ]
  for ours, bias in BIASES.items():
    place = (f'layers/{ours}', f'{NET}/{bias}', 'L,N,H->LNH')
    found.append(Row(*place) if model.untie_r else Row(ours, f'{NET}/{bias}', 'N,H->NH'))
  if model.words:
    found += heads((Row('head/bias', 'model/lm_loss/bias', 'V->V'),))
  return tuple(found)


KIND = Kind(
  'an XLNet', 'xlnet', 'xlnet_config.json', f'{NET}/', fields, rows,
  ('model/lm_loss/bias', *(f'{scope}{task}' for task in TASKS for scope in ('model/', ''))),
)  # fmt: skip
