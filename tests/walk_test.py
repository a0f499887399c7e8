"""The walks of docs/finetune.md, from text to answers over HTTP, and of docs/generate.md, from text
to transformers' pipeline, as their readers type them."""

import collections
import json
import random
import re
import subprocess
import sys

import processes
import pytest

PAGE = (processes.ROOT / 'docs' / 'finetune.md').read_text()
WALK = re.search(r'## From your text(.*?)\n## ', PAGE, re.DOTALL)[1]
COMMANDS = re.findall(r'^    ((?:python|curl) (?:.*\\\n)*.*)$', WALK, re.MULTILINE)
SERVER = re.search(r'```python\n(.*?)```', WALK, re.DOTALL)[1]
# So little text wants a higher rate than the page's.
FAST = '--config.epochs=10 --config.optimizer.schedule.peak=1e-3'
SMALLER = {  # than what the page trains, so that it takes a minute; by the workdir
  'pretrained': '--config.total_steps=20 --config.batch_size=8 --config.length=32',
  'teacher': f'{FAST} --config.length=16',
  'student': f'{FAST} --config.length=16',
}
GOOD, BAD = ('lovely', 'bright', 'great'), ('dull', 'awful', 'weak')


def write_texts(folder):
  """Sentences with a word of GOOD or BAD each, as text and as examples."""
  draw = random.Random(0)
  plain = ['a', 'an', 'film.', *(f'word{n}' for n in range(20))]

  def sentence(words):
    around = [draw.choices(plain, k=draw.randint(0, 4)) for _ in range(2)]
    return ' '.join([*around[0], draw.choice(words), *around[1]])

  (folder / 'text').mkdir()
  for name in 'ab':
    documents = ['\n'.join(sentence(GOOD + BAD) for _ in range(6)) for _ in range(150)]
    (folder / 'text' / f'{name}.txt').write_text('\n\n'.join(documents) + '\n')
  for name, count in (('train', 600), ('dev', 100)):
    labels = draw.choices(['good', 'bad'], k=count)
    lines = [f'{sentence(GOOD if label == "good" else BAD)}\t{label}' for label in labels]
    (folder / f'{name}.tsv').write_text('\n'.join(['text\tlabel', *lines]) + '\n')


@pytest.mark.full
def test_the_walk_ends_with_an_answer(tmp_path):
  write_texts(tmp_path)
  *commands, serve, ask = COMMANDS
  assert serve == 'python serve.py &' and len(commands) == 7
  printed = [processes.typed(tmp_path, command, SMALLER) for command in commands]
  (tmp_path / 'serve.py').write_text(SERVER.replace('8000', str(port := processes.free_port())))
  environment = processes.environment() | dict(HF_HUB_OFFLINE='1')
  server = subprocess.Popen([sys.executable, 'serve.py'], cwd=tmp_path, env=environment)
  try:
    retry = '--retry 120 --retry-delay 1 --retry-connrefused --silent --noproxy localhost'
    for text, label in (('a great film.', 'good'), ('an awful film.', 'bad')):
      asked = ask.replace('8000', str(port)).replace('a great film.', text)
      (answer,) = json.loads(processes.typed(tmp_path, f'{asked} {retry}', SMALLER))
      assert answer['label'] == label and answer['score'] > 0.6
  finally:
    server.kill()
    server.wait()
  assert 'good' in printed[-2]
  offered = [line.strip() for said in printed for line in said.partition('Next:')[2].splitlines()]
  offered = [line for line in offered if line.startswith('python -m')]
  assert len(offered) == 8  # of one that is pretrained, and of teacher and student
  for number, command in enumerate(offered):
    meant = command.replace('=FILE', '=dev.tsv').replace('=DIR', f'=out{number}')
    processes.typed(tmp_path, meant, collections.defaultdict(str))


@pytest.mark.full
def test_a_pipeline_writes_what_the_run_writes(tmp_path):
  page = (processes.ROOT / 'docs' / 'generate.md').read_text()
  walk = re.search(r'## From your text(.*?)\n## ', page, re.DOTALL)[1]
  *commands, last = re.findall(r'^    (python (?:.*\\\n)*.*)$', walk, re.MULTILINE)
  assert last == 'python write.py' and len(commands) == 3
  write_texts(tmp_path)
  smaller = '--config.total_steps=20 --config.batch_size=8 --config.length=32'
  smaller = dict(gpt=f'{smaller} --config.data.train_vocab.size=400')
  ours = [processes.typed(tmp_path, command, smaller) for command in commands][1]
  (tmp_path / 'write.py').write_text(re.search(r'```python\n(.*?)```', walk, re.DOTALL)[1])
  theirs = processes.typed(tmp_path, last, smaller)
  assert len(ours) > len('The first season') + 5 and theirs.strip() == ours.strip()
