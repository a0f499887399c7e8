"""Checkpoints of TensorFlow 1 become our parameters: the same numbers as transformers' classes."""

import cases
import jax
import numpy as np
import original_reading
import parity
import pytest
import tensorflow_cases as originals
import xlnet_cases
from mutation import mutation

from bertjax.formats.originals import tf1
from bertjax.models import electra
from bertjax.objectives import mlm, plm

pytestmark = pytest.mark.full
LENGTHS = [[17], [32], [9]]

mutation(
  "ACTIVATIONS = dict(gelu='gelu_tanh'",
  "ACTIVATIONS = dict(gelu='gelu_erf'",
  file='bertjax/formats/originals/bert.py',
)


def config_of(original):
  """The recipe's config of the test size, with what the checkpoint says."""
  c = cases.config(original.recipe)
  c.model.update(original.model)
  return c


def compare(original, theirs, label: str) -> None:
  """Hidden states of real tokens and logits of targets, as `parity` has them."""
  c, batch = config_of(original), cases.batch(LENGTHS, 32, label=label)
  want, _ = parity.torch_run(theirs, batch, 0, label)
  ours = jax.jit(mlm.make(c).predict, static_argnames='hidden')(
    dict(params=original.params), (), batch, hidden=True
  )
  real_BT, rows = batch['example_BT'] > 0, np.arange(3)[:, None]
  if len(want['hidden']) == len(ours['hidden_LBTD']):  # ALBERT's class has one of each group
    parity.close(ours['hidden_LBTD'][:, real_BT], want['hidden'][:, real_BT], parity.HIDDEN, 'h')
  parity.close(ours['last_BTD'][real_BT], want['hidden'][-1][real_BT], parity.HIDDEN, 'last')
  at_targets = want['logits'][rows, batch['target_pos_BP']]
  parity.close(ours['logits_BPV'][..., : cases.VOCAB], at_targets, parity.LOGITS, 'logits')
  parity.close(ours['label_BGC'][label][:, 0], want[label], parity.LOGITS, label)


@mutation("','.join(reversed(theirs.split(',')))", 'theirs')
def test_bert(tmp_path):
  model, tensors, given = originals.bert()
  originals.describe(tmp_path, 'bert_config.json', **given)
  (tmp_path / 'vocab.txt').write_text('[PAD]\n[UNK]\n')
  originals.write(tmp_path / 'bert_model.ckpt', tensors)
  original = original_reading.read(tf1, tmp_path / 'bert_model.ckpt')
  assert original.recipe == 'bert' and original.model['dropout'] == 0.2
  assert original.model['attention_dropout'] == 0.3 and original.model['norm_eps'] == 1e-12
  assert original.model['labels'] == (('next', 2),) and original.vocabulary.name == 'vocab.txt'
  assert not (original.made or original.left_out or original.assumed) and original.step is None
  compare(original, model, 'next')


@mutation(
  "'LayerNorm ffn_1.intermediate.dense ffn_1.intermediate.output.dense LayerNorm_1'",
  "'LayerNorm_1 ffn_1.intermediate.dense ffn_1.intermediate.output.dense LayerNorm'",
)
def test_albert(tmp_path):
  model, tensors, given = originals.albert()
  originals.describe(tmp_path, 'albert_config.json', **given)
  originals.write(tmp_path / 'model.ckpt-best', tensors)
  original = original_reading.read(tf1, tmp_path)
  assert original.recipe == 'albert' and original.model['labels'] == (('order', 2),)
  assert original.model['groups'] == original.model['inner_groups'] == 2
  compare(original, model, 'order')


@mutation(
  " activation='gelu_erf'", " activation='gelu_tanh'", file='bertjax/formats/originals/electra.py'
)
def test_electra(tmp_path):
  (judge, maker), tensors = originals.electra()
  originals.write(tmp_path / 'model.ckpt-7', tensors, step=7)
  original = original_reading.read(tf1, tmp_path)
  m = original.model
  assert original.step == 7 and m['heads'] == 2 and m['generator'] == 'own'
  assert (m['generator_width'], m['generator_layers'], m['generator_head']) == (0.5, 1.0, 64)
  assert original.assumed == ['no file says the heads: 2, of 64 each']
  c, batch = config_of(original), cases.batch(LENGTHS, 32)
  ours, real_BT = electra.make(c.model), batch['example_BT'] > 0

  import torch

  tensor = lambda x: torch.tensor(np.asarray(x), dtype=torch.long)
  inputs = dict(
    input_ids=tensor(batch['token_BT']), attention_mask=tensor(real_BT),
    token_type_ids=tensor(batch['type_BT']), output_hidden_states=True,
  )  # fmt: skip
  with torch.no_grad():
    judged, made = judge(**inputs), maker(**inputs)
  found = ours.apply(dict(params=original.params), batch, None, True, method='discriminate')
  hidden = np.stack([h.numpy() for h in judged.hidden_states[1:]])
  parity.close(found['hidden_LBTD'][:, real_BT], hidden[:, real_BT], parity.HIDDEN, 'judge')
  parity.close(found['rtd_BT'][real_BT], judged.logits.numpy()[real_BT], parity.LOGITS, 'replaced')
  scores = ours.apply(dict(params=original.params), batch, None, method='generate')
  logits = scores.hidden_BPE @ scores.table_VE.T + scores.bias_V[None, None]
  at_targets = made.logits.numpy()[np.arange(3)[:, None], batch['target_pos_BP']]
  parity.close(logits[..., : cases.VOCAB], at_targets, parity.LOGITS, 'words')


@mutation("u='r_w_bias', w='r_r_bias'", "w='r_w_bias', u='r_r_bias'")
@mutation(
  "pieces |= {f'{name}[{i}]': (name, slice(*pair))",
  "pieces |= {f'{name}[{i}]': (name, slice(*bounds[name][:2]))",
)
def test_xlnet(tmp_path):
  c, _, batches, theirs = xlnet_cases.make_case('large', mem_len=0)
  m = c.model
  originals.write(tmp_path / 'xlnet_model.ckpt', originals.xlnet(theirs))
  fields = dict(n_layer=m.layers, d_model=m.width, n_head=m.heads, d_inner=m.ffn, untie_r=True)
  originals.describe(
    tmp_path, 'xlnet_config.json', **fields, n_token=m.vocab_size, d_head=m.width // m.heads,
    ff_activation='gelu',
  )  # fmt: skip
  original = original_reading.read(tf1, tmp_path)
  assert original.recipe == 'xlnet' and original.model['activation'] == 'gelu_tanh'
  c = config_of(original)
  c.model.mem_len = 0
  batch = batches[0]
  ours = jax.jit(plm.make(c).predict, static_argnames='hidden')(
    dict(params=original.params), (), batch, hidden=True
  )
  want = theirs(**xlnet_cases.torch_inputs(batch), output_hidden_states=True)
  real, used, length = batch['example_BT'] > 0, batch['weight_BP'] > 0, xlnet_cases.LENGTH
  streams = [h.detach().numpy() for h in want.hidden_states]
  for layer, (h_BTD, g_BPD) in enumerate(zip(streams[2::2], streams[3::2], strict=True)):
    found_BXD = np.asarray(ours['hidden_LBXD'][layer])
    parity.close(found_BXD[:, :length][real], h_BTD[real], parity.HIDDEN, f'content {layer}')
    parity.close(found_BXD[:, length:][used], g_BPD[used], parity.HIDDEN, f'query {layer}')
  logits = np.asarray(ours['logits_BPV'])[..., : cases.VOCAB]
  parity.close(logits[used], want.logits.detach().numpy()[used], parity.LOGITS, 'logits')
