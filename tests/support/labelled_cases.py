"""Runs of fine-tuning on a few examples, one for each kind of task and of head."""

import importlib
import json

import task_files
import toy_questions
from ml_collections import ConfigDict

from bertjax.config import sections
from bertjax.examples import readers

SMALL = dict(layers=2, width=64, heads=8, ffn=128)
STARS = {'data.task.label': 'stars', 'data.task.classes': ('bad', 'good')}
POINTS = {'data.task.text': ('left', 'right'), 'data.task.label': 'points'}
# Of pairs a class: the number of `points`, 0.0 or 1.0.
PAIRS = POINTS | {'data.task.classes': ('0.0', '1.0')}
NAMES = {'data.task.classes': ('PER', 'LOC')}
CHOICES = {
  'data.task.context': 'text', 'data.task.choices': ('list',), 'data.task.label': 'right',
  'data.task.question': '', 'data.task.answer': 'letter',
}  # fmt: skip
RECURRENT = {'model.layers': 3, 'model.cells': 96, 'model.chunk': 16, 'model.pooled': 16}
RECURRENT |= {'model.backward': True, 'total_steps': 520}  # for phases of ten
SPELLED = {'model.cell': 32, 'model.characters': 20, 'model.filters': ((1, 16), (3, 32))}
ASKED = {'length': 32, 'data.task.stride': 16, 'data.task.question': 2}
# Name -> recipe, folder of its files, fields of its config.
CASES = {
  'texts': ('text:classes', 'stars', STARS),
  'pairs': ('text:classes', 'points', PAIRS),
  'numbers': ('text:number', 'points', POINTS),
  'tags': ('tagging:ner', 'names', NAMES),
  'choices': ('choice:swag', 'choices', CHOICES),
  'questions': ('squad:v1', 'answered', ASKED),
  'questions without answers': ('squad:v2', 'asked', ASKED),
  'questions, ends behind starts': (
    'squad:v2', 'asked', ASKED | {'model.answers': 'xlnet', 'model.token_labels': ()},
  ),
  'questions, as ELECTRA': (
    'squad:v2', 'asked', ASKED | {'model.answers': 'electra', 'model.token_labels': ()},
  ),
  'texts, pooled': ('ulmfit:classes', 'stars', STARS | RECURRENT),
  'written': (
    'write:t5', 'stars', {'data.task.read': 'stars: {text}', 'data.task.write': 'stars',
    'data.task.target_length': 8, 'model.head_size': 8, 'model.tied': False},
  ),
  'written, framed': (
    'write:bart', 'stars', {'data.task.read': 'stars: {text}', 'data.task.write': 'stars',
    'data.task.target_length': 8, 'model.positions': 64},
  ),
  'features of a frozen encoder': ('probe:ner', 'names', NAMES),
  'features of ELMo': ('elmo:ner', 'names', NAMES | SPELLED),
}  # fmt: skip


def write(folder):
  """The files of all cases, and a vocabulary for each; returns the folder."""
  task_files.write(folder)
  pieces = (folder / 'vocab.txt').read_text()
  for name in ('stars', 'points', 'names'):
    (folder / name / 'vocab.txt').write_text(pieces)
  for name, unanswered in (('asked', 0.3), ('answered', 0.0)):
    (folder / name).mkdir()
    toy_questions.write(folder / name, unanswered)
  _write_choices(folder / 'choices')
  return folder


def _write_choices(folder):
  """Three choices each, of which the right one has a word of its own."""
  folder.mkdir()
  words = ('a', 'house', 'red', 'blue', 'green', 'the', 'is')
  pieces = ('[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', *words)
  (folder / 'vocab.txt').write_text('\n'.join(pieces) + '\n')
  choices = ['a red house', 'a blue house', 'a green house']
  for name, count in (('train', 48), ('dev', 16)):
    turned = lambda n: [choices[(n + k) % 3] for k in range(3)]
    rows = [dict(text='the house is', list=turned(n), right='ABC'[-n % 3]) for n in range(count)]
    (folder / f'{name}.jsonl').write_text('\n'.join(map(json.dumps, rows)) + '\n')


def config(name: str, files, **fields) -> ConfigDict:
  """A run of a case, of 8 examples a step, dropout on."""
  recipe, folder, own = CASES[name]
  module, _, argument = recipe.partition(':')
  c = importlib.import_module(f'configs.finetune.{module}').get_config(argument)
  sections.complete(c)
  c.model.update({key: value for key, value in SMALL.items() if key in c.model})
  c.update(dict(batch_size=8, length=40, epochs=0.0, total_steps=20))
  c.data.length_block = 1  # so that most batches have the longest rows
  (train,), (dev,) = ((files / folder).glob(f'{part}.*') for part in ('train', 'dev'))
  c.data.train, c.data.dev = str(train), str(dev)
  c.data.vocab = str(files / folder / 'vocab.txt')
  c.update_from_flattened_dict(own | fields)
  return c


def ensured(c: ConfigDict, workdir) -> str:
  """What the reader of a config opens."""
  return readers.of(c.data).ensure(c.data, c.seed, str(workdir))
