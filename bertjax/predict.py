"""Uses a trained model on texts: python -m bertjax.predict --workdir=RUN --text='a [MASK].'

  --mode=fill      the likeliest tokens for each [MASK], --top of them
  --mode=score     how likely each text is: pseudo-perplexity, of causal models perplexity
  --mode=replaced  for each token the probability that another stood there (ELECTRA)
  --mode=label     the class or number of each text, of a model that was fine-tuned; of it and
                   those of --beside the mean of the probabilities (ULMFiT: forward and backward)
  --mode=tag       the tag of each word, of a model that was fine-tuned on tags; with --json the
                   characters of each entity, too, where tags begin with B- and I-
  --mode=choose    the right one of the choices of each question, likewise
  --mode=answer    the answer to each question on a text, of a model that was fine-tuned on such

Without --mode a fine-tuned model takes its task's mode; other models take fill if the first text
has a [MASK], else replaced if they can, else score. Texts come from --text, or one a line
from --input; of mode label --input is a table with the columns of the task, .tsv, .csv or .jsonl,
and a pair is --text and --second; of mode tag it is in the format of the run's own files, tags not
needed, and plain text is cut into words (bertjax/text/words.py); so it is of mode choose, right
answers not needed, which takes no --text. A model that was fine-tuned elsewhere does not say how
files look: its --input is one text a line. --json prints a JSON object for each text,
--glue the file that GLUE takes.

Questions on texts are --question, each with its --text or all with one, or --input=FILE.json in the
form of SQuAD. --predictions=FILE and --null_odds=FILE are written as its evaluation program takes
them. --soft_labels=FILE.jsonl is written of a table: its texts and labels with what the model says
of each class, from which a student learns (configs/distill/soft_labels.py).
"""

import json
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from absl import flags

from bertjax.config import command_line
from bertjax.errors import UserError, amount, door, writing
from bertjax.metrics.progress import Bar
from bertjax.text.sentences import blanks_in
from bertjax.text.words import cut as cut_words
from bertjax.use import flags as use_flags
from bertjax.use.answers import check_beside, tagged_text, together
from bertjax.use.flags import Part

_TEXT = flags.DEFINE_multi_string('text', None, 'A text; may be given several times.')
_TOP = flags.DEFINE_integer('top', 5, 'Candidates for each [MASK].', 1)
_SECOND = flags.DEFINE_multi_string('second', [], 'The second text of a pair, for each --text.')
_BESIDE = flags.DEFINE_multi_string('beside', [], 'Another run of the task: the mean is taken.')
_GLUE = flags.DEFINE_bool('glue', False, 'Print index and prediction, as GLUE takes them.')
_JSON = flags.DEFINE_bool('json', False, 'Print a JSON object for each text.')
_MODES = ['fill', 'score', 'replaced', 'label', 'tag', 'choose', 'answer']
_MODE = flags.DEFINE_enum('mode', None, _MODES, 'Prediction to make. Default: by model, text.')
_QUESTION = flags.DEFINE_multi_string('question', [], 'A question on each --text, or on one.')
_LONGEST = flags.DEFINE_integer('longest', None, "Tokens of an answer at most; the run's own.", 1)
_THRESHOLD = flags.DEFINE_float('threshold', None, "Odds above which none answers; the run's own.")
_PREDICTIONS = flags.DEFINE_string('predictions', None, 'File for the answers, by the ids.')
_NULL_ODDS = flags.DEFINE_string('null_odds', None, 'File for the odds of no answer, by the ids.')
_SOFT_LABELS = flags.DEFINE_string('soft_labels', None, 'File for what a student is to learn.')
flags.adopt_module_key_flags(use_flags)

# Texts; each is as many rows as tokens, with label and tag one, with choose as many as choices, and
# with answer a few.
_AT_ONCE = dict(fill=1024, score=128, replaced=1024, label=1024, tag=1024, choose=256, answer=1024)
# config.data.task.name -> mode
_OF_TASK = dict(classify='label', tags='tag', choice='choose', spans='answer')

# Flags that one mode alone reads.
_READ_BY = dict(
  top='fill', second='label', beside='label', glue='label', soft_labels='label', question='answer',
  longest='answer', threshold='answer', predictions='answer', null_odds='answer',
)  # fmt: skip


def _check_flags() -> None:
  if (_TEXT.value is None) == (use_flags.INPUT.value is None):
    raise UserError('expected texts: one of --text and --input')
  if _SECOND.value and len(_SECOND.value) != len(_TEXT.value or ()):
    raise UserError('--second is for pairs: expected one for each --text')
  files = dict(soft_labels=_SOFT_LABELS, predictions=_PREDICTIONS, null_odds=_NULL_ODDS)
  beside = [f'--{name}' for name, flag in dict(files, json=_JSON).items() if flag.value]
  if _GLUE.value and beside:
    raise UserError(f'--glue prints the file that GLUE takes: expected no {beside[0]} beside it')
  if _JSON.value and len(beside) > 1:
    raise UserError(f'--json is printed, and {beside[0]} is written instead: expected one of them')
  for name, flag in files.items():
    if flag.value and not (folder := pathlib.Path(flag.value).parent).is_dir():
      raise UserError(f'--{name}={flag.value}: there is no directory {folder}')
  if _QUESTION.value and len(_TEXT.value or ()) not in (1, len(_QUESTION.value)):
    raise UserError('--question: expected one --text for each question, or one for all')


def _parts(model: Any) -> Iterator[Part]:
  """Returns the texts that the flags name, in pieces that any mode can take at once."""
  if _TEXT.value is not None:
    if questions := list(_QUESTION.value):
      texts = _TEXT.value * (len(questions) // len(_TEXT.value))
      ids = [str(number) for number in range(1, len(questions) + 1)]
      return iter([Part(texts, 1, 1.0, questions, ids=ids)])
    return iter([Part(list(_TEXT.value), 1, 1.0, list(_SECOND.value))])
  mode = _of_task(model)
  if mode and _MODE.value in (None, mode):
    # The field of the task that says how its files look, which a model from elsewhere does not.
    named = dict(
      label=('text', use_flags.table_parts), tag=('words', use_flags.word_parts),
      choose=('form', use_flags.question_parts), answer=('name', use_flags.span_parts),
    )  # fmt: skip
    field, read = named[mode]
    if model.task.get(field):
      return read(model.task, _AT_ONCE[mode])
  return use_flags.parts(_AT_ONCE[_MODE.value or mode or 'score'])


def _of_task(model: Any) -> str:
  """Returns the mode of the task that the model was fine-tuned on; '' where it was not."""
  return _OF_TASK.get(model.task['name'], 'label') if model.task else ''


def _mode(model: Any, texts: list[str]) -> str:
  """Returns --mode, or else the mode for the first text and the model, which it prints."""
  if said := _MODE.value or _of_task(model):
    return said
  if any(blank in texts[0] for blank in blanks_in(model.vocabulary)):
    mode, why = 'fill', 'the first text has a blank'
  elif model.net.can('replaced'):
    mode, why = 'replaced', 'the model has a discriminator, and the first text no blank'
  else:
    mode, why = 'score', 'the first text has no blank'
  print(f'--mode={mode}: {why}', file=sys.stderr)
  return mode


def answers(model: Any, mode: str, part: Part, beside: Sequence[Any] = ()) -> list[dict[str, Any]]:
  """Returns a JSON object for each text, with what a `bertjax.Model` predicts in this mode, of
  labels together with those `beside` it."""
  # Files of GLUE and of soft labels have a line for each text, read as the run's evaluation does.
  cut = use_flags.CUT.value or _GLUE.value or bool(_SOFT_LABELS.value)
  keys = dict(cut=cut, first=part.first)
  if mode == 'fill':
    filled = model.fill(part.texts, _TOP.value, **keys)
    found = [dict(masks=[[c._asdict() for c in blank] for blank in blanks]) for blanks in filled]
  elif mode == 'replaced':
    judged = model.replaced(part.texts, **keys)
    found = [dict(tokens=[token._asdict() for token in tokens]) for tokens in judged]
  elif mode == 'tag':
    words = part.words or [cut_words(text) for text in part.texts]
    tagged = model.tag(words, **keys)
    found = [tagged_text(*each) for each in zip(part.texts, words, tagged, strict=True)]
  elif mode == 'choose':
    if not part.asked:
      raise UserError(
        '--mode=choose takes questions with their choices: expected --input and a run, which says '
        'how their file looks; of another model bertjax.Model.choose'
      )
    chosen = model.choose(part.asked, **keys)
    found = [
      dict(question=q.question, choices=list(q.choices), **each._asdict())
      for q, each in zip(part.asked, chosen, strict=True)
    ]
  elif mode == 'answer':
    if not part.ids:
      raise UserError('--mode=answer: expected a --question on each --text')
    limits = dict(longest=_LONGEST.value, threshold=_THRESHOLD.value)
    given = model.answer(part.seconds, part.texts, **limits)
    return [
      dict(id=name, question=question, answer=said.text, begin=said.begin,
           probability=said.probability, odds=said.odds)
      for name, question, said in zip(part.ids, part.seconds, given, strict=True)
    ]  # fmt: skip
  elif mode == 'label':
    each = [one.label(part.texts, part.seconds, **keys) for one in (model, *beside)]
    found = [together(labels)._asdict() for labels in zip(*each, strict=True)]
    if part.seconds:
      found = [dict(second=s, **each) for s, each in zip(part.seconds, found, strict=True)]
  else:
    pseudo = '' if model.net.model.causal else 'pseudo_'
    key_of = lambda name: name if name == 'tokens' else f'{pseudo}{name}'
    scores = [score._asdict() for score in model.score(part.texts, **keys)]
    found = [{key_of(name): x for name, x in score.items()} for score in scores]
  return [dict(text=text, **each) for text, each in zip(part.texts, found, strict=True)]


def shown(mode: str, answer: dict[str, Any]) -> str:
  """Returns an answer as lines for people; tags as columns, as files of them are."""
  if mode == 'tag':
    return ''.join(f'{w}\t{t}\n' for w, t in zip(answer['tokens'], answer['tags'], strict=True))
  if mode == 'answer':
    odds = '' if answer['odds'] is None else f', odds of no answer {answer["odds"]:.2f}'
    return f'{answer["question"]}\n  {answer["answer"]!r} {answer["probability"]:.3f}{odds}'
  if mode == 'fill':
    said = [
      '  '.join(f'{c["text"].strip() or c["token"]} {c["probability"]:.3f}' for c in m)
      for m in answer['masks']
    ]
  elif mode == 'replaced':
    said = ['  '.join(f'{token["token"]} {token["replaced"]:.3f}' for token in answer['tokens'])]
  elif mode == 'choose':
    pairs = zip(answer['probabilities'], answer['choices'], strict=True)
    said = [answer['question'], *(f'{p:.3f}  {choice}' for p, choice in pairs)]
  elif mode == 'label':
    likely = '  '.join(f'{name} {p:.3f}' for name, p in answer['probabilities'].items())
    said = [*([answer['second']] if 'second' in answer else []), likely or f'{answer["label"]:.4f}']
  else:
    name = next(key for key in answer if key.endswith('perplexity'))
    value = '-' if answer[name] is None else f'{answer[name]:.4f}'
    said = [f'{name.replace("_", "-")} {value} over {amount(answer["tokens"], "tokens")}']
  return '\n'.join([answer['text'], *(f'  {line}' for line in said)])


def glue_lines(found: list[dict[str, Any]], first: int) -> str:
  """Returns the lines of a file for GLUE, whose examples are counted from 0. Raises UserError:
  examples of any number of classes."""
  if any(isinstance(each['label'], list) for each in found):
    raise UserError('--glue: expected a model of one class an example, got any number of them')
  label = lambda each: each['label'] if each['probabilities'] else f'{each["label"]:.3f}'
  return '\n'.join(f'{number}\t{label(each)}' for number, each in enumerate(found, first - 1))


def _check_read(model: Any, mode: str) -> None:
  """Refuses flags that this mode does not read, and files that have nothing to hold."""
  for name, reader in _READ_BY.items():
    if flags.FLAGS[name].present and mode != reader:
      raise UserError(f'--{name} is for --mode={reader}, got {mode}: leave it out')
  if use_flags.CUT.value and mode == 'answer':
    raise UserError('--cut: --mode=answer reads long texts in windows: leave it out')
  table = use_flags.INPUT.value is not None and model.task.get('text')
  if _SOFT_LABELS.value and not table:
    raise UserError(
      '--soft_labels is of a table: expected --input=FILE and a run that was fine-tuned on classes '
      'or numbers'
    )
  if _SOFT_LABELS.value and model.task.get('several'):
    raise UserError('--soft_labels: expected a run on one class an example, got any number of them')
  if _NULL_ODDS.value and not model.task.get('no_answer'):
    raise UserError(
      '--null_odds: the model learned that every question has an answer; expected a run of '
      'configs/finetune/squad.py:v2, or no such file'
    )


def write_files(found: list[dict[str, Any]]) -> None:
  """Writes the answers, and the odds of none, or soft labels, to the files that the flags name."""
  if path := _SOFT_LABELS.value:
    with writing('the soft labels', path), open(path, 'w', encoding='utf-8') as file:
      file.writelines(f'{json.dumps(line, ensure_ascii=False)}\n' for line in found)
    return
  for path, key in ((_PREDICTIONS.value, 'answer'), (_NULL_ODDS.value, 'odds')):
    if path:
      values = {answer['id']: answer[key] for answer in found}
      with writing('the answers', path), open(path, 'w', encoding='utf-8') as file:
        file.write(json.dumps(values, indent=1, ensure_ascii=False) + '\n')


def main() -> None:
  """Prints what the model says of each text."""
  _check_flags()
  model, mode = use_flags.load(), ''
  if model.tasks:
    raise UserError(
      f'{model.source} was fine-tuned on several tasks: expected --task, one of '
      f'{", ".join(model.tasks)}'
    )
  beside = [use_flags.load(path) for path in _BESIDE.value]
  parts, kept = _parts(model), []
  with Bar('predict') as bar:
    for part in parts:
      if not mode:
        mode = _mode(model, part.texts)
        _check_read(model, mode)
        check_beside(model.task, zip(_BESIDE.value, beside, strict=True))
        if _GLUE.value:
          print('index\tprediction')
      for each in (model, *beside):
        each.runner.expect(part.done)
      found = answers(model, mode, part, beside)
      if _GLUE.value:
        print(glue_lines(found, part.first))
      elif _SOFT_LABELS.value:
        # The lines of the table, with the probability of each class or the number.
        for columns, answer in zip(part.columns, found, strict=True):
          kept.append(dict(columns, soft_label=answer['probabilities'] or answer['label']))
      elif _PREDICTIONS.value or _NULL_ODDS.value:
        kept += found
      else:
        for answer in found:
          print(json.dumps(answer, ensure_ascii=False) if _JSON.value else shown(mode, answer))
      sys.stdout.flush()
      done = part.first + len(part.texts) - 1
      bar.show(f'{amount(done, "texts")}, {done / bar.seconds:,.0f} texts/s', part.done)
  if not mode:
    raise UserError(f'--input={use_flags.INPUT.value} has no texts: expected one at least')
  write_files(kept)


if __name__ == '__main__':
  with door('bertjax.predict'):
    command_line.run(main, 'bertjax.predict')
