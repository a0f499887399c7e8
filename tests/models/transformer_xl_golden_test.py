"""Transformer-XL's learned distances (attn_type 1) against the original program's numbers.

Its other kinds are compared where their checkpoints are read, in
formats/originals/transformer_xl_torch_test.py.
"""

from typing import Any

import numpy as np
import original_goldens as goldens
import transformer_xl_cases
from mutation import mutation


def ours(theirs: dict[str, np.ndarray]) -> dict[str, Any]:
  """Parameters, or gradients, of attn_type 1 with two layers as ours."""
  layers = lambda name: np.stack([theirs[f'layers.{layer}.{name}'] for layer in range(2)])
  heads, size = theirs['r_w_bias'].shape[1:]
  width = theirs['word_emb.emb_layers.0.weight'].shape[1]
  qkv_L3NHD = layers('dec_attn.qkv_net.weight').reshape(2, 3, heads, size, width)
  out_LDNH = layers('dec_attn.o_net.weight').reshape(2, width, heads, size)
  norm = lambda name: dict(scale=layers(f'{name}.weight'), bias=layers(f'{name}.bias'))
  dense = lambda name: dict(
    kernel=layers(f'{name}.weight').transpose(0, 2, 1), bias=layers(f'{name}.bias')
  )
  kernels = {
    name: dict(kernel=qkv_L3NHD[:, i].transpose(0, 3, 1, 2))
    for i, name in enumerate(('query', 'key', 'value'))
  }
  # The last row of theirs is distance 0.
  return dict(
    word=padded(theirs['word_emb.emb_layers.0.weight']),
    head=dict(bias=padded(theirs['crit.out_layers.0.bias'])),
    layers=dict(
      attention=kernels | dict(out=dict(kernel=out_LDNH.transpose(0, 2, 3, 1))),
      attention_norm=norm('dec_attn.layer_norm'),
      ffn=dict(up=dense('pos_ff.CoreNet.0'), down=dense('pos_ff.CoreNet.3')),
      ffn_norm=norm('pos_ff.layer_norm'),
      positions=theirs['r_emb'][:, ::-1],
      position_bias=theirs['r_bias'][:, ::-1],
      u=theirs['r_w_bias'],
    ),
  )


def padded(table: np.ndarray) -> np.ndarray:
  """127 words as a table of 128 rows."""
  return np.concatenate([table, np.zeros_like(table[:1])])


@mutation('bias_NR = bias_RN[place_R].T * self.head_size**-0.5', 'bias_NR = bias_RN[place_R].T')
def test_learned_distances(shared):
  file = goldens.load(shared, 'transformer_xl_shaw')
  given = file.given
  c = transformer_xl_cases.config(
    file, vocab_size=given['n_token'], layers=2, width=given['d_model'], heads=given['n_head'],
    head_size=given['d_head'], ffn=given['d_inner'], attention='shaw',
    learned_positions=given['tgt_len'] + given['mem_len'],
  )  # fmt: skip
  gradients = {n: ours(file.tree(f'grad_segment_{n}')) for n in (1, 4)}
  transformer_xl_cases.compare(c, ours(file.tree('param')), gradients, file)
