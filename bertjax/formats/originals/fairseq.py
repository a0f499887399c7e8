"""RoBERTa and XLM-R as fairseq writes them (models/roberta/model.py and
modules/transformer_sentence_encoder.py): a .pt file with `args` or `cfg`, and `model`.

  open_checkpoint(pathlib.Path('roberta.base/model.pt'))

The file is read by `torch_files.load`, which runs nothing of it; dict.txt beside it becomes a
vocabulary (`fairseq_vocabulary.py`).
"""

import pathlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from bertjax.errors import UserError
from bertjax.formats import tables
from bertjax.formats.families import bert
from bertjax.formats.families.roberta import FAMILY
from bertjax.formats.huggingface import Taken
from bertjax.formats.originals import fairseq_vocabulary, original, torch_files
from bertjax.formats.originals.original import HEAD, Opening
from bertjax.formats.tables import Row, layer, norm

NET = 'sentence_encoder'
ACTIVATIONS = dict(
  gelu='gelu_erf', gelu_fast='gelu_tanh', gelu_accurate='gelu_tanh', relu='relu'
)  # fmt: skip
OFFSET = 2  # positions begin behind the id of the pad symbol, 1
FUSED = 'self_attn.in_proj_weight'
TABLE_NORMS = ('emb_layer_norm', 'layernorm_embedding')  # until 2020, and since
TIED = {'lm_head.weight': f'{NET}.embed_tokens.weight'}
IGNORED = ('version', '_float_tensor')  # endings of buffers
RECIPES = dict(roberta=FAMILY.recipe, xlm_roberta='xlm_r')
NAMES = ('model.pt', 'checkpoint_best.pt', 'checkpoint_last.pt', 'checkpoint.pt')
PREFIXES = ('encoder.', 'decoder.')
HEADS = ('lm_head.', 'classification_heads.')


def open_checkpoint(path: pathlib.Path) -> Opening:
  """Reads a .pt file, or the one in a directory, with dict.txt beside it."""
  file = find(path)
  with original.naming(file):
    found = torch_files.load(file)
    if not isinstance(found, Mapping) or 'model' not in found:
      got = ', '.join(map(str, found)) if isinstance(found, Mapping) else type(found).__name__
      raise UserError(
        f'expected a checkpoint of fairseq, dict(args or cfg, model): got {got[:300]}'
      )
    state = _renamed(torch_files.arrays(found['model'], 'model'))
    cfg, args = (torch_files.options(found.get(key)) for key in ('cfg', 'args'))
    task = torch_files.options(cfg.get('task'))  # since the end of 2020
    args |= torch_files.options(cfg.get('model')) | (
      {'task': task['_name']} if '_name' in task else {}
    )
    fields, assumed = fields_of(state, args)
    tables.check_tied(state, TIED)
    vocabulary, said = fairseq_vocabulary.beside(file, fields['vocab_size'])

  def take_all(model: Any) -> Taken:
    known = {name for name in state if name.startswith(HEADS)} | {*TIED}
    with original.naming(file):
      taken = original.take(state, rows(model, state), model, known)
    # A constant row changes no function, and transformers keeps one.
    taken.params['embeddings']['type'] = np.zeros((1, model.width), np.float32)
    left_out = [name for name in taken.left_out if name not in TIED]
    return taken._replace(left_out=left_out + sorted(found.keys() - {'args', 'cfg', 'model'}))

  recipe = RECIPES[fields['family']]
  return Opening(path, (file,), fields, recipe, vocabulary, assumed + said, take_all)


def find(path: pathlib.Path) -> pathlib.Path:
  """Returns the file of a checkpoint. Raises UserError if there is none, or there are several and
  none has a name of `NAMES`."""
  if not path.is_dir():
    return path
  there = sorted(path.glob('*.pt'))
  found = next((path / name for name in NAMES if path / name in there), None)
  if found is None and len(there) != 1:
    names = ', '.join(file.name for file in there) or 'none'
    raise UserError(f'{path}: expected one .pt file, or {", ".join(NAMES)}; there is {names}')
  return found or there[0]


def _renamed(state: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
  """Returns the state of a RoBERTa without the first part of its names and without buffers."""
  heads = [p for p in PREFIXES if any(n.startswith(f'{p}{NET}.') for n in state)]
  if len(heads) != 1:
    some = ', '.join(sorted(state)[:3])
    raise UserError(
      'this is no checkpoint of RoBERTa or XLM-R: expected tensors like '
      f'encoder.{NET}.embed_tokens.weight, got {some}'
    )
  return {
    name.removeprefix(heads[0]): array
    for name, array in state.items()
    if not name.endswith(IGNORED)
  }


def fields_of(
  state: Mapping[str, Any], args: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
  """Returns the fields of `config.model`. Raises UserError: what our encoder does not compute."""
  if f'{NET}.layer_norm.weight' in state:
    raise UserError(
      f'{NET}.layer_norm stands behind the last layer: the layers have their norms in front '
      '(XLM-R XL), which our encoder does not compute'
    )
  vocab_size, width = original.shape(state, f'{NET}.embed_tokens.weight')
  assumed = []
  if 'encoder_attention_heads' not in args:
    assumed.append(f'no args say the heads: {max(1, width // HEAD)}, of {HEAD} each')
  if 'activation_fn' not in args:
    assumed.append("no args say the activation: 'gelu'")
  if args.get('activation_dropout') or args.get('relu_dropout'):
    assumed.append('activation_dropout, of the feed-forward part, is left out: ours has none')
  xlm_r = vocab_size == 250_002 or str(args.get('task', '')).startswith('multilingual')
  found = dict(
    bert.PLAIN, name='bert', family='xlm_roberta' if xlm_r else 'roberta', vocab_size=vocab_size,
    width=width, layers=original.count(state, f'{NET}.layers.'), position_offset=OFFSET, types=1,
    norm_eps=1e-5,
    heads=args.get('encoder_attention_heads', max(1, width // HEAD)),
    ffn=original.shape(state, f'{NET}.layers.0.fc1.weight')[0],
    positions=original.shape(state, f'{NET}.embed_positions.weight')[0],
    activation=original.activation(str(args.get('activation_fn', 'gelu')), ACTIVATIONS), zero_row=1,
    words='lm_head.bias' in state, pooler=False, labels=(), token_labels=(),
  )  # fmt: skip
  for key in ('dropout', 'attention_dropout'):
    found |= {key: float(args[key])} if key in args else {}
  return found, assumed


def rows(model: Any, state: Mapping[str, Any]) -> tuple[Row, ...]:
  """Returns the table, without the row of segments, which fairseq has none of."""
  table_norm = next((n for n in TABLE_NORMS if f'{NET}.{n}.weight' in state), TABLE_NORMS[-1])
  found = [
    Row('embeddings/word', f'{NET}.embed_tokens.weight', 'V,E->VE'),
    Row('embeddings/position', f'{NET}.embed_positions.weight', 'T,E->TE'),
    *norm('embeddings/norm', f'{NET}.{table_norm}', 'E'),
    *layer(
      'encoder/layers',
      f'{NET}.layers.{{layer}}.*',
      'self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.out_proj '
      'self_attn_layer_norm fc1 fc2 final_layer_norm',
    ),
  ]
  if f'{NET}.layers.0.{FUSED}' in state:
    found = [_fused(row) for row in found]
  if model.words:
    found += bert.word_head('lm_head.dense', 'lm_head.layer_norm', 'lm_head.bias')
  # A file of pretraining has none of these.
  found += bert.label_heads(
    model, 'pooler', {n: n for n, _ in (*model.labels, *model.token_labels)}
  )
  return tuple(found)


def _fused(row: Row) -> Row:
  """Returns a row as files of early 2019 have it: queries, keys and values in one tensor."""
  match = re.fullmatch(r'(.*)\.([qkv])_proj\.(\w+)', row.theirs)
  if not match:
    return row
  layer, letter, leaf = match.groups()
  return row._replace(theirs=f'{layer}.in_proj_{leaf}', part=('qkv'.index(letter), 3))
