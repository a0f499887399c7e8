"""The original Transformer-XL: kimiyoung/transformer-xl, pytorch/mem_transformer.py.

  open_checkpoint(pathlib.Path('wt103/state.pt'))

Its `model.pt` is a whole pickled module, which is not read; save the numbers of it where the code
is: `torch.save(dict(args=vars(args), model=model.state_dict()), 'state.pt')`. A state dict alone is
read too. What the shapes do not say is taken from args: pre_lnorm, the activation (always ReLU),
dropout, and the cutoffs of an adaptive softmax whose clusters are all as wide (div_val 1).

  qkv_net.weight holds queries, keys and values; r_w_bias and r_r_bias are one for all layers.
"""

import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from bertjax.errors import UserError
from bertjax.formats.huggingface import Taken
from bertjax.formats.originals import original, torch_files
from bertjax.formats.originals.original import Opening, shape, take
from bertjax.formats.tables import Row, check_tied, dense, norm

WORDS, HEAD = 'word_emb.emb_layers', 'crit.out_layers'
# train.py: of a vocabulary of so many words.
CUTOFFS = {267_735: (20_000, 40_000, 200_000), 793_471: (60_000, 100_000, 640_000)}
LAYER = 'layers.{layer}'
ATTENTION = f'{LAYER}.dec_attn'


def open_checkpoint(path: pathlib.Path) -> Opening:
  """Reads a file, which comes without a vocabulary."""
  with original.naming(path):
    args, state = torch_files.state_dict(path, f'{WORDS}.0.weight', 'Transformer-XL')
    fields, assumed = fields_of(state, args)
    # Copies of the inputs (tie_weight, tie_projs), which must be equal.
    clusters = len(fields['cutoffs']) + 1
    tied = {f'{HEAD}.{i}.weight': f'{WORDS}.{i}.weight' for i in range(clusters)}
    tied |= {f'crit.out_projs.{i}': f'word_emb.emb_projs.{i}' for i in range(1, clusters)}
    check_tied(state, tied)
    state = {name: array for name, array in state.items() if name not in tied}

  def take_all(model: Any) -> Taken:
    whole = dict(state)
    if model.cutoffs and model.div_val == 1:  # all clusters are in one tensor
      for name in (f'{WORDS}.0.weight', f'{HEAD}.0.bias'):
        pieces = np.split(whole.pop(name), model.cutoffs) if name in whole else ()
        whole |= {f'{name}[{i}]': piece for i, piece in enumerate(pieces)}
    with original.naming(path):
      return take(whole, rows(model), model, {'pos_emb.inv_freq'})

  said = [*assumed, 'the vocabulary is in none of the files of the original']
  return Opening(path, (path,), fields, 'transformer_xl', None, said, take_all)


def fields_of(
  state: Mapping[str, Any], args: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
  """Returns the fields of `config.model`. Memory is of a run, not of a checkpoint: mem_len,
  clamp_len and same_length are the recipe's. Raises UserError for what our model does not compute,
  or cutoffs that nothing says."""
  sizes = [shape(state, f'{WORDS}.{i}.weight') for i in range(original.count(state, f'{WORDS}.'))]
  width = shape(state, f'{LAYER}.pos_ff.CoreNet.0.weight'.format(layer=0))[1]
  relative = f'{ATTENTION}.r_net.weight'.format(layer=0) in state  # attn_type 0; else 2
  if not relative and 'r_emb' in state:
    raise UserError(
      'r_emb is of attn_type 1 or 3: expected a Transformer-XL (0) or sinusoids added to the words '
      '(2), the others are not read'
    )
  assumed = []
  if 'pre_lnorm' not in args:
    assumed.append('no args say pre_lnorm: norms stand behind attention and feed-forward')
  if relative:
    heads_, head_size = shape(state, 'r_w_bias')
  else:
    if 'n_head' not in args:
      raise UserError("the number of heads is in no shape: expected it as args['n_head']")
    heads_, head_size = args['n_head'], shape(state, f'{ATTENTION}.o_net.weight'.format(layer=0))[1]
    head_size //= heads_
  vocab_size = sum(rows for rows, _ in sizes)
  cutoffs, div_val = _clusters(state, sizes, args)
  found: dict[str, Any] = dict(
    name='transformer_xl', family='transformer_xl', vocab_size=vocab_size, cutoffs=cutoffs,
    div_val=div_val, layers=original.count(state, 'layers.'), width=width, heads=heads_,
    head_size=head_size, ffn=shape(state, f'{LAYER}.pos_ff.CoreNet.0.weight'.format(layer=0))[0],
    attention='relative' if relative else 'absolute', learned_positions=0, untie_r=False,
    norm_eps=1e-5, norm_std=0.02,
    pre_norm=bool(args.get('pre_lnorm', False)), activation='relu',
  )  # fmt: skip
  if not relative:  # in whose memory two tokens would have one position
    found |= dict(mem_len=0, same_length=False)
  for ours, theirs in (('dropout', 'dropout'), ('attention_dropout', 'dropatt')):
    found |= {ours: float(args[theirs])} if theirs in args else {}
  return found, assumed


def _clusters(state, sizes, args: Mapping[str, Any]) -> tuple[tuple[int, ...], int]:
  """cutoffs and div_val."""
  if 'crit.cluster_weight' not in state:
    return (), 1
  clusters = shape(state, 'crit.cluster_weight')[0]
  if len(sizes) > 1:
    ends = np.cumsum([rows for rows, _ in sizes])[:-1]
    return tuple(int(end) for end in ends), sizes[0][1] // sizes[1][1]
  words = sizes[0][0]
  cutoffs = tuple(int(cut) for cut in args.get('cutoffs', CUTOFFS.get(words, ())) if cut < words)
  if len(cutoffs) != clusters:
    raise UserError(
      f'the softmax has {clusters} clusters over {words} words, and no shape says where they '
      f"begin: expected args['cutoffs'] with {clusters} numbers, got {cutoffs or 'none'}"
    )
  return cutoffs, 1


def rows(model: Any) -> tuple[Row, ...]:
  """Returns the table."""
  ours, ffn = 'layers', f'{LAYER}.pos_ff'
  project = lambda name, theirs, part=(0, 1): Row(
    f'{ours}/attention/{name}/kernel', f'{ATTENTION}.{theirs}.weight', 'NH,D->DNH', part=part
  )
  found = [
    Row(f'{ours}/attention/out/kernel', f'{ATTENTION}.o_net.weight', 'D,NH->NHD'),
    *norm(f'{ours}/attention_norm', f'{ATTENTION}.layer_norm'),
    *dense(f'{ours}/ffn/up', f'{ffn}.CoreNet.0', 'F', 'D'),
    *dense(f'{ours}/ffn/down', f'{ffn}.CoreNet.3', 'D', 'F'),
    *norm(f'{ours}/ffn_norm', f'{ffn}.layer_norm'),
  ]
  if model.attention == 'relative':
    found += [
      *(project(name, 'qkv_net', (i, 3)) for i, name in enumerate(QKV)),
      project('position', 'r_net'),
      Row('u', 'r_w_bias', 'N,H->NH'),
      Row('w', 'r_r_bias', 'N,H->NH'),
    ]
  else:
    found += [
      project('query', 'q_net'),
      *(project(name, 'kv_net', (i, 2)) for i, name in enumerate(QKV[1:])),
    ]
  words = Row('word', f'{WORDS}.0.weight', 'V,D->VD'), Row('head/bias', f'{HEAD}.0.bias', 'V->V')
  return tuple(found) + (_adaptive(model) if model.cutoffs else words)


QKV = ('query', 'key', 'value')


def _adaptive(model: Any) -> tuple[Row, ...]:
  """Tables, biases and projections of the clusters; the first projection is another at the end."""
  bounds, found = (0, *model.cutoffs, model.vocab_size), []
  for i, (first, last) in enumerate(zip(bounds, bounds[1:], strict=False)):
    sizes = dict(V=last - first, E=model.width // model.div_val**i)
    # One table of div_val 1 is cut to clusters.
    word, bias = f'{WORDS}.{i}.weight', f'{HEAD}.{i}.bias'
    if model.div_val == 1:
      word, bias = f'{WORDS}.0.weight[{i}]', f'{HEAD}.0.bias[{i}]'
    found.append(Row(f'words/word_{i}', word, 'V,E->VE', sizes))
    found.append(Row(f'words/bias_{i}', bias, 'V->V', sizes))
    if model.div_val > 1:
      found.append(Row(f'words/projection_{i}', f'word_emb.emb_projs.{i}', 'D,E->ED', sizes))
  sizes = dict(C=len(model.cutoffs), E=model.width)
  found.append(Row('words/cluster', 'crit.cluster_weight', 'C,E->CE', sizes))
  found.append(Row('words/cluster_bias', 'crit.cluster_bias', 'C->C', sizes))
  if model.div_val > 1:
    found.append(Row('words/head_projection', 'crit.out_projs.0', 'D,E->ED', sizes))
  return tuple(found)
