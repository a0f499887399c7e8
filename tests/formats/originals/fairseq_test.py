"""fairseq's checkpoints become our parameters."""

import argparse
import functools
import hashlib
import pathlib
import zipfile

import cases
import jax
import numpy as np
import original_reading
import pytest
import state_dicts
import torch_models
import wheels
from mutation import mutation
from slow_imports import torch, transformers

from bertjax.formats.originals import fairseq
from bertjax.objectives import mlm

VOCAB, WIDTH, LAYERS, POSITIONS = cases.VOCAB, 48, 2, 42
ARGS = dict(
  arch='roberta_base', encoder_layers=LAYERS, encoder_embed_dim=WIDTH, encoder_attention_heads=3,
  encoder_ffn_embed_dim=80, activation_fn='gelu', dropout=0.2, attention_dropout=0.3,
  max_positions=40, activation_dropout=0.0, task='masked_lm',
)  # fmt: skip


@functools.cache
def oracle() -> 'transformers.RobertaForMaskedLM':
  """transformers' RoBERTa with large random weights; its only segment row is a constant."""
  torch.manual_seed(0)
  config = transformers.RobertaConfig(
    vocab_size=VOCAB, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=3,
    intermediate_size=80, max_position_embeddings=POSITIONS, type_vocab_size=1,
    layer_norm_eps=1e-5, pad_token_id=1,
  )  # fmt: skip
  model = torch_models.loud(transformers.RobertaForMaskedLM(config))
  with torch.no_grad():
    model.roberta.embeddings.token_type_embeddings.weight.zero_()
  return model


# Of transformers' names to fairseq's.
NAMES = {
  'roberta.': 'sentence_encoder.', 'embeddings.word_embeddings': 'embed_tokens',
  'embeddings.position_embeddings': 'embed_positions', 'encoder.layer.': 'layers.',
  'attention.self.query': 'self_attn.q_proj', 'attention.self.key': 'self_attn.k_proj',
  'attention.self.value': 'self_attn.v_proj', 'attention.output.dense': 'self_attn.out_proj',
  'attention.output.LayerNorm': 'self_attn_layer_norm', 'intermediate.dense': 'fc1',
  'output.dense': 'fc2', 'output.LayerNorm': 'final_layer_norm', 'decoder.weight': 'weight',
}  # fmt: skip


def state_of(model, prefix: str = 'encoder.', fused: bool = False, norm='layernorm_embedding'):
  """The state dict as fairseq names it."""
  found = {}
  for name, tensor in model.state_dict().items():
    for theirs, ours in {**NAMES, 'embeddings.LayerNorm': norm}.items():
      name = name.replace(theirs, ours)
    if 'token_type' not in name and 'decoder' not in name:
      found[prefix + name] = tensor.clone()
  for q in [name for name in found if fused and '.q_proj.' in name]:
    whole = torch.cat([found.pop(q.replace('.q_', f'.{x}_')) for x in 'qkv'])
    found[q.replace('q_proj.', 'in_proj_')] = whole
  return found


def save(path, state, **more) -> pathlib.Path:
  torch.save(dict(dict(args=argparse.Namespace(**ARGS), model=state), **more), path / 'model.pt')
  return path / 'model.pt'


NEW = dict(
  args=None, cfg=dict(model=argparse.Namespace(**ARGS), task=dict(_name='masked_lm')),
  optimizer_history=[],
)  # fmt: skip


@pytest.mark.parametrize(
  'names, more',
  [
    (dict(prefix='decoder.', norm='emb_layer_norm'), {}),
    (dict(prefix='decoder.', norm='emb_layer_norm', fused=True), {}),
    (dict(), NEW),
  ],
  ids=['2019', 'fused', 'since 2020'],
)
@mutation("'qkv'.index", "'qvk'.index", case='fused')
@mutation('OFFSET = 2  # positions', 'OFFSET = 0  # positions', case='2019')
@mutation(
  'norm_eps=1e-5', 'norm_eps=1e-3', file='bertjax/formats/originals/fairseq.py', case='2019'
)
def test_roberta(names, more, tmp_path):
  state = state_of(oracle(), **names)
  state[names.get('prefix', 'encoder.') + 'sentence_encoder.version'] = torch.tensor([3.0])
  original = original_reading.read(fairseq, save(tmp_path, state, **more))
  m = original.model
  assert (m['heads'], m['dropout'], m['attention_dropout']) == (3, 0.2, 0.3)
  assert (m['positions'], m['position_offset'], m['family']) == (POSITIONS, 2, 'roberta')
  assert m['activation'] == 'gelu_erf' and m['norm_eps'] == 1e-5
  assert original.recipe == 'roberta'
  assert not original.made and original.left_out == (['optimizer_history'] if more else [])

  c = cases.config(original.recipe)
  c.model.update(m)
  want = state_dicts.from_huggingface(torch_models.state_of(oracle()), c.model)
  jax.tree.map(np.testing.assert_array_equal, original.params, want)


@pytest.mark.parametrize(
  'change, message',
  [
    (lambda s: s.update({'encoder.lm_head.weight': torch.ones(VOCAB, WIDTH)}), 'ties them'),
    (
      lambda s: s.update({'encoder.sentence_encoder.layer_norm.weight': torch.ones(WIDTH)}),
      r'norms in front \(XLM-R XL\)',
    ),
  ],
  ids=['untied', 'norms in front'],
)
def test_tensors_that_do_not_fit_are_refused(change, message, tmp_path):
  state = state_of(oracle())
  change(state)
  with pytest.raises(ValueError, match=message):
    original_reading.read(fairseq, save(tmp_path, state))


@pytest.mark.parametrize(
  'key, message',
  [
    ('weights', r'expected a checkpoint of fairseq.*got weights'),
    ('model', 'no checkpoint of RoBERTa or XLM-R.*got a'),
  ],
)
def test_what_is_none_of_it_is_refused(key, message, tmp_path):
  torch.save({key: {'a': torch.ones(1)}}, tmp_path / 'model.pt')
  with pytest.raises(ValueError, match=message):
    original_reading.read(fairseq, tmp_path)


def test_a_head_that_is_not_there_is_made_where_it_is_asked_for(tmp_path):
  state = {n: t for n, t in state_of(oracle()).items() if 'lm_head' not in n}
  file = save(tmp_path, state)
  assert not original_reading.read(fairseq, file).model['words']
  made = original_reading.read(fairseq, file, dict(words=True))
  assert {path.partition('/')[0] for path in made.made} == {'mlm'}


# The antibody model of Prihoda et al. 2022, MIT; sapiens 1.0.5 on the package index.
SAPIENS = 'af1a8d445e9d7ab9f5f04512cf325acdfd9dd0930eb957b63ec234df1f141a8b'
SEQUENCE = (
  '**QLV*SGVEVKKPGASVKVSCKASGYTFTNYYMYWVRQAPGQGLEWMGGINPSNGGTNFNEKFKNRVTLTTDSSTTTAYMELKSLQFDDTAV'
  'YYCARRDYRFDMGFDYWGQGTTVTVSS'
)
BEST = SEQUENCE.replace('**QLV*', 'QVQLVQ')
# Of README.md: A, C, D, E of the first five residues, and what the masked ones are.
SCORES = [
  [0.003272, 0.004147, 0.004011, 0.004590],
  [0.012038, 0.003854, 0.006803, 0.008174],
  [0.003384, 0.003895, 0.003726, 0.004068],
  [0.004612, 0.005325, 0.004443, 0.004641],
  [0.005519, 0.003664, 0.003555, 0.005269],
]


@pytest.fixture(scope='module')
def sapiens(tmp_path_factory) -> pathlib.Path:
  """The directory of the checkpoints; the wheel is kept in a cache."""
  wheel = wheels.fetched('sapiens==1.0.5', 'sapiens-1.0.5-py3-none-any.whl')
  assert hashlib.sha256(wheel.read_bytes()).hexdigest() == SAPIENS
  path = tmp_path_factory.mktemp('sapiens')
  with zipfile.ZipFile(wheel) as archive:
    archive.extractall(path)
  return path / 'sapiens/models/v1'


def scores(original, vocabulary) -> np.ndarray:
  """Probabilities of the letters at every residue of SEQUENCE."""
  special = vocabulary.special
  parts = [vocabulary.encode_batch([letter])[0][0] for letter in BEST]
  ids = [special['mask'] if s == '*' else i for s, i in zip(SEQUENCE, parts, strict=True)]
  ids = np.array([[special['cls'], *ids, special['sep']]], np.int32)
  c = cases.config(original.recipe)
  c.model.update(original.model)
  place, count = np.arange(ids.shape[1], dtype=np.int32)[None], len(SEQUENCE)
  batch = dict(
    token_BT=ids, example_BT=np.ones_like(ids), type_BT=np.zeros_like(ids), position_BT=place,
    target_pos_BP=place[:, 1 : count + 1], target_BP=ids[:, 1 : count + 1],
    weight_BP=np.ones((1, count), np.float32),
  )  # fmt: skip
  out = mlm.make(c).predict(dict(params=original.params), (), batch)
  return np.asarray(jax.nn.softmax(out['logits_BPV'][0, :, : vocabulary.size]))[:, 4:-1]


@pytest.mark.full
@pytest.mark.weights
def test_trained_weights_give_the_scores_of_their_readme(sapiens):
  original = original_reading.read(fairseq, sapiens / 'checkpoint_vh.pt')
  vocabulary = original.vocabulary
  assert vocabulary.size == 25 and original.assumed == []
  found = scores(original, vocabulary)
  np.testing.assert_allclose(found[:5, :4], SCORES, rtol=0, atol=5.1e-7)
  letters = np.array(vocabulary.pieces[4:-1])[found.argmax(1)]
  best = ''.join(b if s == '*' else s for s, b in zip(SEQUENCE, letters, strict=True))
  assert best == BEST

  # The other checkpoint has no printed scores: it likes a light chain better than the first does.
  light = original_reading.read(fairseq, sapiens / 'checkpoint_vl.pt')
  other = scores(light, vocabulary)
  at = np.arange(len(BEST)), [vocabulary.pieces.index(letter) - 4 for letter in BEST]
  assert np.log(found[at]).mean() > np.log(other[at]).mean() + 0.5
