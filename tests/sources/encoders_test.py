"""init_from of fine-tuning: the encoder of a model of another kind than the config's."""

import json
from contextlib import nullcontext

import cases
import jax
import numpy as np
import pytest
import state_dicts
import torch_models
from adopting import adopt, begun
from mutation import mutation

from bertjax import models
from bertjax.errors import UserError
from bertjax.export import exporting, importing
from bertjax.sources import init_from, subtrees
from configs import transformer_xl
from configs.finetune import text


def config_of(source, **model):
  c = text.get_config('classes')
  c.init_from = source
  c.model.update(model)
  return c


def first_variables(c):
  """Variables of the model with a head for three classes."""
  c.model.labels = (('label', 3),)
  return cases.variables(models.build(c.model).init, cases.batch([[8]], 8))


def save(case, path):
  torch_models.save(case, path)
  return f'hf:{path}'


@mutation('source or _for_run(name, config))', 'source or open_source(name))')
@mutation("dict(projection=net['projection']) if 'projection' in net else {}", '{}')
def test_of_electra_it_is_the_discriminator(tmp_path):
  """What ElectraForPreTraining holds is what a class with the same encoder is read as."""
  c, said, source = adopt(config_of(save('ElectraForPreTraining', tmp_path / 'hf')), tmp_path)
  assert (c.model.name, c.model.family, c.model.embedding_width) == ('bert', 'electra_net', 20)
  assert (c.model.pooler_activation, c.model.pooler_dropout) == ('gelu_erf', True)
  assert 'pooler_dropout False -> True' in said[0]
  new, said = begun(c, None, first_variables(c), source)
  assert 'none of them: label, pooler' in said[-2] and said[-1].endswith('none of them: rtd')
  # As it begins again after a kill before its first checkpoint, when nothing is adopted.
  again, _ = begun(c, None, first_variables(c))
  jax.tree.map(np.testing.assert_array_equal, again, new)
  state = torch_models.build('ElectraForPreTraining').state_dict()
  state = {k: v.numpy() for k, v in state.items() if not k.startswith('discriminator_pred')}
  headless = c.model.copy_and_resolve_references()
  headless.labels = ()
  want = state_dicts.from_huggingface(state, headless)
  for key, tree in want.items():
    jax.tree.map(np.testing.assert_array_equal, new['params'][key], tree)


@mutation("if 'mlm' in params", "if 'mlm' not in params")
def test_another_kind_brings_its_fields_and_the_head_goes_on(tmp_path):
  """The model is theirs; the heads, and what was said for this run, are the config's."""
  given = config_of(save('ModernBertForMaskedLM', tmp_path / 'hf'), dropout=0.3)
  c, said, source = adopt(given, tmp_path)
  assert (c.model.name, c.model.window, c.model.words) == ('modernbert', 3, False)
  assert 'types' not in c.model and c.model.vocab_size == 211
  assert c.model.labels == (('label', 0),) and c.model.head_dropout == given.model.head_dropout
  assert (c.model.dropout, c.model.attention_dropout) == (0.3, 0.0)  # the recipe's is not theirs
  assert "name 'modernbert'" in said[0] and 'layers 5' in said[0]
  new, said = begun(c, None, first_variables(c), source)
  assert said[-2].endswith('none of them: label') and said[-1].endswith('none of them: mlm')
  state = torch_models.build('ModernBertForMaskedLM').state_dict()
  head = new['params']['head']
  np.testing.assert_array_equal(head['dense']['kernel'], state['head.dense.weight'].numpy().T)
  np.testing.assert_array_equal(head['norm']['scale'], state['head.norm.weight'].numpy())


@mutation("if 'labels' not in found.model:", 'if False:')
def test_a_kind_without_heads_is_refused():
  model = dict(transformer_xl.get_config('test').model)
  with pytest.raises(UserError, match="name='transformer_xl', which has no heads for labels"):
    init_from.encoder_of(init_from.Source('runs/x', model, None, dict))


@mutation('if found != own and set(found) == set(own)}', 'if False}')
@pytest.mark.parametrize(
  'names, anew, taken',
  [
    (('no', 'maybe', 'yes'), False, False),
    (('No', 'Maybe', 'Yes'), False, True),
    (('Yes', 'Maybe', 'No'), True, False),
    (('refuted', 'open', 'entailed'), False, True),
    (('LABEL_0', 'LABEL_1', 'LABEL_2'), False, False),
  ],
)
def test_classes_of_transformers_are_told_by_their_names(tmp_path, names, anew, taken):
  c = config_of(save('AlbertForSequenceClassification', tmp_path / 'hf'))
  file = tmp_path / 'hf/config.json'
  given = json.loads(file.read_text()) | dict(id2label=dict(enumerate(names)))
  file.write_text(json.dumps(given))
  c.data.task.classes = ('no', 'maybe', 'yes')
  c, said, source = adopt(c, tmp_path)
  assert any('they are taken, in this order, for no, maybe, yes' in line for line in said) == taken
  _, said = begun(c, None, first_variables(c), source)
  assert any('for other classes: label' in line for line in said) == anew


@mutation('{head.removeprefix(path)}', '{head}')
@mutation('notes = _heads_of_parts(origins, config)', 'notes = []')
@mutation('imported = run.imported_classes', 'imported = {}')
@mutation('or next(iter(run.imported_classes.values()), ())', 'or ()')
def test_classes_of_transformers_keep_their_names_as_a_run(tmp_path):
  c = config_of(save('AlbertForSequenceClassification', tmp_path / 'hf'))
  file = tmp_path / 'hf/config.json'
  names = {'0': 'Yes', '1': 'Maybe', '2': 'No'}
  file.write_text(json.dumps(json.loads(file.read_text()) | dict(id2label=names)))
  importing.import_model(f'hf:{tmp_path}/hf', tmp_path / 'run')
  for classes, anew in ((('no', 'maybe', 'yes'), True), (('yes', 'maybe', 'no'), False)):
    c.init_from, c.data.task.classes = str(tmp_path / 'run'), classes
    adopted, _, source = adopt(c, tmp_path / 'next')
    _, said = begun(adopted, None, first_variables(adopted), source)
    assert any('for other classes: label' in line for line in said) == anew
    for source in (f'hf:{tmp_path}/hf', str(tmp_path / 'run')):
      for part, refused in (('pooler', False), ('label', anew), ('', anew)):
        part = f'params/{part}'.rstrip('/')
        c.init_from = ((source, part, part, ()),)
        with pytest.raises(UserError, match='leave the head out') if refused else nullcontext():
          adopt(c, tmp_path / 'next')
  exporting.export(tmp_path / 'run', tmp_path / 'again')
  assert json.loads((tmp_path / 'again/config.json').read_text())['id2label'] == names


@mutation('moved[own:][:behind] = ', 'moved[own:][:0] = ')
def test_what_a_table_has_behind_the_words_goes_with_them():
  """GPT-1's positions, with three words more in front of them."""
  theirs, ours = np.arange(8.0)[:, None], -np.ones((11, 1))  # four words, three positions, padding
  rows = subtrees.Rows(np.arange(4), np.arange(4), np.arange(4, 7), [()] * 3, 4)
  to = dict(word=jax.numpy.asarray(ours))
  found = subtrees.taken(dict(word=theirs), to, (), 'run', rows)(to)['word']
  assert found[:, 0].tolist() == [0, 1, 2, 3, 1.5, 1.5, 1.5, 4, 5, 6, 7]
