"""Vectors of texts as modules.json of sentence-transformers declares them.

The right ones are that library's rules, written out over the hidden states of transformers.
"""

import json
import shutil

import numpy as np
import pytest
import used_models
from mutation import mutation
from slow_imports import torch, transformers
from tiers import in_tiers

import bertjax
from bertjax.errors import UserError
from bertjax.export import exporting, importing
from bertjax.formats import sentence_modules

TEXTS = ['w7 w8 w9', 'w30', 'w11 W12 w13 w14 w15 w16 w17 w18 w19']
MEAN = dict(pooling_mode_cls_token=False, pooling_mode_mean_tokens=True)
CLS = dict(pooling_mode_cls_token=True, pooling_mode_mean_tokens=False)
OLD, NEW = 'sentence_transformers.models.', 'sentence_transformers.sentence_transformer.modules.x.'
PLAIN = (('Transformer', {}), ('Pooling', MEAN))


def declare(path, modules, net=None, start=OLD, **whole):
  """Writes modules.json and what it names: (kind, its config.json) of each module."""
  folders = ['', *(f'{i}_{kind}' for i, (kind, _) in enumerate(modules) if i)]
  types = [kind if '.' in kind else f'{start}{kind}' for kind, _ in modules]
  said = [dict(name=f or '0', path=f, type=t) for f, t in zip(folders, types, strict=True)]
  (path / 'modules.json').write_text(json.dumps(said))
  (path / 'sentence_bert_config.json').write_text(json.dumps(net or {}))
  (path / 'config_sentence_transformers.json').write_text(json.dumps(whole))
  for folder, (_, config) in zip(folders[1:], modules[1:], strict=True):
    (path / folder).mkdir()
    (path / folder / 'config.json').write_text(json.dumps(config))


@pytest.fixture(scope='module')
def saved(tmp_path_factory):
  """A BertModel with words w5, w6, .. in the case that they are written in."""
  path = tmp_path_factory.mktemp('saved') / 'theirs'
  used_models.save('BertModel', path, do_lower_case=False)
  return path


@pytest.fixture
def path(saved, tmp_path):
  """A copy, to which files may be added."""
  return shutil.copytree(saved, tmp_path / 'theirs')


def right(path, pool, texts, length=45, unit=False):
  """The rule by hand, a text at a time, so that nothing is padded."""
  tokenizer = transformers.AutoTokenizer.from_pretrained(path)
  net = transformers.BertModel.from_pretrained(path).eval()
  found = []
  for text in texts:
    inputs = tokenizer(text, truncation=True, max_length=length, return_tensors='pt')
    with torch.no_grad():
      x_TD = net(**inputs).last_hidden_state[0].numpy()
    x_D = x_TD[0] if pool == 'cls' else x_TD.sum(0) / len(x_TD)
    found.append(x_D / np.sqrt((x_D**2).sum()) if unit else x_D)
  return np.stack(found)


UNIT = ('Normalize', {})
USED = {
  'cls, of length 1': (
    dict(modules=(PLAIN[0], ('Pooling', CLS), UNIT)), dict(pool='cls', unit=True),
  ),
  'mean': (dict(modules=PLAIN), dict(pool='mean')),
  'mean where nothing is said': (dict(modules=(PLAIN[0], ('Pooling', {}))), dict(pool='mean')),
  'today': (
    dict(modules=(PLAIN[0], ('Pooling', dict(pooling_mode='cls', include_prompt=True))), start=NEW),
    dict(pool='cls'),
  ),
  'length': (dict(modules=PLAIN, net=dict(max_seq_length=6)), dict(pool='mean', length=6)),
  'prompt': (
    dict(modules=PLAIN, prompts=dict(q='w50 w51 ', p=''), default_prompt_name='q'),
    dict(pool='mean', texts=[f'w50 w51 {text}' for text in TEXTS]),
  ),
  'prompts that must be asked for': (
    dict(modules=PLAIN, prompts=dict(q='w50 w51 ')), dict(pool='mean'),
  ),
  'lower case': (
    dict(modules=PLAIN, net=dict(do_lower_case=True)),
    dict(pool='mean', texts=[text.lower() for text in TEXTS]),
  ),
}  # fmt: skip


@pytest.mark.parametrize('case', in_tiers(USED, [*USED][2:-1]))
@mutation(
  'if not declared.refused and pool in (None, declared.pool):', 'if False:', case='cls, of length 1'
)
@mutation('room = min(self._room or length, length)', 'room = self._room or length', case='length')
def test_vectors_are_those_that_modules_json_declares(case, path):
  declared, rule = USED[case]
  declare(path, **declared)
  found = used_models.load(path).embed(TEXTS, cut=True)
  np.testing.assert_allclose(found, right(path, **(dict(texts=TEXTS) | rule)), atol=2e-5)


@mutation("Sentences(**found.meta.get('sentences', {}))", 'Sentences()')
def test_a_converted_run_has_what_was_declared(path, tmp_path):
  declare(path, (PLAIN[0], ('Pooling', CLS), UNIT))
  importing.import_model(f'hf:{path}', tmp_path / 'run')
  found = used_models.load(tmp_path / 'run').embed(TEXTS)
  np.testing.assert_allclose(found, right(path, 'cls', TEXTS, unit=True), atol=2e-5)


def test_what_is_declared_of_a_folder_above_is_read(tmp_path):
  """The layout of old: the model in 0_Transformer."""
  declare(tmp_path, (PLAIN[0], ('Pooling', CLS)))
  modules = json.loads((tmp_path / 'modules.json').read_text())
  modules[0]['path'] = '0_Transformer'
  (tmp_path / 'modules.json').write_text(json.dumps(modules))
  (tmp_path / '0_Transformer').mkdir()
  found = sentence_modules.read(tmp_path / '0_Transformer', 'bert')
  assert found == sentence_modules.Sentences('first')


@mutation("path.name.startswith('0_') and not", 'not')
def test_a_file_of_that_name_above_is_somebody_elses(tmp_path):
  """As of a plain directory beside a project of another kind."""
  (tmp_path / 'modules.json').write_text('{"Modules": []}')
  assert sentence_modules.read(tmp_path / 'theirs', 'bert') == sentence_modules.MEAN


REFUSED = {
  'pooling by max': dict(modules=(PLAIN[0], ('Pooling', dict(pooling_mode_max_tokens=True)))),
  'pooling by mean_tokens, max': dict(
    modules=(PLAIN[0], ('Pooling', dict(MEAN, pooling_mode_max_tokens=True)))
  ),
  'pooling by cls, mean': dict(
    modules=(PLAIN[0], ('Pooling', dict(pooling_mode=['cls', 'mean']))), start=NEW
  ),
  'the modules Transformer, Pooling, Dense': dict(modules=(*PLAIN, ('Dense', {}))),
  'the modules Transformer, Normalize, Pooling': dict(modules=(PLAIN[0], UNIT, PLAIN[1])),
  'the modules Transformer': dict(modules=PLAIN[:1]),
  'the modules custom.Transformer': dict(modules=(('custom.Transformer', {}), PLAIN[1])),
  'processing_kwargs': dict(modules=PLAIN, net=dict(processing_kwargs=dict(text=dict(a=1)))),
  'vectors of 8 numbers': dict(modules=PLAIN, truncate_dim=8),
  "the prompt 'q'": dict(modules=PLAIN, default_prompt_name='q', prompts={}),
  'a prompt that is not pooled': dict(
    modules=(PLAIN[0], ('Pooling', dict(MEAN, include_prompt=False))),
    default_prompt_name='q', prompts=dict(q='w50 '),
  ),
}  # fmt: skip


@pytest.mark.parametrize('case', REFUSED)
@mutation(': not known,', ': False,', case='the modules Transformer, Pooling, Dense')
@mutation('0 < cut < pooling', 'False and pooling', case='vectors of 8 numbers')
def test_what_is_declared_and_not_computed_is_named(case, tmp_path):
  declare(tmp_path, **REFUSED[case])
  assert case in sentence_modules.read(tmp_path, 'bert').refused


@mutation('  if pool is None and declared.refused:', '  if False:')
def test_what_is_not_computed_is_refused_unless_another_pooling_is_asked_for(path, caplog):
  declare(path, (*PLAIN, ('Dense', {})))
  model = bertjax.Model.load(path)
  with pytest.raises(UserError, match='modules.json of .* declares the modules .* expected pool'):
    model.embed(TEXTS)
  np.testing.assert_allclose(model.embed(TEXTS, 'mean'), right(path, 'mean', TEXTS), atol=2e-5)
  (line,) = [line for line in caplog.messages if 'modules.json' in line]
  assert 'the modules Transformer, Pooling, Dense' in line and "pool='mean' sets it aside" in line


@mutation('  if declared != MEAN:', '  if False:')
def test_another_pooling_than_the_declared_one_is_named(path, caplog):
  declare(path, (PLAIN[0], ('Pooling', CLS), UNIT), dict(max_seq_length=6))
  model = used_models.load(path)
  for _ in range(2):
    found = model.embed(TEXTS, 'mean')
  np.testing.assert_allclose(found, right(path, 'mean', TEXTS), atol=2e-5)
  (line,) = [line for line in caplog.messages if 'declares' in line]
  assert "declares pool='first', normalize=True, length=6: pool='mean' sets it aside" in line
  long = model.embed(TEXTS, normalize=False, cut=True)
  np.testing.assert_allclose(long, right(path, 'cls', TEXTS, 6), atol=2e-5)


def test_the_modules_of_an_export_are_read_again(tmp_path):
  model = dict(words=False, labels=(), pooler=True, activation='gelu_erf')
  run = used_models.make(tmp_path, 'bert', **model).workdir
  exporting.export(run, tmp_path / 'out', form=exporting.Form(sentence_transformers='first'))
  found = used_models.load(tmp_path / 'out').embed(['w9 w10', 'w7'])
  want = used_models.load(run).embed(['w9 w10', 'w7'], 'first', normalize=True)
  np.testing.assert_allclose(found, want, atol=1e-5)
  np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
