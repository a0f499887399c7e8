"""Directories of transformers, in and out: every class of every family."""

import contextlib
import json

import cases
import jax
import numpy as np
import pytest
import safetensors.numpy
import torch_models
from mutation import mutation
from no_room import no_room
from tiers import in_tiers
from torch_models import check_outputs, opened

from bertjax.errors import UserError
from bertjax.export import receipt
from bertjax.formats import config_json, directory, sentence_modules
from bertjax.formats import family as family_lib
from bertjax.objectives import span_boundary

# In the quick tier: what differs most in tables, fields and outputs.
QUICK = (
  'BertForPreTraining', 'RobertaModel', 'XLNetLMHeadModel to the left', 'GPT2LMHeadModel',
  'T5ForConditionalGeneration', 'T5ForConditionalGeneration 1.1', 'DebertaV2ForMaskedLM',
)  # fmt: skip


@pytest.fixture(scope='module')
def saved(tmp_path_factory):
  """Case -> its directory, written when it is asked for."""
  root, known = tmp_path_factory.mktemp('theirs'), {}

  def path(case):
    if case not in known:
      known[case] = root / case.replace(' ', '_')
      torch_models.save(case, known[case])
    return known[case]

  return path


@pytest.mark.parametrize('case', in_tiers(torch_models.CASES, {*torch_models.CASES} - {*QUICK}))
@mutation('query attention.self.key', 'key attention.self.query', case='BertForPreTraining')
@mutation(
  "return f'{find(model.family).base}.' if said_heads(model) in ('', 'pooled') else ''",
  "return ''",
  case='RobertaModel',
)
@mutation(
  'x.astype(self.dtype) @ kernel[:rows] + y.astype(self.dtype) @ kernel[rows:]',
  'x.astype(self.dtype) @ kernel[rows:] + y.astype(self.dtype) @ kernel[:rows]',
  case='XLNetForQuestionAnswering',
)
@mutation('text_BT & text_BT.roll(-1, 1)', 'text_BT.clone()', case='XLNetForQuestionAnswering')
@mutation('(0 if last else 1)', '0', case='XLMForQuestionAnswering')
def test_what_is_read_and_written_is_the_same(case, saved, tmp_path):
  """Every tensor bit for bit, no key missing or unexpected, the same outputs."""
  model, taken = opened(saved(case))
  assert not taken.made and not taken.left_out
  word_VE = taken.params.get('embeddings', taken.params)['word']
  assert word_VE.shape[0] == 256 and word_VE.dtype == np.float32 and not word_VE[211:].any()
  directory.write(tmp_path, taken.params, model, None, 'float32', 10**9)
  theirs = safetensors.numpy.load_file(saved(case) / 'model.safetensors')
  ours = safetensors.numpy.load_file(tmp_path / 'model.safetensors')
  assert ours.keys() == theirs.keys()
  for name, value in theirs.items():
    np.testing.assert_array_equal(ours[name], value, err_msg=name)
  before = json.loads((saved(case) / 'config.json').read_text())
  after = json.loads((tmp_path / 'config.json').read_text())
  assert after['architectures'] == before['architectures']
  assert check_outputs(tmp_path, model, taken.params) >= model.layers


# The tensors of a class for choices are those of BertForSequenceClassification, which is taken; of
# ModernBERT all tasks have the same.
ALIKE = ('MultipleChoice', 'ModernBertForSequence', 'ModernBertForQuestion')
TOLD = [case for case in torch_models.CASES if not any(name in case for name in ALIKE)]
# The heads of the others are named as theirs.
TOLD_QUICKLY = ('Bert', 'XLNet', 'GPT2', 'OpenAIGPT', 'T5')


@pytest.mark.parametrize(
  'case', in_tiers(TOLD, {case for case in TOLD if not case.startswith(TOLD_QUICKLY)})
)
def test_the_class_is_told_by_the_tensors_where_config_json_does_not(case, saved):
  given = json.loads((saved(case) / 'config.json').read_text())
  state = safetensors.numpy.load_file(saved(case) / 'model.safetensors')
  family, fields = config_json.read(given, set(state))
  del given['architectures']
  assert config_json.read(given, set(state)) == (family, fields)


def test_defaults_are_those_of_transformers():
  """A config.json of old may lack any field that its class has a default for."""
  import transformers

  names = dict(xlnet='XLNet', xlm='XLM', bert='Bert', roberta='Roberta', albert='Albert')
  names |= dict(electra='Electra', distilbert='DistilBert', ernie='Ernie')
  names |= dict(xlm_roberta='XLMRoberta', modernbert='ModernBert', bart='Bart')
  for name, prefix in names.items():
    config = getattr(transformers, f'{prefix}Config')()
    for field in family_lib.find(name).fields:
      if hasattr(config, field.theirs):
        assert getattr(config, field.theirs) == pytest.approx(field.default), (name, field.theirs)


@pytest.mark.parametrize(
  'change, message',
  [
    (dict(hidden_act='swish'), "hidden_act='swish', which our model does not compute"),
    (dict(position_embedding_type='relative_key'), "'position_embedding_type': 'relative_key'"),
    (dict(is_decoder=True), "'is_decoder': True"),
    (dict(tie_word_embeddings=False), "'tie_word_embeddings': False"),
    (dict(architectures=['BertLMHeadModel']), "class 'BertLMHeadModel'"),
    (dict(model_type='mamba'), "model_type='mamba'"),
    (dict(model_type='deberta'), "'deberta': version 1, .* expected one with .*'deberta-v2'"),
    (dict(intermediate_size=53), r'intermediate.dense.weight: .* shape \(53, 36\), got \(52, 36\)'),
    (dict(num_hidden_layers=4), 'missing .bert.encoder.layer.3.attention'),
    (dict(num_hidden_layers=2), 'unexpected .bert.encoder.layer.2.attention'),
    (dict(num_hidden_layers=10**8), 'model.layers=100000000, but the tensors .* room for'),
    (dict(hidden_size=10**8), 'model.width=100000000, but the tensors beside it have room for'),
    (dict(architectures=3), 'config.json: architectures: expected list, got 3'),
    (dict(rope_parameters=[1]), 'config.json: rope_parameters: expected dict, got .1'),
    (dict(num_labels='x'), "config.json: num_labels: expected int, got 'x'"),
    (dict(lang2id=[1]), 'config.json: lang2id: expected dict, got .1'),
    (dict(id2label={'a': 'x'}), "id2label: expected ids as keys, got 'a'"),
  ],
  ids=str,
)
@mutation(
  'if isinstance(value := model[key], int) and value > bound:',
  'if (value := model[key]) != model[key]:',
  case="{'hidden_size': 100000000}-model.width=100000000, but the tensors beside it have room for",
)
@mutation('if kind in each.unlike', 'if False', file='bertjax/formats/config_json.py')
def test_what_is_not_computed_here_is_refused_by_name(change, message, saved, tmp_path):
  given = json.loads((saved('BertForMaskedLM') / 'config.json').read_text())
  (tmp_path / 'config.json').write_text(json.dumps(given | change))
  (tmp_path / 'model.safetensors').symlink_to(saved('BertForMaskedLM') / 'model.safetensors')
  with pytest.raises(UserError, match=message):
    opened(tmp_path)


@mutation('  family.write(ConfigDict(whole))', '  ConfigDict(whole)')
@mutation('  except TypeError as', '  except LookupError as', file='bertjax/formats/config_json.py')
@pytest.mark.parametrize(
  'given, message',
  [
    # The head of words has the erf GELU there, whatever the layers have.
    (dict(model_type='roberta', hidden_act='relu'), "'gelu_erf', got 'relu'"),
    (dict(model_type='xlnet', bi_data=True), "'bi_data': True"),
    (
      dict(model_type='roberta', pad_token_id=None),
      'pad_token_id=None, .*: expected a value such as 1',
    ),
    (
      dict(model_type='modernbert', rope_scaling=dict(rope_type='linear', factor=4.0)),
      'rope_scaling=.*linear',
    ),
  ],
  ids=str,
)
def test_what_a_class_computes_otherwise_is_refused_before_it_is_read(given, message):
  classes = {
    'roberta': 'RobertaForMaskedLM', 'xlnet': 'XLNetLMHeadModel',
    'modernbert': 'ModernBertForMaskedLM',
  }  # fmt: skip
  named = dict(architectures=[classes[given['model_type']]])
  with pytest.raises(UserError, match=message):
    config_json.read(named | given, set())
  config_json.read(named | dict(model_type=given['model_type']), set())


@mutation("(given.get('num_labels') or 2)", "int(given.get('num_labels', 2))")
def test_null_for_the_labels_is_their_default():
  named = dict(model_type='bert', architectures=['BertForSequenceClassification'])
  assert config_json.read(named | dict(num_labels=None), set())[1]['labels'] == (('label', 2),)


@pytest.mark.parametrize(
  'given, extra', [({}, (('language', 15),)), (dict(use_lang_emb=False), ())], ids=str
)
@mutation("return {} if given.get('use_lang_emb', True) else dict(extra=())", 'return {}')
def test_an_xlm_may_have_no_table_of_languages(given, extra):
  named = dict(model_type='xlm', architectures=['XLMWithLMHeadModel'], n_langs=15, asm=False)
  assert config_json.read(named | given, set())[1]['extra'] == extra


@mutation('(sorted(said, key=said.__getitem__)) if numbered', '(sorted(said)) if numbered')
@mutation(' if numbered else ()', '')
def test_the_languages_of_a_table_have_names():
  model = cases.config('xlm', extra=(('language', 3),)).model
  found = config_json.write(model, {}, 'float32', languages=('fr', 'en', 'de'))
  assert found['lang2id'] == dict(fr=0, en=1, de=2) and found['id2lang']['2'] == 'de'
  assert config_json.languages(found, model) == ('fr', 'en', 'de')
  assert config_json.languages(found | dict(lang2id=dict(fr=0, en=1)), model) == ()
  assert config_json.languages({}, model) == ()
  assert config_json.languages(found, cases.config('bert').model) == ()
  assert 'lang2id' not in config_json.write(model, {}, 'float32', languages=('fr', 'en'))


def spoiled(saved, path, change, case='BertForMaskedLM'):
  """A directory whose tensors are changed."""
  state = safetensors.numpy.load_file(saved(case) / 'model.safetensors')
  change(state)
  safetensors.numpy.save_file(state, path / 'model.safetensors')
  (path / 'config.json').write_text((saved(case) / 'config.json').read_text())
  return path


@pytest.mark.parametrize(
  'said, gone, message',
  [
    ({}, '', 'differs .* of T5 1.1, .* scale_decoder_outputs=false'),
    (dict(tie_word_embeddings=False), '', ''),
    (dict(scale_decoder_outputs=False), 'lm_head.weight', '1 missing .* of T5 1.0, .* as lm_head'),
  ],
  ids=['said to be tied', 'of old', 'without its table'],
)
@mutation("get('scale_decoder_outputs', given", "get('', given", case='without its table')
@mutation('layout.ignored, model, layout.remedy', 'layout.ignored, model', case='without its table')
def test_a_t5_with_two_tables_is_told_by_config_json(said, gone, message, saved, tmp_path):
  spoiled(saved, tmp_path, lambda state: state.pop(gone, None), 'T5ForConditionalGeneration 1.1')
  given = json.loads((tmp_path / 'config.json').read_text())
  assert given.pop('tie_word_embeddings') and not given.pop('scale_decoder_outputs')
  (tmp_path / 'config.json').write_text(json.dumps(given | said))
  with pytest.raises(UserError, match=message) if message else contextlib.nullcontext():
    assert not opened(tmp_path)[0].tied


def test_all_that_does_not_fit_is_listed_at_once(saved, tmp_path):
  gone = [f'bert.encoder.layer.1.output.dense.{leaf}' for leaf in ('weight', 'bias')]

  def change(state):
    for name in gone:
      del state[name]
    state['bert.odd'] = np.zeros(2, np.float32)

  with pytest.raises(UserError) as error:
    opened(spoiled(saved, tmp_path, change))
  assert all(name in str(error.value) for name in (*gone, 'bert.odd'))


def test_published_files_of_old_are_read(saved, tmp_path):
  """Norms with gamma and beta, position_ids, one copy of a tied bias; heads may be left out."""

  def change(state):
    for name in list(state):
      old = name.replace('LayerNorm.weight', 'LayerNorm.gamma')
      state[old.replace('LayerNorm.bias', 'LayerNorm.beta')] = state.pop(name)
    state['bert.embeddings.position_ids'] = np.arange(45, dtype=np.int64)[None]

  case = 'BertForPreTraining'
  _, wanted = opened(saved(case))
  model, taken = opened(spoiled(saved, tmp_path, change, case))
  jax.tree.map(np.testing.assert_array_equal, taken.params, wanted.params)
  model.labels = ()
  bare = directory.open_directory(tmp_path).take(model)
  assert 'pooler' not in bare.params


@mutation('n for n in absent if names[n].head and', 'n for n in absent if False and')
def test_a_head_is_made_anew_as_a_whole_or_refused(saved, tmp_path):
  def headless(state):
    for name in [name for name in state if name.startswith('cls.')]:
      del state[name]

  model, taken = opened(spoiled(saved, tmp_path, headless))
  assert {path.partition('/')[0] for path in taken.made} == {'mlm'} and len(taken.made) == 5
  assert model.words and not taken.params['mlm']['bias'].any()
  half = lambda state: state.pop('cls.predictions.transform.LayerNorm.bias')
  with pytest.raises(UserError, match='1 missing .cls.predictions.transform.LayerNorm.bias'):
    opened(spoiled(saved, tmp_path, half))


@pytest.mark.parametrize(
  'name, fields, message',
  [
    ('transformer_xl', dict(cutoffs=(50, 100)), "{'cutoffs': .50, 100.}"),
    ('transformer_xl', dict(attention='absolute', mem_len=0), "{'attention': 'absolute'}"),
    ('transformer_xl', dict(head_size=16), 'expected config.model.head_size=8, got 16'),
    ('bert', dict(attend='self'), "{'attend': 'self'}"),
    ('albert', dict(sharing='ffn'), "{'sharing': 'ffn'}: expected {'sharing': 'all'}"),
    ('albert', dict(embedding_width=64), 'always projects'),
    ('roberta', dict(labels=(('next', 2),)), 'these heads: word text:next. There are'),
    ('bert', dict(pooler=True, labels=()), 'these heads: word pooled'),
    ('xlm', dict(ffn=100), r'config.model.ffn=4 . width=256, got 100'),
    (
      'xlm',
      dict(words=False, labels=(('label', 2),), pooler_activation='tanh'),
      "{'pooler_activation': 'tanh'}: expected {'pooler_activation': 'none'}",
    ),
    ('electra', dict(generator='own', words=False), "{'words': False}"),
    ('xlnet', dict(untie_r=False), "{'untie_r': False}"),
  ],
  ids=str,
)
def test_what_a_class_cannot_express_is_refused_by_name(name, fields, message):
  model = cases.config(name, **fields).model
  with pytest.raises(UserError, match=message):
    directory.check(model, None)


@mutation("() if re.search('text|pooled', said_heads(model)) else OF_POOLER", '()')
def test_what_a_model_leaves_unread_may_be_anything():
  directory.check(cases.config('xlm', pooler_activation='tanh').model, None)


@mutation('    if wrong:', '    if False:', file='bertjax/formats/families/xlm.py')
def test_another_summary_of_a_text_than_its_first_token_is_refused(saved):
  wrong = dict(
    XLMForMultipleChoice=dict(summary_use_proj=True),
    XLMForSequenceClassification=dict(summary_activation='tanh'),
  )
  for case, change in wrong.items():
    given = json.loads((saved(case) / 'config.json').read_text())
    config_json.read(given, set())
    with pytest.raises(UserError, match=f'config.json has {change}'):
      config_json.read(given | change, set())
    if change == dict(summary_use_proj=True):  # which config.json need not say
      del given['summary_use_proj']
      with pytest.raises(UserError, match=f'config.json has {change}'):
        config_json.read(given, set())


def test_the_head_that_no_class_has_is_a_file_of_its_own(tmp_path):
  c = cases.config('spanbert')
  batch = cases.batch([[9]], 12)
  batch |= {f'{side}_BP': batch['target_pos_BP'] for side in ('left', 'right', 'offset')}
  params = cases.variables(span_boundary.make(c).init, batch)['params']
  directory.write(tmp_path, params, c.model, None, 'float32', 10**9)
  side = safetensors.numpy.load_file(tmp_path / directory.SIDE)
  assert len(side) == 10 and all(name.startswith('boundary.') for name in side)
  kernel = params['boundary']['dense1']['kernel']
  np.testing.assert_array_equal(side['boundary.dense1.weight'], kernel.T)
  main = safetensors.numpy.load_file(tmp_path / 'model.safetensors')
  assert not any('boundary' in name for name in main)


@mutation("with writing('the model', directory):", 'if True:')
def test_a_full_disk_names_the_model(saved, tmp_path):
  model, taken = opened(saved('BertForPreTraining'))
  with pytest.raises(OSError, match=f"while writing the model: '{tmp_path}"), no_room():
    directory.write(tmp_path, taken.params, model, None, 'float32', 10**9)
  with pytest.raises(OSError, match="while writing the receipt: '.*parity.json"), no_room():
    receipt.write(tmp_path, dict(outputs={}), started=0.0, bytes_of_model=1)
  said = "while writing the modules of sentence-transformers: '.*modules.json"
  with pytest.raises(OSError, match=said), no_room():
    sentence_modules.write(tmp_path, model, 'mean', 8)
