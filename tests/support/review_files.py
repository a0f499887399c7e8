"""Texts whose class is told by one word among others; long ones and short ones."""

import random

WORDS = {'good': ('fine', 'great', 'lovely'), 'bad': ('poor', 'awful', 'dull')}


def write(folder):
  """FOLDER/train.tsv, dev.tsv, vocab.txt, odd.tsv, which has a class of its own, and texts.tsv,
  those of train.tsv without their classes."""
  draw = random.Random(0)
  others = ['the', 'film', 'was', 'a', 'very', 'one', 'of', 'all']
  pieces = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', *others, *WORDS['good'], *WORDS['bad']]
  (folder / 'vocab.txt').write_text('\n'.join(pieces) + '\n')
  (folder / 'odd.tsv').write_text('stars\ttext\nGood\tthe film\n')
  for name, count in (('train', 200), ('dev', 50)):
    rows = ['stars\ttext']
    for _ in range(count):
      label = draw.choice(['good', 'bad'])
      words = [draw.choice(others) for _ in range(draw.choice([2, 5, 9, 30]))]
      words.insert(draw.randrange(len(words)), draw.choice(WORDS[label]))
      rows.append(f'{label}\t{" ".join(words)}')
    (folder / f'{name}.tsv').write_text('\n'.join(rows) + '\n')
    if name == 'train':
      (folder / 'texts.tsv').write_text('\n'.join(row.split('\t')[1] for row in rows) + '\n')
  return folder


def write_two_words(folder):
  """FOLDER/train.tsv, dev.tsv and vocab.txt: two words, two classes, all learned in few epochs."""
  (folder / 'vocab.txt').write_text('[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nfine\ndull\n')
  rows = ['fine\tgood', 'dull\tbad'] * 32
  for name in ('train', 'dev'):
    (folder / f'{name}.tsv').write_text('\n'.join(['text\tstars', *rows]) + '\n')
  return folder
