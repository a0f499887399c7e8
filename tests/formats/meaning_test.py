"""What the scores of a head mean, and which fields of a config.json stand in the receipt."""

import json
from typing import Any

import cases
import numpy as np
import pytest
import torch_models
import used_models
from mutation import mutation
from slow_imports import torch, transformers

from bertjax.errors import UserError
from bertjax.export import exporting, importing
from bertjax.formats import config_json, directory
from bertjax.sources import init_from

TEXTS = ['w7 w8 w9', 'w30']


def add(path, **fields):
  """Adds fields to the config.json of a directory."""
  given = json.loads((path / 'config.json').read_text())
  (path / 'config.json').write_text(json.dumps(given | fields))


def scores(path) -> list:
  """What the pipeline of transformers answers: names and scores of all classes."""
  pipeline: Any = transformers.pipeline('text-classification', model=str(path), device=-1)
  return [
    sorted((each['label'], each['score']) for each in said) for said in pipeline(TEXTS, top_k=None)
  ]


@mutation("kind = 'regression' if problem is None and count == 1 else problem", 'kind = problem')
def test_a_number_is_a_number_in_the_pipeline(tmp_path):
  model = dict(words=False, labels=(('label', 1),))
  run = used_models.make(tmp_path, 'bert', **model, activation='gelu_erf').workdir
  exporting.export(run, tmp_path / 'out')
  net = transformers.BertForSequenceClassification.from_pretrained(tmp_path / 'out').eval()
  tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / 'out')
  with torch.no_grad():
    numbers = net(**tokenizer(TEXTS, padding=True, return_tensors='pt')).logits[:, 0].numpy()
  found = np.array([score for ((_, score),) in scores(tmp_path / 'out')])
  np.testing.assert_allclose(found, numbers, atol=1e-6)
  assert (np.abs(numbers) > 1e-3).all()  # a sigmoid would say .5


@pytest.mark.parametrize('separators, types', [(1, 2), (3, 1)])
@mutation('layouts.Between(task.separators, segments)', 'None')
def test_pairs_are_told_apart_as_in_the_rows_of_a_run(separators, types, tmp_path):
  model = dict(words=False, labels=(('label', 2),), types=types)
  run = used_models.make(tmp_path, 'roberta', **model).workdir
  stored = json.loads((run / 'config.json').read_text())
  stored['config']['data']['task'] = dict(
    name='classify', text=['a', 'b'], classes=['no', 'yes'], separators=separators
  )
  (run / 'config.json').write_text(json.dumps(stored))
  exporting.export(run, tmp_path / 'out')
  found = transformers.AutoTokenizer.from_pretrained(tmp_path / 'out')('w7', 'w8')
  assert found['input_ids'].count(3) == separators + 1  # [SEP]
  assert sum(found.get('token_type_ids', [])) == 2 * (types - 1)


@pytest.mark.parametrize(
  'fields',
  [
    dict(problem_type='multi_label_classification'),
    # A cross-encoder: its pipeline says the probability of the one label.
    dict(id2label={'0': 'LABEL_0'}),
  ],
  ids=str,
)
@mutation('meta = dict(opened.meta, source=', 'meta = dict(source=')
def test_scores_mean_the_same_behind_both_conversions(fields, tmp_path, monkeypatch):
  case, count = 'BertForSequenceClassification', len(fields.get('id2label', '...'))
  monkeypatch.setitem(torch_models.CASES, case, dict(num_labels=count, **torch_models.SHAPES))
  used_models.save(case, tmp_path / 'theirs')
  add(tmp_path / 'theirs', **fields)
  importing.import_model(f'hf:{tmp_path / "theirs"}', tmp_path / 'run')
  exporting.export(tmp_path / 'run', tmp_path / 'out')
  before, after = scores(tmp_path / 'theirs'), scores(tmp_path / 'out')
  for theirs, ours in zip(before, after, strict=True):
    assert [name for name, _ in ours] == [name for name, _ in theirs]
    np.testing.assert_allclose([x for _, x in ours], [x for _, x in theirs], atol=1e-6)
  written = json.loads((tmp_path / 'out' / 'config.json').read_text())
  assert written.get('problem_type') == fields.get('problem_type')


@pytest.mark.parametrize(
  'count, kind',
  [
    (1, 'multi_label_classification'),
    (5, 'regression'),
    (1, 'single_label_classification'),  # which transformers itself refuses
  ],
)
@mutation('  if kind not in expected:', '  if False:')
def test_scores_that_mean_something_else_are_refused_at_every_door(count, kind, tmp_path):
  given = dict(model_type='bert', problem_type=kind, id2label={str(i): 'x' for i in range(count)})
  named = dict(given, architectures=['BertForSequenceClassification'])
  with pytest.raises(UserError, match=f"problem_type='{kind}' with {count} labels"):
    config_json.read(named, set())
  config_json.read(dict(given, architectures=['BertModel']), set())  # which has no such scores
  case = 'BertForSequenceClassification'
  torch_models.save(case, tmp_path)
  add(tmp_path, **named)
  for door in (
    lambda: importing.import_model(f'hf:{tmp_path}', tmp_path / 'run'),
    lambda: init_from.open_source(f'hf:{tmp_path}'),
    lambda: directory.open_directory(tmp_path),
  ):
    with pytest.raises(UserError, match=f"problem_type='{kind}'.*encoder without its head"):
      door()


@pytest.mark.parametrize(
  'case, fields',
  [
    ('BertForSequenceClassification', dict(classifier_dropout=0.3)),
    ('BertModel', dict(problem_type='multi_label_classification')),
    ('BertForMaskedLM', dict(num_memory_slots=7, task_specific_params=dict(a=dict(b=1)))),
    ('XLNetForSequenceClassification', dict(summary_last_dropout=0.4, use_mems_eval=False)),
  ],
  ids=str,
)
@mutation(
  'left_out=[*left_out, *taken.left_out]',
  'left_out=taken.left_out',
  case="BertForSequenceClassification-{'classifier_dropout': 0.3}",
)
def test_a_field_that_is_not_carried_stands_in_the_receipt(case, fields, tmp_path):
  torch_models.save(case, tmp_path / 'theirs')
  harmless = dict(torch_dtype='float16', chunk_size_feed_forward=4, use_cache=False)
  add(tmp_path / 'theirs', **fields, **harmless)
  opened = directory.open_directory(tmp_path / 'theirs')
  model = directory.whole_model(opened, cases.config(opened.recipe).model)
  left_out = opened.take(model).left_out
  assert left_out == [f'config.json: {key}={value!r}' for key, value in sorted(fields.items())]


@pytest.mark.parametrize('names', ['aab', ' abc'], ids=['alike', 'from 1 on'])
@mutation('len({*names}) < len(names) or', '', case='alike')
def test_classes_without_names_of_their_own_are_refused(names):
  names = {str(i): name for i, name in enumerate(names) if name.strip()}
  with pytest.raises(UserError, match='id2label: expected ids from 0 on, and a name of its own'):
    config_json.classes(dict(id2label=names), dict(labels=(('label', 3),)))
  assert config_json.classes(dict(id2label=names), {}) == {}  # which has no such scores


WALKED = (
  'BertForSequenceClassification', 'RobertaForMaskedLM', 'AlbertForMaskedLM',
  'ElectraForMaskedLM', 'XLNetLMHeadModel', 'DistilBertForMaskedLM', 'ModernBertForMaskedLM',
  'XLMWithLMHeadModel', 'GPT2LMHeadModel', 'BartForConditionalGeneration',
)  # fmt: skip


@pytest.mark.parametrize('case', WALKED)
@mutation('if value not in (None, {}, [], carried.get(key))', 'if False', case='RobertaForMaskedLM')
def test_every_field_of_a_class_is_carried_refused_or_listed(case):
  """Each field of the class's config with another value; ids of tokens come of the tokenizer."""
  given = torch_models.config_of(case).to_dict() | dict(architectures=[case])

  def meaning(fields):
    try:
      family, model = config_json.read(fields, set())
      return model, config_json.left_out(fields, family, model)
    except UserError as error:
      return str(error)

  other = {bool: lambda x: not x, int: lambda x: 2 * x or 3, float: lambda x: x / 2 or 0.3}
  other |= {str: lambda x: 'tanh' if x == 'relu' else 'relu', type(None): lambda x: 3}
  silent, before = [], meaning(given)
  for key, value in given.items():
    if key in config_json.HARMLESS or key == 'clamp_len' or type(value) not in other:
      continue  # any clamp_len below 1 clamps nothing
    changed = meaning(given | {key: other[type(value)](value)})
    silent += [key] if changed == before and not key.endswith('_token_id') else []
  assert not silent
