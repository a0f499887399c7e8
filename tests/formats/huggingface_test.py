"""Round trips between our parameters and the state dicts of PyTorch `transformers`."""

import cases
import jax
import numpy as np
import pytest
import state_dicts
from flax.core import meta
from slow_imports import torch, transformers

from bertjax.formats import family
from bertjax.objectives import mlm, plm

NEXT = (('next', 2),)
ORDER = (('order', 2),)


def make_params(c):
  objective = mlm.make(c)
  shapes = jax.eval_shape(objective.init, jax.random.key(0), cases.batch([[8]], 8))
  return cases.random_params(meta.unbox(shapes)['params'], 0.1)


def torch_class(c):
  m = c.model
  common = dict(
    vocab_size=m.vocab_size, hidden_size=m.width, num_hidden_layers=m.layers,
    num_attention_heads=m.heads, intermediate_size=m.ffn, max_position_embeddings=m.positions,
    type_vocab_size=m.types,
  )  # fmt: skip
  if m.position_offset:
    return transformers.RobertaForMaskedLM(transformers.RobertaConfig(**common))
  if m.family == 'albert':
    kind = transformers.AlbertForPreTraining if m.labels else transformers.AlbertForMaskedLM
    fields = dict(embedding_size=m.embedding_width, num_hidden_groups=m.groups)
    config = transformers.AlbertConfig(inner_group_num=m.inner_groups, **fields, **common)
    return kind(config)
  if m.family == 'ernie':
    return transformers.ErnieForPreTraining(transformers.ErnieConfig(use_task_id=False, **common))
  kind = transformers.BertForPreTraining if m.labels else transformers.BertForMaskedLM
  return kind(transformers.BertConfig(**common))


@pytest.mark.parametrize(
  'family, fields',
  [
    ('bert', dict(labels=NEXT)),
    ('bert', dict(labels=())),
    ('roberta', dict(labels=())),
    ('ernie', dict(labels=NEXT)),
    ('albert', dict(labels=ORDER)),
    ('albert', dict(labels=(), groups=2, inner_groups=2)),
  ],
)
def test_round_trip(family, fields):
  c = cases.config(family, **fields)
  params = make_params(c)
  state = state_dicts.to_huggingface(params, c.model)
  model = torch_class(c)
  model.load_state_dict({k: torch.tensor(v) for k, v in state.items()}, strict=True)
  for name, tensor in model.state_dict().items():
    np.testing.assert_array_equal(tensor.numpy(), state[name], err_msg=name)

  back = state_dicts.from_huggingface(state, c.model)
  assert jax.tree.structure(back) == jax.tree.structure(params)
  padding = {'embeddings/word', 'mlm/bias'}
  for path, want in jax.tree_util.tree_flatten_with_path(params)[0]:
    name, got = '/'.join(k.key for k in path), back
    for key in path:
      got = got[key.key]
    real = slice(0, cases.VOCAB) if name in padding else slice(None)
    np.testing.assert_array_equal(got[real], want[real], err_msg=name)
    assert got.shape == want.shape and got.dtype == np.float32
    assert name not in padding or not got[cases.VOCAB :].any()


def test_xlnet_round_trip_and_what_it_has_no_class_for():
  c = cases.config('xlnet')
  shapes = jax.eval_shape(plm.make(c).init, jax.random.key(0), cases.batch([[8]], 8))
  params = cases.random_params(meta.unbox(shapes)['params'], 0.1)
  state = state_dicts.to_huggingface(params, c.model)
  m = c.model
  fields = dict(d_model=m.width, n_layer=m.layers, n_head=m.heads, d_inner=m.ffn)
  hf = transformers.XLNetConfig(vocab_size=m.vocab_size, **fields)
  model = transformers.XLNetLMHeadModel(hf)
  model.load_state_dict({k: torch.tensor(v) for k, v in state.items()}, strict=True)
  back = state_dicts.from_huggingface(state, c.model)
  params['word'][cases.VOCAB :] = params['head']['bias'][cases.VOCAB :] = 0
  jax.tree.map(np.testing.assert_array_equal, back, params)
  c.model.untie_r = False
  with pytest.raises(ValueError, match="{'untie_r': False}: expected {'untie_r': True}"):
    family.class_of(c.model)


def test_takes_what_published_files_hold():
  c = cases.config('bert')
  state = state_dicts.to_huggingface(make_params(c), c.model)
  want = state_dicts.from_huggingface(state, c.model)
  old = {k.replace('LayerNorm.weight', 'LayerNorm.gamma'): v for k, v in state.items()}
  old = {k.replace('LayerNorm.bias', 'LayerNorm.beta'): v for k, v in old.items()}
  del old['cls.predictions.decoder.bias']
  old['bert.embeddings.position_ids'] = np.arange(64)[None]
  got = state_dicts.from_huggingface(old, c.model)
  jax.tree.map(np.testing.assert_array_equal, got, want)

  c.model.labels = ()  # heads that the model lacks are left out
  assert 'pooler' not in state_dicts.from_huggingface(state, c.model)


@pytest.mark.parametrize(
  'change, message',
  [
    (lambda s: s.pop('bert.pooler.dense.bias'), 'missing .*bert.pooler.dense.bias'),
    (lambda s: s.update({'bert.odd': np.zeros(1)}), 'unexpected .*bert.odd'),
    (lambda s: s.update({'cls.predictions.decoder.bias': np.ones(211)}), 'ties them'),
    (lambda s: s.update({'bert.pooler.dense.bias': np.ones(63)}), r'shape \(64,\), got \(63,\)'),
  ],
)
def test_refuses_a_state_dict_that_does_not_fit(change, message):
  c = cases.config('bert')
  state = state_dicts.to_huggingface(make_params(c), c.model)
  change(state)
  with pytest.raises(ValueError, match=message):
    state_dicts.from_huggingface(state, c.model)


@pytest.mark.parametrize(
  'name, fields, message',
  [
    ('roberta', dict(labels=NEXT), r'has these heads: words=True, pooler=False, labels of next'),
    ('bert', dict(sharing='all'), "{'sharing': 'all'}: expected {'sharing': 'none'}"),
    ('albert', dict(sharing='ffn'), "{'sharing': 'ffn'}: expected {'sharing': 'all'}"),
    ('albert', dict(embedding_width=64), 'always projects'),
  ],
)
def test_refuses_a_model_without_a_class(name, fields, message):
  with pytest.raises(ValueError, match=message):
    family.class_of(cases.config(name, **fields).model)
