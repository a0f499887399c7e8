"""Three tasks of one vocabulary: a class of a text, a number of a pair of texts, tags of words."""

import random

import tagged_files
from finetune_runs import SIZE, main

GOOD, BAD = ('fine', 'great', 'lovely'), ('poor', 'awful', 'dull')
FILM = ('the', 'film', 'was', 'a', 'very', 'one', 'of', 'all')
RECIPE = 'configs/finetune/tasks.py'
KINDS = dict(stars='text', points='text:number', names='tagging:ner')
OWN = dict(
  stars={'label': 'stars', 'classes': ('bad', 'good')},
  points={'label': 'points', 'text': ('left', 'right')},
  names={'classes': ('PER', 'LOC')},
)


def write(folder):
  """FOLDER/NAME/train.* and dev.* of each task, FOLDER/vocab.txt, and FOLDER/few/train.tsv, half of
  the numbers."""
  draw = random.Random(0)
  said = lambda good: [*draw.choices(FILM, k=3), draw.choice(GOOD if good else BAD)]
  for name in (*OWN, 'few'):
    (folder / name).mkdir()
  for part, stars, points in (('train', 128, 64), ('dev', 40, 40)):
    rows = ['stars\ttext']
    for _ in range(stars):
      good = draw.randrange(2)
      rows.append(f'{"good" if good else "bad"}\t{" ".join(said(good))}')
    (folder / f'stars/{part}.tsv').write_text('\n'.join(rows) + '\n')
    rows = ['left\tright\tpoints']
    for _ in range(points):
      left, right = draw.randrange(2), draw.randrange(2)
      rows.append(f'{" ".join(said(left))}\t{" ".join(said(right))}\t{float(left == right)}')
    (folder / f'points/{part}.tsv').write_text('\n'.join(rows) + '\n')
    if part == 'train':
      (folder / 'few/train.tsv').write_text('\n'.join(rows[:33]) + '\n')
  tagged_files.write(folder / 'names')
  pieces = dict.fromkeys((*tagged_files.PIECES, *FILM, *GOOD, *BAD))
  (folder / 'vocab.txt').write_text('\n'.join(pieces) + '\n')
  return folder


def path(files, name, part):
  """The file of a task."""
  (found,) = (files / name).glob(f'{part}.*')
  return found


def flags(files, name):
  """The flags of a task: its files and columns."""
  key = f'--config.phases.{name}.data'
  own = [f'{key}.task.{field}={value}' for field, value in OWN[name].items()]
  return [f'{key}.{part}={path(files, name, part)}' for part in ('train', 'dev')] + own


def recipe(*names):
  """The config file with its argument."""
  return f'{RECIPE}:{",".join(f"{name}={KINDS[name]}" for name in names)}'


def command(files, workdir, *more, names=('stars', 'points')):
  """The command of a run."""
  return [
    *main(recipe(*names), workdir), *(flag for name in names for flag in flags(files, name)),
    f'--config.data.vocab={files}/vocab.txt', '--config.length=40', '--config.log_steps=1',
    '--config.epochs=6', '--config.optimizer.schedule.peak=1e-2', '--config.batch_size=16',
    *(f'--config.model.{key}={value}' for key, value in SIZE.items()), *more,
  ]  # fmt: skip


def config(files, *names):
  """The config of such a run, for tests that make it themselves; it lasts 20 steps."""
  from configs.finetune import tasks

  c = _small(tasks.get_config(recipe(*names).partition(':')[2]), files)
  for name in names:
    _read(c.phases[name].data, files, name)
  return c


def alone(files, name):
  """The config of a run on one of the tasks alone, with its own recipe and the same sizes."""
  from configs.finetune import tagging, text

  file, _, argument = KINDS[name].partition(':')
  c = _small(dict(text=text, tagging=tagging)[file].get_config(argument or None), files)
  _read(c.data, files, name)
  return c


def _small(c, files):
  c.model.update(SIZE)
  c.batch_size, c.length, c.total_steps, c.epochs = 16, 40, 20, 0.0
  c.data.vocab = str(files / 'vocab.txt')
  return c


def _read(data, files, name):
  data.train, data.dev = (str(path(files, name, part)) for part in ('train', 'dev'))
  data.task.update(OWN[name])
