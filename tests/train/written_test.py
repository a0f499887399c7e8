"""The walk of docs/generate.md from pairs of texts to a T5 that answers, as its reader types it."""

import json
import random
import re

import finetune_runs
import processes
import pytest

PAGE = (processes.ROOT / 'docs' / 'generate.md').read_text()
WALK = re.search(r'## From pairs(.*?)\n## ', PAGE, re.DOTALL)[1]
COMMANDS = re.findall(r'^    (python (?:.*\\\n)*.*)$', WALK, re.MULTILINE)
SHORT = '--config.length=32 --config.batch_size=16 --config.evals.dev.batch_size=16'
SMALLER = dict(  # than the page's, so that it takes minutes; by the workdir
  pretrained='--config.total_steps=60 --config.eval_steps=60 --config.data.train_vocab.size=400',
  answers=f'{SHORT} --config.epochs=12',
  both=f'{SHORT} --config.epochs=1',
)
IS = dict(house='red', car='green', tree='green', door='white', bird='black', lamp='blue')


def write_files(folder):
  """Text, and questions whose answers are always the same."""
  draw = random.Random(0)
  syllables = [a + b for a in 'bcdfghklmnprstvw' for b in 'aeiou']
  words = [''.join(draw.choices(syllables, k=draw.choice([1, 2, 2, 3]))) for _ in range(400)]
  said = lambda count: ' '.join(draw.choices(words, k=count))
  line = lambda thing: f'the {thing} is {IS[thing]} . {said(8)}'
  (folder / 'text').mkdir()
  for name in 'ab':
    documents = ['\n'.join(line(draw.choice([*IS])) for _ in range(6)) for _ in range(150)]
    (folder / 'text' / f'{name}.txt').write_text('\n\n'.join(documents) + '\n')
  for name, count in (('train', 256), ('dev', 32)):
    asked = draw.choices([*IS], k=count)
    rows = [f'{said(2)} what is the {thing} ?\t{IS[thing]}' for thing in asked]
    (folder / f'{name}.tsv').write_text('\n'.join(['question\tanswer', *rows]) + '\n')
  rows = [f'{said(5)}\t{draw.choice(words)}' for _ in range(64)]
  (folder / 'titles.tsv').write_text('\n'.join(['text\ttitle', *rows]) + '\n')


@pytest.mark.full
def test_the_walk_ends_with_an_answer(tmp_path):
  write_files(tmp_path)
  pretrain, learn, ask, both = COMMANDS
  processes.typed(tmp_path, pretrain, SMALLER), processes.typed(tmp_path, learn, SMALLER)
  scores = finetune_runs.every(tmp_path / 'runs/answers', 'eval/dev/exact')
  assert scores[0] < 0.7 < 0.9 < max(scores)
  question = 'ba what is the lamp ?'
  asked = ask.replace('what is the capital of France?', question)
  assert processes.typed(tmp_path, asked, SMALLER).strip() == 'blue'
  rows = [line.split('\t') for line in (tmp_path / 'dev.tsv').read_text().splitlines()[1:]]
  (tmp_path / 'asked.txt').write_text(''.join(f'answer: {asked}\n' for asked, _ in rows))
  every = re.sub(r'--step=best --beams=4 --text=.*', '--input=asked.txt --json', ask)
  found = [
    json.loads(line)['text'] for line in processes.typed(tmp_path, every, SMALLER).splitlines()
  ]
  right = [text == answer for text, (_, answer) in zip(found, rows, strict=True)]
  assert sum(right) / len(right) == pytest.approx(scores[-1])  # as the run's own evaluation
  processes.typed(tmp_path, both, SMALLER)
  assert {f'eval/{name}/dev/rouge_l' for name in ('ask', 'short')} <= {
    key for line in processes.lines(tmp_path / 'runs/both') for key in line
  }
