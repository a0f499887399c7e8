"""model.onnx: onnxruntime says of texts what the run says; models that are refused."""

import json
import re
import shutil
import sys

import cases
import jax
import numpy as np
import pytest
import torch_models
import used_models
from mutation import mutation
from slow_imports import onnxruntime, transformers

import bertjax
from bertjax.errors import UserError
from bertjax.export import exporting, importing, onnx_model
from bertjax.formats import family as family_lib
from bertjax.formats import weights
from bertjax.sources import runs

ONNX = exporting.Form(onnx=True)


@pytest.fixture(scope='module')
def libraries():
  for name in onnx_model.LIBRARIES:
    pytest.importorskip(name)


@pytest.fixture(scope='module')
def made(libraries, tmp_path_factory):
  """The folder of a run of one layer and of its export, and what was said of that."""
  root = tmp_path_factory.mktemp('onnx')
  return root, export(root)


def export(root, **model):
  """Makes a BERT and exports it."""
  run = used_models.make(root, 'bert', **dict(layers=1) | model).workdir
  return exporting.export(run, root / 'out', form=ONNX)


def run_card(out):
  """Runs the lines of a model card as they stand there; returns what they call outputs."""
  (lines,) = re.findall('```python\n(.*?)```', (out / 'README.md').read_text(), re.DOTALL)
  named = {}
  exec(lines.replace('DIR', str(out)), named)
  return named['outputs']


@mutation('node.metadata_props.clear()', 'pass')
@mutation("if head.kind in ('text', 'boundary')", "if head.kind == 'boundary'")
def test_onnxruntime_says_what_the_run_says(made):
  """Texts of other lengths, and as many, than the graph was made with."""
  root, said = made
  out = root / 'out'
  names = {path.name for path in out.iterdir()}
  assert {'model.onnx', 'config.json', 'tokenizer.json', 'README.md', 'parity.json'} <= names
  assert not any(name.endswith('.safetensors') for name in names)
  assert json.loads((out / 'config.json').read_text())['architectures'] == ['BertForMaskedLM']
  assert said['left_out'] == ['the head next'] and 'onnxruntime' in said['versions']
  assert [each['of'] for each in said['outputs']['differences']] == ['word', 'word of texts alone']
  assert b'site-packages' not in (out / 'model.onnx').read_bytes()
  card = (out / 'README.md').read_text()
  assert 'pipeline_tag: "fill-mask"\n' in card and 'tags: ["bertjax", "onnx"]\n' in card
  assert run_card(out)[0].shape[0] == 2
  tokenizer = transformers.AutoTokenizer.from_pretrained(out)
  session = onnxruntime.InferenceSession(out / 'model.onnx')
  texts = ['w7 [MASK] w9 w30.', '[MASK] w12']
  given = tokenizer(texts, padding=True, return_tensors='np')
  (logits_BTV,) = session.run(None, {each.name: given[each.name] for each in session.get_inputs()})
  blanks = np.nonzero(given['input_ids'] == tokenizer.mask_token_id)
  chance_NV = np.exp(jax.nn.log_softmax(logits_BTV[blanks].astype(np.float64)))
  filled = bertjax.Model.load(root / 'run').fill(texts, top=5)
  for (found,), chance_V in zip(filled, chance_NV, strict=True):
    ids = [each.id for each in found]
    assert ids == [*np.argsort(-chance_V)[:5]]
    np.testing.assert_allclose([each.probability for each in found], chance_V[ids], 1e-4)


@pytest.mark.full
@mutation("{**model, 'dtype': 'float32'}", 'model', file='bertjax/export/parity.py')
def test_numbers_of_a_large_model_lie_beside_its_graph(libraries, tmp_path, monkeypatch):
  """A file of ONNX holds 2 GB. A run that computes in bfloat16 is written in float32."""
  from torch.onnx._internal.exporter import _onnx_program

  monkeypatch.setattr(_onnx_program, '_LARGE_MODEL_THRESHOLD', 1000)
  said = export(tmp_path, dtype='bfloat16')
  assert (tmp_path / 'out' / 'model.onnx.data').stat().st_size > 1000
  assert {'model.onnx', 'model.onnx.data'} <= said['sha256']['theirs'].keys()
  assert run_card(tmp_path / 'out')[0].dtype == np.float32


@mutation('compared = onnx_model.compared if', 'compared = receipt.compared if')
def test_a_graph_that_says_something_else_is_refused(made, tmp_path, monkeypatch):
  root, _ = made
  run = runs.open_run(root / 'run')
  params = dict(run.params())
  params['mlm'] = dict(params['mlm'], bias=params['mlm']['bias'] + 0.01)
  (tmp_path / 'run').mkdir()
  runs.write_run(tmp_path / 'run', run.config, params, run.vocabulary, {})
  monkeypatch.setattr(
    onnx_model, '_write', lambda path, *_: shutil.copy(root / 'out' / 'model.onnx', path)
  )
  with pytest.raises(UserError, match=r'onnxruntime does not say .*: word is off by 1.0.e-02'):
    exporting.export(tmp_path / 'run', tmp_path / 'out', form=ONNX)
  assert not (tmp_path / 'out').exists() and (tmp_path / 'out.failed' / 'parity.json').is_file()


@pytest.mark.parametrize(
  ('name', 'message'),
  [
    ('gpt', 'no GPT2LMHeadModel, because it writes text'), ('t5', 'writes text'),
    ('xlnet', 'no XLNetLMHeadModel, because it has a memory'),
    ('transformer_xl', 'writes text and it has a memory'),
  ],
)  # fmt: skip
def test_what_writes_or_remembers_is_refused_by_name(name, message):
  with pytest.raises(UserError, match=message):
    onnx_model.check(cases.config(name).model)


def test_a_library_that_is_not_there_is_named_with_its_remedy(monkeypatch):
  for name in onnx_model.LIBRARIES:
    monkeypatch.setitem(sys.modules, name, None)
  with pytest.raises(UserError, match='needs torch, .* pip install -r requirements-onnx.txt'):
    onnx_model.check(cases.config('bert').model)


@pytest.mark.full
@pytest.mark.parametrize(
  'case',
  [
    'AlbertForPreTraining', 'BertModel', 'DebertaV2ForTokenClassification',
    'DistilBertForQuestionAnswering', 'ElectraForPreTraining', 'ElectraForMaskedLM',
    'ModernBertModel', 'ModernBertForSequenceClassification', 'RobertaForMultipleChoice',
    'XLMForSequenceClassification', 'XLMRobertaForTokenClassification',
  ],
)  # fmt: skip
def test_classes_and_heads(case, libraries, tmp_path):
  torch_models.save(case, tmp_path / 'theirs')
  importing.import_model(f'hf:{tmp_path}/theirs', tmp_path / 'run')
  said = exporting.export(tmp_path / 'run', tmp_path / 'out', form=ONNX)
  assert len(said['outputs']['differences']) in (2, 4)
  assert all(each['ok'] for each in said['outputs']['differences'])
  assert weights.files_of(tmp_path / 'out') == []
  assert family_lib.class_of(runs.open_run(tmp_path / 'run').config.model) == case


@pytest.mark.full
@mutation("if name.endswith('ForMultipleChoice') else ''", "if False else ''")
def test_the_lines_of_a_card_score_choices(libraries, tmp_path):
  export(tmp_path, words=False, labels=(('right', 1),))
  assert run_card(tmp_path / 'out')[0].shape == (1, 2)


@pytest.mark.full
def test_a_class_that_pytorch_makes_no_graph_of_is_named(libraries, tmp_path, capsys):
  torch_models.save('LongformerForMaskedLM', tmp_path / 'theirs')
  importing.import_model(f'hf:{tmp_path}/theirs', tmp_path / 'run')
  capsys.readouterr()
  with pytest.raises(
    UserError, match='no graph with free batch .* of LongformerForMaskedLM: Could'
  ):
    exporting.export(tmp_path / 'run', tmp_path / 'out', form=ONNX)
  assert 'forward' not in ''.join(capsys.readouterr())
  assert sorted(path.name for path in tmp_path.iterdir()) == ['run', 'theirs']
