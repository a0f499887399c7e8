"""The command: a real run out and in, and what bad input gets."""

import json
import re
import types

import cases
import forks
import numpy as np
import pytest
import torch_models
import used_models
from mutation import mutation

from bertjax.errors import UserError
from bertjax.export import card as card_lib
from bertjax.export import exporting, importing
from bertjax.formats import weights
from bertjax.sources import runs


@pytest.fixture(scope='module')
def theirs(tmp_path_factory):
  path = tmp_path_factory.mktemp('theirs')
  torch_models.save('BertForPreTraining', path)
  return path


@pytest.fixture(scope='module')
def run(theirs, tmp_path_factory):
  """A class's model as a run."""
  path = tmp_path_factory.mktemp('run') / 'run'
  importing.import_model(f'hf:{theirs}', path)
  return path


@mutation('_name(meta["source"])', 'meta["source"]')
def test_what_went_in_comes_out(run, theirs, tmp_path):
  import safetensors.numpy
  from huggingface_hub import ModelCard

  said = exporting.export(run, tmp_path / 'out')
  assert said['step'] == 0 and json.loads((tmp_path / 'out' / 'parity.json').read_text()) == said
  before = safetensors.numpy.load_file(theirs / 'model.safetensors')
  after = safetensors.numpy.load_file(tmp_path / 'out' / 'model.safetensors')
  assert before.keys() == after.keys()
  assert all(np.array_equal(after[name], x) for name, x in before.items())
  card = (tmp_path / 'out' / 'README.md').read_text()
  assert '| class | `BertForPreTraining` |' in card and 'pipeline_tag' not in card
  assert f'| converted from | `hf:{theirs.name}` |' in card and str(theirs) not in card
  hub = dict(library_name='transformers', tags=['bertjax'])
  assert ModelCard(card).data.to_dict() == hub  # no folder's name is a name of the hub


@mutation('if state is not None and not ', 'state = weights.read(directory)\n  if not ')
def test_a_file_that_transformers_does_not_read_is_no_export(tmp_path, monkeypatch):
  """All names of a GPT-2 begin alike, as if a trainer had wrapped them."""
  torch_models.save('GPT2LMHeadModel', tmp_path / 'theirs')
  run = importing.import_model(f'hf:{tmp_path}/theirs', tmp_path / 'run') and tmp_path / 'run'
  write_file = weights._write_file

  def wrong(file, shapes, stream, dtype):
    named = ((f'wrong.{name}', x) for name, x in stream)
    found = write_file(file, {f'wrong.{name}': x for name, x in shapes.items()}, named, dtype)
    return {name.removeprefix('wrong.'): digest for name, digest in found.items()}

  monkeypatch.setattr(weights, '_write_file', wrong)
  with pytest.raises(UserError, match='missing keys'):
    exporting.export(run, tmp_path / 'out')


@pytest.mark.parametrize(
  ('name', 'causal', 'task'),
  [
    ('XLMWithLMHeadModel', False, 'fill-mask'), ('XLMWithLMHeadModel', True, 'text-generation'),
    ('XLMModel', True, 'feature-extraction'),
    ('XLNetForQuestionAnswering', False, 'question-answering'),
  ],
)  # fmt: skip
@mutation("if causal and task == 'fill-mask' else", 'if False else', file='bertjax/export/card.py')
def test_the_hub_is_told_the_task_of_a_class(name, causal, task):
  assert card_lib._task(name, causal) == task


@mutation("name.replace('--', '/') for name in cached", 'name for name in cached')
@pytest.mark.parametrize(
  'source, base',
  [
    ('hf:/home/me/bert-base', ''), ('tf1:up/uncased/', ''),
    ('hf:/c/models--google-bert--uncased/snapshots/86b5', 'google-bert/uncased'),
    ('hf:/c/models--gpt2/snapshots/86b5/', 'gpt2'), ('runs/mine', ''), ('', ''),
  ],
)  # fmt: skip
def test_a_card_names_the_model_that_a_run_began_from(source, base):
  assert card_lib._base(source) == base


@mutation("of_task = part == 'eval' or run.config.data.task", 'of_task = True', case='of a probe')
@mutation('if dataset and metric in scores', 'if metric in scores', case='of a language model')
@mutation('    if dataset and metric in scores', '    if False', case='of a task')
@mutation('of_task and math.isfinite(value)', 'of_task', case='of a language model')
@pytest.mark.parametrize(
  ('task', 'dev', 'best', 'scores', 'metrics'),
  [
    (dict(name='text'), '/c/datasets--stanfordnlp--sst2/snapshots/1/dev.tsv', 'eval/dev/mcc',
     {'eval/dev/f1': 0.5, 'eval/dev/mcc': 0.93456, 'eval/dev/cut': 8.0},
     [('f1', 0.5), ('matthews_correlation', 0.9346)]),
    ({}, '', 'eval/perplexity', {'eval/perplexity': 9.5, 'eval/mlm': 2.25, 'eval/f1': np.nan},
     [('perplexity', 9.5)]),
    ({}, '', 'eval/mlm', {'eval/linear_probe/accuracy': 0.5}, None),
  ],
  ids=['of a task', 'of a language model', 'of a probe'],
)  # fmt: skip
def test_the_hub_reads_scores_and_datasets(task, dev, best, scores, metrics, tmp_path, monkeypatch):
  """By the hub's own readers of cards and results; the metadata names what paths and URLs tell."""
  import yaml
  from huggingface_hub import parse_eval_result_entries
  from huggingface_hub.repocard_data import model_index_to_eval_results
  from ml_collections import ConfigDict

  data = dict(
    input='https://huggingface.co/datasets/wiki/small/resolve/main/a.txt', mixture='', store='',
    languages=('en',), task=task, train='hf://datasets/me/set@main/a.tsv', dev=dev,
  )  # fmt: skip
  config = ConfigDict(
    dict(name='mine', data=data, evals=dict(dev=dict(file='')), best=dict(metric=best))
  )
  run = types.SimpleNamespace(workdir=tmp_path, config=config, scores=scores)
  facts = card_lib._facts(run, 'text-classification')
  assert facts['language'] == ('en',) and facts['datasets'] == ['me/set', 'wiki/small']
  monkeypatch.setattr(card_lib, 'card', lambda *_: '')
  card_lib.write(tmp_path, run, None, {})
  written = {path.name: yaml.safe_load(path.read_text()) for path in tmp_path.glob('.eval*/*')}
  assert written.keys() == ({'dev.yaml'} if dev else set())
  for (entry,) in map(parse_eval_result_entries, written.values()):
    assert (entry.dataset_id, entry.value) == ('stanfordnlp/sst2', 0.9346)
  if metrics is None:
    assert not facts['model-index']
    return
  name, found = model_index_to_eval_results(facts['model-index'])
  assert name == 'mine' and [(x.metric_type, x.metric_value) for x in found] == metrics
  assert found[0].dataset_type == ('stanfordnlp/sst2' if dev else 'mine')


@mutation(" + ledger['open']['real']", '', file='bertjax/export/card.py')
def test_a_card_counts_the_tokens_behind_the_last_line_of_the_log(run, monkeypatch):
  meta = dict(ledger=dict(total=dict(real=1000.0), open=dict(real=24.0)))
  monkeypatch.setattr(runs.Run, 'meta', meta)
  said, opened = dict(model_class='BertForMaskedLM', tensors=[], versions={}), runs.open_run(run)
  opened = opened._replace(checkpoint=opened.checkpoint.parent / '5')
  assert '| tokens seen | 1,024 |' in card_lib.card(opened, opened.config.model, said)


@mutation('(?!{of_file})', '', case='no owner')
@mutation("r'[^/@,+", "r'[^/@+", case='at the end')
@pytest.mark.parametrize(
  ('text', 'names'),
  [
    ('https://huggingface.co/datasets/squad/resolve/main/dev.json', ['squad']),
    ('en=https://huggingface.co/datasets/c/c4,de=b.txt hf://datasets/a/b@x/y', ['a/b', 'c/c4']),
  ],
  ids=['no owner', 'at the end'],
)
def test_a_card_names_the_datasets_of_urls(text, names):
  assert card_lib._hub('datasets', text) == names


@pytest.mark.parametrize('offset', [0, 3])
@mutation('if move > 0 else table_TE[-move:]', 'if move > 0 else table_TE[:move]', case='3')
def test_positions_that_begin_elsewhere_than_behind_the_pad_token(offset, tmp_path):
  """transformers counts from the id of [PAD], 0 here, and says the same of the same texts."""
  made = used_models.make(tmp_path, 'roberta', position_offset=offset)
  said = exporting.export(made.workdir, tmp_path / 'out')
  assert all(found['ok'] for found in said['outputs']['differences'])
  assert json.loads((tmp_path / 'out' / 'config.json').read_text())['pad_token_id'] == 0
  importing.import_model(f'hf:{tmp_path / "out"}', tmp_path / 'back')
  back = runs.open_run(tmp_path / 'back')
  model = back.config.model
  assert model.position_offset == 1 and model.positions == made.model.positions + 1 - offset
  table_TE, given_TE = (
    np.asarray(each.params()['embeddings']['position'])
    for each in (back, runs.open_run(made.workdir))
  )
  np.testing.assert_array_equal(table_TE[1:], given_TE[offset:])


@mutation('    if wrong:\n      kept', '    if False:\n      kept')
def test_an_export_that_says_something_else_is_not_left_looking_finished(
  run, tmp_path, monkeypatch
):
  honest = exporting.parity.ours

  def wrong(model, params, inputs):
    found = honest(model, params, inputs)
    return found._replace(hidden=[h + 1e-3 for h in found.hidden])

  monkeypatch.setattr(exporting.parity, 'ours', wrong)
  with pytest.raises(UserError, match='hidden state 1 is off by 1.0.e-03'):
    exporting.export(run, tmp_path / 'out')
  assert not (tmp_path / 'out').exists() and not (tmp_path / 'out.partial').exists()
  assert (tmp_path / 'out.failed' / 'parity.json').exists()


@mutation("  if model.family == 'none':", '  if not model.family:')
@mutation('if foreign.is_source(str(workdir)):', 'if False:')
def test_bad_input_writes_nothing(run, theirs, tmp_path):
  full, out, one = tmp_path / 'full', tmp_path / 'out', run / 'checkpoints' / '0'
  full.mkdir()
  (full / 'x').touch()
  for door, given, message in (
    (exporting.export, (run, full), 'full exists and is no empty directory'),
    (importing.import_model, (f'hf:{theirs}', full), 'full exists and is no empty directory'),
    (exporting.export, (tmp_path / 'no', out), 'nothing at .*; expected the workdir of a run'),
    (exporting.parts_of, (cases.config('elmo').model,), "name='elmo': .* awd_lstm --to=orig"),
    (exporting.export, (f'hf:{theirs}', out), 'workdir of a run, got hf:.*--from=FORMAT .* makes'),
    (exporting.export, (run, out, 7), r'has no checkpoint of step 7: expected one of \[0\]'),
    (exporting.export, (one, out, 7), 'is a checkpoint, and step=7 was asked for'),
    (exporting.export, (one, out, 'best'), 'is a checkpoint, and step=best was asked for'),
    (exporting.export, (run, out, 'best'), 'no checkpoint of .* has a score eval/mlm_masked'),
    (importing.import_model, (f'onnx:{theirs}', out), "one of bilm, fairseq, .*hf, .*'onnx'"),
    (importing.import_model, ('hf:/no/such/place', out), '--input: there is nothing at'),
  ):
    with pytest.raises(UserError, match=message):
      door(*given)
  assert sorted(p.name for p in tmp_path.iterdir()) == ['full']


@mutation('if flags.FLAGS[name].present', 'if False', file='bertjax/convert.py')
@pytest.mark.parametrize(
  'flags, message',
  [
    (('--from=onnx', '--input=x', '--output=y'), "--from: expected one of .*, got 'onnx'"),
    (
      ('--to=hf', '--workdir=x', '--output=y', '--step=last'),
      "--step: expected a number or 'best'",
    ),
    (
      ('--from=hf', '--input=x', '--output=y', '--task=a', '--notokenizer'),
      '--from takes no --task, --tokenizer: they are of --to',
    ),
    (('--to=hf', '--workdir=x', '--output=y', '--input=z'), '--to takes no --input: they are of'),
    (
      ('--to=onnx', '--workdir=x', '--output=y', '--dtype=bfloat16', '--shard_mb=9'),
      '--to=onnx takes no --dtype, --shard_mb: they are of --to=hf',
    ),
    (('--table=bert', '--output=y'), '--table takes no --output: they are of'),
  ],
  ids=str,
)
def test_flags_that_say_too_little_are_refused_in_one_line(flags, message, tmp_path):
  done = forks.run('bertjax.convert', *flags)
  assert done.returncode == 1 and re.search(message, done.stderr), done.stderr
  assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize(
  ('text', 'shown'),
  [
    ('tfds:wikipedia/20230601.de', 'tfds:wikipedia/20230601.de'),
    ('gs://bucket/text/*.txt', 'gs://bucket/text/*.txt'),
    ('en=/home/a/*.txt,de=b/*.txt', 'en=*.txt,de=*.txt'),
    ('en-de=a/x.en.gz+b/x.de.gz', 'en-de=x.en.gz+x.de.gz'),
  ],
)
@mutation("('tfds:', 'seqio:')", "('tfd:', 'seqio:')")
@mutation("r'[^,=+]+'", "r'[^,=]+'")
def test_a_card_names_data_without_the_folders_of_a_machine(text, shown):
  assert card_lib._name(text) == shown
