"""`predict` and `embed` as a user calls them."""

import json
import os
import subprocess
import sys
import types

import forks
import numpy as np
import processes
import pytest
import used_models
from mutation import mutation

from bertjax.errors import UserError
from bertjax.use import answers, neighbours


@pytest.fixture(scope='module')
def bert(tmp_path_factory):
  return used_models.make(tmp_path_factory.mktemp('bert'), 'bert').workdir


def process(*command):
  env = processes.environment()
  return subprocess.run(command, capture_output=True, text=True, cwd=processes.ROOT, env=env)


def run(command, *arguments, given=''):
  env = processes.environment()
  return forks.run(f'bertjax.{command}', *arguments, cwd=processes.ROOT, env=env, given=given)


def test_predict_fills_blanks_as_lines_and_as_json(bert):
  done = run('predict', f'--workdir={bert}', '--text=w9 [MASK] w10', '--top=3', '--json')
  assert done.returncode == 0, done.stderr
  assert done.stderr.splitlines()[0] == '--mode=fill: the first text has a blank'
  (line,) = used_models.json_lines(done.stdout)
  (expected,) = used_models.load(bert).fill(['w9 [MASK] w10'], top=3)[0]
  assert line['text'] == 'w9 [MASK] w10'
  assert [c['id'] for c in line['masks'][0]] == [c.id for c in expected]
  assert line['masks'][0][0]['probability'] == pytest.approx(expected[0].probability, rel=1e-4)


@mutation("if wrong := wrong_with(line, 'strict'):", "if wrong := '':")
@mutation('chunk[0].removeprefix(codecs.BOM_UTF8)', 'chunk[0]')
def test_predict_scores_lines_of_standard_input(bert):
  arguments = ('predict', f'--workdir={bert}', '--input=-')
  done = run(*arguments, '--json', given='w9 w10\n\nw5 w6 w7')
  assert done.returncode == 0, done.stderr
  assert done.stderr.splitlines()[:2] == [
    'line 2 is empty: such lines are empty texts', '--mode=score: the first text has no blank',
  ]  # fmt: skip
  found = used_models.json_lines(done.stdout)
  assert [line['tokens'] for line in found] == [2, 0, 3] and found[1]['pseudo_perplexity'] is None
  shown = run(*arguments, given='\ufeffw9 w10\n')  # a mark of the bytes' order is no text
  assert shown.stdout.startswith('w9 w10\n  pseudo-perplexity ')
  damaged = run(*arguments, given='w9\nw9\0 w10\n')
  assert (
    damaged.stderr
    == 'bertjax.predict: -, line 2: a NUL byte, which no text has, at byte 2. Mend it\n'
  )


@mutation("if 'read' in model.task:", 'if False:', file='bertjax/generate.py')
@mutation("if 'write' in self.task:", 'if False:', file='bertjax/use/finetuned.py')
def test_what_learned_to_write_reads_the_columns_of_a_table(tmp_path):
  workdir = used_models.make(tmp_path, 't5', first=used_models.XLNET).workdir
  config = json.loads((workdir / 'config.json').read_text())
  task = dict(name='write', read='w9 {text} w8', write='target', target_length=8)
  config['config']['data']['task'] = dict(task, framed=False, header=[])
  (workdir / 'config.json').write_text(json.dumps(config))
  (tmp_path / 'in.tsv').write_text('text\nw10\nw11 w12\n')
  done = run('generate', f'--workdir={workdir}', f'--input={tmp_path}/in.tsv', '--new_tokens=4')
  assert done.returncode == 0, done.stderr
  model = used_models.load(workdir)
  found = model.generate(['w9 w10 w8', 'w9 w11 w12 w8'], 4)
  assert done.stdout.splitlines() == [text.text for text in found]
  with pytest.raises(UserError, match='was fine-tuned to write, not on labelled texts: `python -m'):
    model.label(['w10'])


def test_embed_writes_a_file_that_is_whole(bert, tmp_path):
  texts = used_models.texts(30, 20)
  (tmp_path / 'in.txt').write_text('\r\n'.join(texts))
  output = tmp_path / 'out.npy'
  arguments = (f'--workdir={bert}', f'--input={tmp_path}/in.txt', f'--output={output}')
  done = run('embed', *arguments, '--normalize')
  assert done.returncode == 0, done.stderr
  assert done.stderr.splitlines()[-1] == f'{output}: 30 texts, vectors of 64'
  want = used_models.load(bert).embed(texts)
  want /= np.linalg.norm(want, axis=1, keepdims=True)
  np.testing.assert_allclose(np.load(output), want, atol=1e-5)

  (tmp_path / 'in.txt').write_text('w9\n' + 'w9 ' * 99)
  done = run('embed', *arguments)
  assert done.returncode == 1 and done.stderr.startswith('bertjax.embed: text 2 has 101 tokens')
  assert len(done.stderr.splitlines()) == 1 and np.load(output).shape == (30, 64)
  assert sorted(os.listdir(tmp_path)) == ['in.txt', 'out.npy']


@mutation('    if sys.stdin is None:', '    if False:', file='bertjax/use/flags.py')
def test_standard_input_that_is_closed_is_named(bert):
  command = ('-m', 'bertjax.predict', f'--workdir={bert}', '--input=-')
  done = process('sh', '-c', 'exec "$@" <&-', 'sh', sys.executable, *command)
  said = '--input=-: standard input is closed: expected one text a line there'
  assert done.returncode == 1 and done.stderr == f'bertjax.predict: {said}\n'


@mutation('if model.tasks and not model.task:', 'if False:', file='bertjax/generate.py')
def test_a_table_asks_for_one_of_several_tasks():
  code = """
import types
from absl import flags
from bertjax import generate
flags.FLAGS(['generate', '--workdir=.', '--input=in.tsv'])
generate._columns(types.SimpleNamespace(tasks=('one', 'other'), task={}))
"""
  done = process(sys.executable, '-c', code)  # its flags are those of other commands
  assert 'in.tsv is a table, and of which task is not said: expected --task, one of one, other' in (
    done.stderr
  )


@mutation('if use_flags.CUT.value:', 'if False:', file='bertjax/generate.py')
@mutation(' and not temperature and order', ' and False and order', file='bertjax/generate.py')
@pytest.mark.parametrize(
  'arguments, message',
  [
    (('predict', '--text=a', '--input=-'), 'expected texts: one of --text and --input'),
    (('predict', '--input=nowhere.txt'), 'there is no file nowhere.txt: expected texts'),
    (('predict', '--text=a', '--json', '--predictions=p'), '--json is printed, and --predictions'),
    (('predict', '--text=a', '--mode=score', '--top=3'), '--top is for --mode=fill, got score'),
    (('predict', '--text=a', '--step=new'), "--step: expected a number or 'best', got 'new'"),
    (('generate', '--text=a', '--alpha=1'), '--alpha is for a search: expected --beams'),
    (('generate', '--text=a', '--seed=1'), '--seed is of draws: expected --temperature'),
    (('generate', '--text=a', '--cut'), '--cut: a prompt is read whole'),
    (('embed', '--input=-', '--output=out.txt'), '--output: expected a name that ends in .npy'),
    (
      ('embed', '--input=-', '--neighbours=', '--output=o.npy'),
      '--neighbours prints what it finds and takes no --output',
    ),
    (
      ('embed', '--input=none.txt', '--neighbours=a play of light'),
      '--neighbours: expected one word between asterisks',
    ),
  ],
)
def test_mistakes_are_one_line(bert, arguments, message):
  command, *rest = arguments
  done = run(command, f'--workdir={bert}', *rest)
  assert done.returncode == 1 and done.stderr.startswith(f'bertjax.{command}: {message}')
  assert len(done.stderr.splitlines()) == 1


@mutation('[0][own_n].mean(0)', '[0][own_n[0]]')
@mutation(
  '[text, before.rstrip(), before + word], cut)', '[text, before.rstrip(), before + word], True)'
)
def test_neighbours_of_a_word_of_several_pieces(tmp_path):
  pair = used_models.make(tmp_path, 'bert', first=(*used_models.BERT, 'w', '##x'))
  model, texts = used_models.load(pair.workdir), ['w9 wx w10', 'wx']
  found = neighbours.nearest(
    model,
    neighbours.parsed('w9 *wx* w11'),
    iter([types.SimpleNamespace(texts=texts, first=1)]),
    -1,
    False,
  )
  assert model.tokens(texts[:1]) == [['[CLS]', 'w9', 'w', '##x', 'w10', '[SEP]']]
  asked, *vectors = model.embed(['w9 wx w11', *texts], 'none')
  query = asked[2:4].mean(0)
  said = [(1, '*w9* w ##x w10'), (1, 'w9 *w* ##x w10'), (1, 'w9 w *##x* w10')]
  said += [(1, 'w9 w ##x *w10*'), (2, '*w* ##x'), (2, 'w *##x*')]
  near = [x @ query / np.linalg.norm(x) / np.linalg.norm(query) for v in vectors for x in v[1:-1]]
  wanted = sorted(((x, *each) for x, each in zip(near, said, strict=True)), reverse=True)
  assert [each[1:] for each in found] == [each[1:] for each in wanted]
  np.testing.assert_allclose([each[0] for each in found], [each[0] for each in wanted], atol=1e-5)
  long = neighbours.parsed(f'{"w9 " * 99}*wx*')
  for cut, message in ((False, 'text 1 has 103 tokens'), (True, "past the model's maximum")):
    with pytest.raises(UserError, match=message):
      neighbours.nearest(model, long, iter([]), -1, cut)


@mutation('np.mean([each.probabilities[name] for each in found])', 'found[0].probabilities[name]')
def test_labels_of_models_beside_each_other_have_the_mean_of_the_probabilities():
  of = lambda *p: answers.Label('', dict(zip('ab', p, strict=True)))
  found = answers.together([of(0.9, 0.1), of(0.2, 0.8)])
  assert found.label == 'a' and found.probabilities == pytest.approx(dict(a=0.55, b=0.45))
  assert answers.together([of(0.4, 0.6), of(0.2, 0.8)]).label == 'b'
  number = answers.together([answers.Label(1.0, {}), answers.Label(2.0, {})])
  assert number == answers.Label(1.5, {})


@mutation("{*task.get('classes', ())}", "task.get('classes', ())")
@mutation('(kind(task), {', "('', {")
def test_a_model_of_other_classes_beside_one_is_refused_by_its_path():
  task = lambda *classes, name='classify': dict(name=name, classes=classes)
  beside = lambda task: types.SimpleNamespace(task=task)
  answers.check_beside(task('a', 'b'), [('one', beside(task('b', 'a')))])
  for other in (task('a'), task(), task('a', 'b', name='tags'), {}):
    with pytest.raises(UserError, match='--beside=two has the task .* --workdir classify'):
      answers.check_beside(task('a', 'b'), [('two', beside(other))])
