"""Small files of questions on texts, whose answers can be learned in seconds."""

import json
import random

NAMES = ('ada', 'bob', 'eve', 'kim', 'max', 'zoe')
OTHERS = ('the', 'film', 'was', 'very', 'one', 'of', 'all', 'seen', 'by', 'at')


def write(folder, unanswered=0.3):
  """train.json and dev.json, vocab.txt, and text.txt of the same words; returns the folder."""
  draw = random.Random(0)
  pieces = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'who', ',', *NAMES, *OTHERS, '<eod>']
  (folder / 'vocab.txt').write_text('\n'.join(pieces) + '\n')
  for name, count in (('train', 300), ('dev', 60)):
    (folder / f'{name}.json').write_text(json.dumps(questions(draw, count, unanswered)))
  sentences = [draw.choices([*NAMES, *OTHERS], k=draw.randrange(5, 30)) for _ in range(300)]
  (folder / 'text.txt').write_text('\n\n'.join(map(' '.join, sentences)) + '\n')
  return folder


def questions(draw, count, unanswered):
  """The answer is the one name in the text, before a comma; a share of the texts has none."""
  paragraphs = []
  for number in range(count):
    words = [draw.choice(OTHERS) for _ in range(draw.choice([3, 8, 15, 40]))]
    answers = []
    if draw.random() < 1 - unanswered:
      place, name = draw.randrange(len(words) + 1), draw.choice(NAMES)
      begin = sum(len(word) + 1 for word in words[:place])
      words.insert(place, f'{name.title()},')
      answers = [dict(text=name.title(), answer_start=begin)]
    asked = dict(id=f'q{number}', question='who', answers=answers, is_impossible=not answers)
    paragraphs.append(dict(context=' '.join(words), qas=[asked]))
  return dict(data=[dict(title='all', paragraphs=paragraphs)])
