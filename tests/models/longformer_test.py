"""Longformer against PyTorch `transformers` (float32), its global tokens, and what begins it."""

import json

import cases
import finetuned
import jax
import numpy as np
import parity
import pytest
import torch_models
from adopting import adopt, begun
from ml_collections import ConfigDict
from mutation import mutation

from bertjax import models
from bertjax.errors import UserError
from bertjax.examples.labelled.common import from_config
from bertjax.formats import config_json, huggingface
from bertjax.models import longformer
from bertjax.objectives import classify, spans
from bertjax.sources import model_fields
from configs.finetune import squad

ODD = dict(layers=3, width=36, heads=3, ffn=52, positions=47, window=4)


@mutation('return self.window + 1', 'return self.window')
def test_masked_words_are_those_of_transformers():
  """Hidden states, logits, loss and every gradient, in rows that windows do not divide. There are
  no global tokens, so what is exported for them are copies, and they get no gradient."""
  c = cases.config('longformer', **ODD)
  theirs = torch_models.like(c.model, 'LongformerForMaskedLM')
  for layer in theirs.longformer.encoder.layer:
    attention = layer.attention.self
    for name in ('query', 'key', 'value'):
      getattr(attention, f'{name}_global').load_state_dict(getattr(attention, name).state_dict())
  state = torch_models.state_of(theirs)
  parity.compare(c, state, cases.batch([[17], [37], [9]], 37, types=1), theirs)
  given = huggingface.take(state, c.model)
  found = {name: array for name, _, array in huggingface.tensors(given.params, c.model)}
  copies = [name for name in found if '_global' in name]
  assert len(copies) == 18 and all(np.array_equal(found[k], state[k]) for k in copies)


def test_the_first_token_of_a_label_sees_all():
  """Logits, loss and every gradient, those of the projections of global tokens among them."""
  c = finetuned.config('longformer', **ODD, labels=(('label', 5),), global_tokens=1)
  c.objective = ConfigDict(dict(name='classify', smoothing=0.0, lm=0.0, class_weights=()))
  theirs = torch_models.like(c.model, 'LongformerForSequenceClassification', num_labels=5)
  batch = cases.batch([[17], [37], [9]], 37, types=1, label='label')
  found = finetuned.run(theirs, **as_theirs(batch), labels=batch['label_BG'][:, 0].astype(np.int64))
  pairs = finetuned.compared(
    classify.make(c), c, batch, found, lambda out, x: (out['label_BGC']['label'][:, 0], x)
  )
  parity.close_gradients(*pairs)


@mutation('jnp.cumsum(sep_BT, 1) == 0', 'jnp.cumsum(sep_BT, 1) < 2')
@mutation('jnp.where(moved_BT, 0, example_BT)', 'example_BT')
@mutation("own['global_query'](picked", 'attention.query(picked')
@mutation('.set(y_BCNH, mode=', '.add(y_BCNH, mode=')
def test_all_tokens_of_a_question_see_all():
  """As LongformerForQuestionAnswering finds them by the first [SEP], of rows with three."""
  c = finetuned.config('longformer', **ODD, token_labels=(('span', 2),), global_tokens=8)
  theirs = torch_models.like(c.model, 'LongformerForQuestionAnswering', sep_token_id=2)
  batch = cases.batch([[17], [37], [29]], 37, types=1)
  for row, count in enumerate((17, 37, 29)):
    batch['token_BT'][row, [4 + row, 5 + row, count - 1]] = 2
  start, end = np.array([8, 20, 11]), np.array([9, 25, 11])
  batch |= dict(span_start_BG=start[:, None].astype(np.int32), span_end_BG=end[:, None])
  real_BT = batch['example_BT'] > 0
  found = finetuned.run_spans(theirs, start, end, **as_theirs(batch))
  real = lambda out, x: (out['token_label_BTC']['span'][real_BT], x[real_BT])
  pairs = finetuned.compared(spans.make(c), c, batch, found, real)
  finetuned.close_but_for_the_bias('span', *pairs)


@mutation("by_text = self.labels and 'global_BT' not in batch", 'by_text = self.labels')
@mutation('jnp.where(moved_BT, 0, example_BT)', 'jnp.where(global_BT, 0, example_BT)')
def test_a_batch_says_its_global_tokens():
  """Of 30, the first three of four: token 20, which does not fit, is one of its window."""
  sizes = dict(ODD, layers=1, window=2, labels=(('label', 2),), global_tokens=3)
  model = models.build(cases.config('longformer', **sizes).model)
  batch = cases.batch([[30]], 30, types=1, label='label')
  batch['global_BT'] = np.isin(np.arange(30), (0, 5, 9, 20))[None].astype(np.int32)
  variables = cases.variables(model.init, batch)
  run = jax.jit(lambda batch: model.apply(variables, batch)['last_BTD'])

  def reached(column):
    token_BT = np.where(np.arange(30) == column, 7, 8 + 0 * batch['token_BT'])
    both = run(dict(batch, token_BT=token_BT)) != run(dict(batch, token_BT=8 + 0 * token_BT))
    return [*np.flatnonzero(both[0].any(-1))]

  assert reached(5) == [*range(30)]
  assert reached(20) == [0, 5, 9, 18, 19, 20, 21, 22]


def as_theirs(batch):
  pad_BT = np.where(batch['example_BT'] > 0, batch['token_BT'], 1)
  return dict(input_ids=pad_BT.astype(np.int64), attention_mask=(batch['example_BT'] > 0) * 1)


@mutation(', width, ffn, window=self.reach)', ', width, ffn)')
@mutation('(real_BT.sum(1) * global_BT.sum(1)).sum()', 'global_BT.sum()')
def test_flops_are_those_of_the_window_and_of_global_tokens():
  """Pair by pair; a text of 17 tokens whose first is global, and one of 9."""
  batch = cases.batch([[17], [9]], 20, types=1, label='label')
  sizes = dict(ODD, words=False, labels=(('label', 2),))
  local, both = (
    models.build(cases.config('longformer', **sizes, global_tokens=n).model).flops(batch)
    for n in (0, 1)
  )
  near = sum(abs(t - s) <= 4 for n in (17, 9) for t in range(n) for s in range(n))
  weights = 6 * 26 * (4 * 36**2 + 2 * 36 * 52)
  assert local == 3 * (weights + 12 * 36 * near) + 2 * 6 * (36 * 36 + 36 * 2)
  assert both - local == 3 * (6 * (2 * 26 + 2) * 36**2 + 12 * 36 * 2 * 26)


def roberta(tmp_path, **fields):
  """A RoBERTa of transformers in a directory."""
  torch_models.save('RobertaForMaskedLM', tmp_path / 'hf')
  c = cases.config('longformer', positions=100, window=6, **fields)
  c.init_from = f'hf:{tmp_path / "hf"}'
  return c


@mutation('% (len(table_TE) - offset)', '% len(table_TE)')
def test_a_roberta_begins_a_longformer(tmp_path):
  """It brings its shape; its positions behind the first two are repeated, the last time in part."""
  c, _, source = adopt(roberta(tmp_path), tmp_path)
  assert (c.model.name, c.model.family, c.model.layers) == ('longformer', 'longformer', 3)
  assert (c.model.positions, c.model.window, c.model.position_offset) == (100, 6, 2)
  batch = cases.batch([[90]], 90, types=1)
  variables = cases.variables(models.build(c.model).init, batch)
  new, _ = begun(c, None, variables, source)
  theirs = torch_models.build('RobertaForMaskedLM').roberta.embeddings.position_embeddings
  table_TE = theirs.weight.detach().numpy()
  own = [0, 1, *range(2, 45), *range(2, 45), *range(2, 14)]
  np.testing.assert_array_equal(new['params']['embeddings']['position'], table_TE[own])
  again, _ = begun(c, None, variables)
  jax.tree.map(np.testing.assert_array_equal, again, new)


@mutation(
  "family.find(found.model['family']).write(ConfigDict(found.model))",
  'pass',
  file='bertjax/sources/init_from.py',
)
def test_a_model_whose_words_no_class_would_score_begins_none(tmp_path):
  fields = torch_models.config_of('BertForMaskedLM').to_dict() | dict(hidden_act='gelu_new')
  torch_models.save('BertForMaskedLM', tmp_path / 'hf')
  (tmp_path / 'hf' / 'config.json').write_text(json.dumps(fields))
  c = cases.config('longformer', positions=100, window=6)
  c.init_from = f'hf:{tmp_path / "hf"}'
  with pytest.raises(UserError, match="that no class .* would hold: .*'gelu_erf', got 'gelu_tanh'"):
    adopt(c, tmp_path)


def test_fine_tuning_begins_global_projections_as_copies():
  """A model without them gets them; one that has them keeps them; masked words go on without."""
  c = cases.config('longformer', **ODD)
  batch = cases.batch([[9]], 9, types=1)
  plain = cases.variables(models.build(c.model).init, batch)['params']
  tuned = longformer.MODEL.tuned
  assert tuned.model(dict(c.model))['global_tokens'] is None
  layers = tuned.select(plain)['encoder']['layers']
  for ours, local in longformer.GLOBAL.items():
    jax.tree.map(np.testing.assert_array_equal, layers[ours], layers['attention'][local])
  other = jax.tree.map(lambda x: x + 1, tuned.select(plain))
  jax.tree.map(np.testing.assert_array_equal, tuned.select(other), other)
  back = longformer.MODEL.begins['longformer'](c.model, c.model).select(other)
  assert jax.tree.structure(back) == jax.tree.structure(plain)


@pytest.mark.parametrize('said, found', [({}, None), (dict(global_tokens=8), 8)])
@mutation('!= DEFAULT]', "!= 'x']", case='said0-None')
@mutation('if value is None and key in told', 'if False', case='said1-8')
def test_a_number_that_is_said_stands_where_a_source_leaves_it_to_the_run(said, found):
  c = cases.config('longformer', **said)
  model_fields.bring(c.model, c, longformer.MODEL.tuned.model(c.model.to_dict()))
  assert c.model.global_tokens == found


@pytest.mark.parametrize('given, found', [(None, 31), (8, 8), (0, 0)])
@mutation("task.get('question', 0) + 1", 'model.global_tokens', case='None-31')
@mutation(' if model.global_tokens is None else {}', '', case='8-8')
def test_a_task_says_how_long_its_questions_are(given, found):
  """Where the model leaves its global tokens to it."""
  c = squad.get_config('v1')
  c.model = cases.config('longformer', global_tokens=given).model
  c.model.token_labels = (('span', 0),)
  c.data.task.question = 30
  from_config.fill_labels(c.model, c.data.task)
  assert (c.model.global_tokens, c.model.token_labels) == (found, (('span', 2),))


@pytest.mark.parametrize('given', [[8, 4, 8], 7, 'wide'])
def test_windows_that_differ_or_are_odd_are_refused(given):
  config = dict(model_type='longformer', architectures=['LongformerModel'], attention_window=given)
  with pytest.raises(UserError, match='one even number, the same in all layers'):
    config_json.read(config, set())
