"""Predictions of a fine-tuned model for its task: labels, tags, choices and answers.

A model from elsewhere answers by its head, with the names of its own classes.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bertjax.errors import UserError, amount
from bertjax.evals.squad import decoding
from bertjax.examples.labelled import spans
from bertjax.examples.labelled.common import questions, tagged
from bertjax.examples.labelled.common import texts as pairs
from bertjax.examples.labelled.common.questions import Question
from bertjax.text import words
from bertjax.text.sentences import Row
from bertjax.use import answers, nets
from bertjax.use.answers import Answer, Choice, Label, Tag
from bertjax.use.batches import Runner
from bertjax.use.texts import Texts, listed


class FineTuned:
  """The methods of a `bertjax.Model` that its task has; see there for `cut` and `first`."""

  source: pathlib.Path
  net: nets.Net
  task: Mapping[str, Any]
  tasks: tuple[str, ...]
  _texts: Texts
  runner: Runner

  def label(
    self, texts: Sequence[str], seconds: Sequence[str] = (), cut: bool = False, first: int = 1
  ) -> list[Label]:
    """Returns the class or number of each text, or pair of texts with as many `seconds`, by the
    task of a fine-tuned run; cut and first are as of `bertjax.Model`, and of a pair the longer text
    is cut. Raises UserError: a model that was not fine-tuned, pairs where its task has single texts
    or the other way round, or a text that is too long."""
    if not self.net.can('text') or 'text' not in self.task:
      raise self._unlearned('labelled texts', 'configs/finetune')
    texts, seconds = listed(texts, first), listed(seconds, first)
    said = [texts, seconds] if seconds else [texts]
    parts = len(self.task['text']) or len(said)
    if len(said) != parts or any(len(x) != len(texts) for x in said):
      raise UserError(
        f'{self.source} was fine-tuned on {amount(parts, "texts")} an example '
        f'({", ".join(self.task["text"])}): expected as many of each, got {list(map(len, said))}'
      )
    logits = self._label_logits('label', said, cut, first)
    if self.net.model.both_orders and seconds:  # the head has no bias: logits are summed as states
      turned = self._label_logits('label', said[::-1], cut, first)
      logits = [a + b for a, b in zip(logits, turned, strict=True)]
    how = self.task['classes'], bool(self.task.get('several'))
    return [answers.label(logits_C, *how) for logits_C in logits]

  def tag(
    self, sentences: Sequence[Sequence[str] | str], cut: bool = False, first: int = 1
  ) -> list[list[Tag]]:
    """Returns the tag of each word of each sentence, by the task of a fine-tuned run; one that is a
    text has the words of `bertjax.text.words.cut`. cut and first are as of `bertjax.Model`. Raises
    UserError: a model that was not fine-tuned on tags, or a sentence that is too long."""
    if not self.net.can('token') or 'scheme' not in self.task:
      raise self._unlearned('tags', 'configs/finetune/tagging.py')
    given = listed(sentences) if isinstance(sentences, str) else sentences  # refuses a text alone
    room, sentences = self._room, [words.cut(s) if isinstance(s, str) else listed(s) for s in given]
    found = pairs.word_rows(sentences, self._texts.vocabulary, room)
    self._texts.check_rows([row.tokens for row in found], room, cut, first)
    rows = [self._row(row.id_n) for row in found]
    before = int(self.net.frame.turned)  # tokens that stand one place earlier
    scores = lambda v, batch: self.net.read(v, batch)['token_label_BTC']['tag']
    logits = self.runner.run('tag', scores, rows)
    scheme, classes = self.task['scheme'], self.task['classes']
    tags, unread = tagged.tags(scheme, classes), Tag(tagged.unread(scheme), None)
    tagged_sentences = []
    for x_TC, row, sentence in zip(logits, found, sentences, strict=True):
      read = answers.tags(x_TC[row.first_n - before], tags)
      tagged_sentences.append(read + [unread] * (len(sentence) - len(read)))
    return tagged_sentences

  def choose(self, asked: Sequence[Question], cut: bool = False, first: int = 1) -> list[Choice]:
    """Returns the likeliest choice of each question, by the task of a fine-tuned run; cut and first
    are as of `bertjax.Model`, and of context and choice the longer is cut. Raises UserError: a
    model that was not fine-tuned on multiple choice, another number of choices than the first
    question has, or a text that is too long."""
    if not self.net.can('text') or 'choices' not in self.task:
      raise self._unlearned('multiple choice', 'configs/finetune/choice.py')
    parts = len(asked[0].choices) if asked else 1
    odd = next((each for each in asked if not each.choices or len(each.choices) != parts), None)
    if odd is not None:
      wanted = amount(parts, 'choices') if parts else 'choices'
      raise UserError(f'{odd.place}: expected {wanted}, got {len(odd.choices)}')
    logits = self._label_logits('right', questions.pairs(asked), cut, first, parts)
    grouped = [np.concatenate(logits[n : n + parts]) for n in range(0, len(logits), parts)]
    return [answers.choice(logits_G) for logits_G in grouped]

  def answer(
    self,
    questions: Sequence[str],
    texts: Sequence[str],
    longest: int | None = None,
    best: int | None = None,
    threshold: float | None = None,
  ) -> list[Answer]:
    """Returns the answer to each question, cut where it is longer than the task says, in its text,
    which may be of any length, by a fine-tuned run. `longest` are tokens of an answer, `best` first
    and last tokens that are paired (`evals/squad/decoding.py`), `threshold` the odds above which
    there is no answer, where that may be; None: as the run's own evaluation. Raises UserError: a
    model that was not fine-tuned on questions, other than one text for each, limits below 1, or
    none where the run has no evaluation of questions."""
    if not self.net.answers or self.task.get('name') != 'spans':
      raise self._unlearned('questions', 'configs/finetune/squad.py')
    limits = decoding.Limits(self._limit('best', best), self._limit('longest', longest))
    odds = self._limit('threshold', threshold)
    questions, texts = listed(questions), listed(texts)
    if len(questions) != len(texts) or min(limits) < 1:
      raise UserError(
        f'expected one text for each question, and limits of 1 at least; got {len(questions)} '
        f'questions, {len(texts)} texts, longest={limits.longest} and best={limits.best}'
      )
    cls_last = self.net.frame.turned
    windows, found = spans.ask(questions, texts, self.task, self._texts.vocabulary, cls_last)
    rows = [Row(window.id_n, second=self._second(window.type_n > 0)) for window in windows]
    said = self.runner.run('answer', self.net.spans, rows)
    decoded = decoding.decode(windows, found, said, limits)
    odds = odds if self.task['no_answer'] else None
    return [answers.answer(each, odds) for each in decoded]

  def _limit(self, name: str, given: Any) -> Any:
    """Returns the given limit, or that of the run's evaluation if None is given."""
    if given is None and name not in self.task:
      raise UserError(
        f'{self.source} has no evaluation of questions, which would say what may be an answer: '
        f'expected {name}'
      )
    return self.task[name] if given is None else given

  @property
  def _room(self) -> int:
    """Tokens that are read at most: as many as the run's own evaluation reads."""
    return min(self.net.room or 1 << 30, self.task['length'])

  def _unlearned(self, what: str, recipe: str) -> UserError:
    if self.tasks:
      return UserError(
        f'{self.source} was fine-tuned on several tasks, and none was chosen: expected '
        f'Model.load(.., task=NAME), one of {", ".join(self.tasks)}'
      )
    if 'write' in self.task:
      return UserError(
        f'{self.source} was fine-tuned to write, not on {what}: `python -m bertjax.generate` and '
        'Model.generate write its answers'
      )
    return UserError(f'{self.source} was not fine-tuned on {what}: expected a run of {recipe}')

  def _label_logits(
    self, name: str, said: Sequence[Sequence[str]], cut: bool, first: int, parts: int = 1
  ) -> list[np.ndarray]:
    """float32 logits [C] of a label of each text or pair of texts; `parts` of them are an example
    of the user's."""
    room = self._room
    found = pairs.rows(said, self._texts.vocabulary, room, self.task['separators'])
    sizes = [len(row.id_n) + row.cut for row in found]
    longest = [max(sizes[start : start + parts]) for start in range(0, len(sizes), parts)]
    self._texts.check_rows(longest, room, cut, first)
    rows = [self._row(row.id_n, self._second(row.type_n)) for row in found]
    scores = lambda v, batch: self.net.read(v, batch)['label_BGC'][name][:, 0]
    return self.runner.run(('label', name), scores, rows)

  def _second(self, type_n: np.ndarray) -> int:
    """Returns the column where the segment of the second text begins; 0: none does, or the
    tokenizer of a model from elsewhere gives it none."""
    return int(np.argmax(type_n)) if self.task.get('segments', True) else 0

  def _row(self, id_n: np.ndarray, second: int = 0) -> Row:
    """Returns a row that begins with [CLS], or as the model reads it, with that behind it."""
    if not self.net.frame.turned:
      return Row(id_n, second=second)
    return Row(np.roll(id_n, -1), second=max(second - 1, 0))
