"""Sentences with entities of one or two words, some of which have several pieces."""

import random

NAMES = dict(PER=('anna', 'bob', 'carla'), LOC=('rome', 'oslo'))
SECOND = dict(PER='rossi', LOC='city')
OTHERS = ('the', 'a', 'sees', 'very', 'of', 'in')
PIECES = (
  '[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'an', '##na', 'bob', 'car', '##la', 'rome', 'os',
  '##lo', 'ross', '##i', 'city', *OTHERS,
)  # fmt: skip


def write(folder):
  """FOLDER/train.conll, dev.conll, vocab.txt, and odd.conll, which has a type of its own."""
  draw = random.Random(0)
  (folder / 'odd.conll').write_text('the O\noslo B-CITY\n')
  (folder / 'vocab.txt').write_text('\n'.join(PIECES) + '\n')
  for name, count in (('train', 150), ('dev', 40)):
    lines = []
    for _ in range(count):
      for _ in range(draw.choice([1, 2, 4])):
        lines += [f'{draw.choice(OTHERS)} O' for _ in range(draw.randint(1, 4))]
        kind = draw.choice(list(NAMES))
        lines.append(f'{draw.choice(NAMES[kind])} B-{kind}')
        lines += [f'{SECOND[kind]} I-{kind}'] * draw.randrange(2)
      lines.append('')
    (folder / f'{name}.conll').write_text('\n'.join(lines))
  return folder
