"""A trained model, to be used: fill in blanks, score texts, find replaced tokens, embed.

  import bertjax

  model = bertjax.Model.load('runs/bert')
  model.fill(['the capital of [MASK] is paris.'])[0][0][0]    # Candidate('france', 2605, 0.93)
  model.score(['the cat sat.', 'cat the sat.'])
  model.embed(['the cat sat.', 'a dog barks.'])               # float32 [2, D]

Texts may be of any lengths and in any number: they are sorted into batches of few shapes, each of
which is compiled at its first use, and results come in the order of the texts.
"""

import functools
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np

from bertjax import sharding
from bertjax.data import sentences as sentences_lib
from bertjax.data.labelled import spans
from bertjax.data.labelled.common import questions, tag_sets, words
from bertjax.data.labelled.common import texts as pairs
from bertjax.data.labelled.common.questions import Question
from bertjax.data.sentences import Row
from bertjax.data.vocab.vocabulary import Vocabulary
from bertjax.errors import UserError, choose
from bertjax.evals.fill_mask import likeliest
from bertjax.evals.squad import decoding
from bertjax.objectives import lm
from bertjax.types import Array, Batch, Variables
from bertjax.use import labelled, nets
from bertjax.use import load as load_lib
from bertjax.use.answers import Answer, Candidate, Choice, Judged, Label, Pool, Score, Tag
from bertjax.use.batches import Runner
from bertjax.use.texts import Texts


class Model:
  """A trained model with its vocabulary, on a mesh; made by `load`.

  All that take texts take these too:
    cut: whether a text that is too long for the model is cut, which is said once, or refused.
    first: number of the first text, for messages.

  Attributes:
    source: where it was read from.
    vocabulary: of its texts.
    net: what it can do.
    task: what it was fine-tuned on, as `config.data.task` with the `length` of its rows; {} where
      it was not.
  """

  def __init__(
    self,
    source: pathlib.Path,
    net: nets.Net,
    texts: Texts,
    runner: Runner,
    task: Mapping[str, Any],
  ):
    self.source, self.net, self.task = source, net, task
    self._texts, self._runner = texts, runner

  @classmethod
  def load(
    cls,
    path: pathlib.Path | str,
    step: int | str | None = None,
    mesh: Any = None,
    language: str | int | None = None,
  ) -> 'Model':
    """Reads a model.

    Args:
      path: workdir of a run, one of its checkpoints, or a directory of transformers.
      step: of the run's checkpoint; 'best' by the run's `config.best`; None: the newest intact one.
      mesh: a `jax.sharding.Mesh`, or sizes as in `config.mesh`; None: all devices share the rows.
      language: of the texts, by name or number, where the model has a table of languages.

    Raises:
      UserError: no model there, a damaged one, or one that cannot read text; a mesh that does not
        fit; no language where one is needed.
    """
    found = load_lib.find(path, step)
    net = nets.make(found.model, found.vocabulary.special)
    tables = dict.fromkeys(net.tables, 0)
    if 'language' in tables:
      tables['language'] = load_lib.language_id(language, found.languages)
    named = language if isinstance(language, str) else None
    if named and found.vocabulary.check_language:
      found.vocabulary.check_language(named)
    devices = sharding.Devices(load_lib.make_mesh(mesh), found.rules)
    abstract = sharding.abstract(nets.shapes(net), devices.rules, devices.mesh)
    variables, made = found.read(abstract)
    net = nets.without(net, made)
    runner = Runner(variables, devices, net.frame, net.room, tables)
    return cls(
      found.source, net, Texts(found.source, found.vocabulary, net.frame, net.room, named), runner,
      found.task,
    )  # fmt: skip

  @property
  def vocabulary(self) -> Vocabulary:
    """Of its texts."""
    return self._texts.vocabulary

  def fill(
    self, texts: Sequence[str], top: int = 5, cut: bool = False, first: int = 1
  ) -> list[list[list[Candidate]]]:
    """The likeliest tokens for each blank of each text.

    Args:
      texts: each with one or more [MASK], or the vocabulary's own mask token.
      top: how many.
      cut, first: see the class.

    Raises:
      UserError: a model without a head for words, or a causal one; a text without a blank, or too
        long.
    """
    words = self._words('fill in blanks')
    if self.net.causal:
      raise UserError(
        f'{self.source} reads from left to right and sees nothing behind a blank: expected a '
        'masked model to fill it in; this one scores texts'
      )
    if top < 1:
      raise UserError(f'expected at least one candidate for each blank, got top={top}')
    found = self._texts.with_blanks(texts, cut, first)
    top = min(top, self.vocabulary.size)
    predict = lambda variables, carry, batch: dict(
      logits_BPV=lm.all_scores(words(variables, batch))
    )
    tops = likeliest(predict, top)
    rows = [Row(sentence.id_n, sentence.blanks) for sentence in found]
    answers = self._runner.run(('fill', top), lambda v, batch: tops(v, (), batch), rows)
    candidates = lambda prob_C, id_C: [
      Candidate(self._texts.piece(i), int(i), float(p)) for i, p in zip(id_C, prob_C, strict=True)
    ]
    return [
      [candidates(prob_PC[slot], id_PC[slot]) for slot in range(len(sentence.blanks))]
      for sentence, (prob_PC, id_PC) in zip(found, answers, strict=True)
    ]

  def label(
    self, texts: Sequence[str], seconds: Sequence[str] = (), cut: bool = False, first: int = 1
  ) -> list[Label]:
    """The class or number of each text, or pair of texts, by the task of a fine-tuned run.

    Args:
      texts: any number.
      seconds: of pairs the second texts, as many.
      cut, first: see the class; of a pair the longer text is cut.

    Raises:
      UserError: a model that was not fine-tuned, pairs where its task has single texts or the other
        way round, or a text that is too long.
    """
    if self.net.labels is None or 'text' not in self.task:
      raise UserError(
        f'{self.source} was not fine-tuned on labelled texts: expected a run of configs/finetune'
      )
    said = [texts, seconds] if seconds else [texts]
    if len(said) != len(self.task['text']) or any(len(x) != len(texts) for x in said):
      raise UserError(
        f'{self.source} was fine-tuned on {len(self.task["text"])} texts an example '
        f'({", ".join(self.task["text"])}): expected as many of each, got {list(map(len, said))}'
      )
    answers = self._label_logits('label', said, cut, first)
    return [labelled.label(logits_C, self.task['classes']) for logits_C in answers]

  def tag(
    self, sentences: Sequence[Sequence[str]], cut: bool = False, first: int = 1
  ) -> list[list[Tag]]:
    """The tag of each word of each sentence, by the task of a fine-tuned run.

    Args:
      sentences: of words.
      cut, first: see the class.

    Raises:
      UserError: a model that was not fine-tuned on tags, or a sentence that is too long.
    """
    if self.net.token_labels is None or 'scheme' not in self.task:
      raise UserError(
        f'{self.source} was not fine-tuned on tags: expected a run of configs/finetune/tagging.py'
      )
    room = self.net.room or 1 << 30
    found = words.rows(sentences, self.vocabulary, room)
    self._texts.check_rows([row.tokens for row in found], cut, first)
    heads = self.net.token_labels
    rows = [Row(row.id_n) for row in found]
    answers = self._runner.run('tag', lambda v, batch: heads(v, batch)['tag'], rows)
    scheme, classes = self.task['scheme'], self.task['classes']
    tags, unread = tag_sets.tags(scheme, classes), Tag(tag_sets.unread(scheme), None)
    read = [
      labelled.tags(x_TC[row.first_n], tags) for x_TC, row in zip(answers, found, strict=True)
    ]
    return [
      each + [unread] * (len(sentence) - len(each))
      for each, sentence in zip(read, sentences, strict=True)
    ]

  def choose(self, asked: Sequence[Question], cut: bool = False, first: int = 1) -> list[Choice]:
    """The likeliest choice of each question, by the task of a fine-tuned run.

    Args:
      asked: each with as many choices as the first.
      cut, first: see the class; of context and choice the longer is cut.

    Raises:
      UserError: a model that was not fine-tuned on multiple choice, another number of choices, or a
        text that is too long.
    """
    if self.net.labels is None or 'choices' not in self.task:
      raise UserError(
        f'{self.source} was not fine-tuned on multiple choice: expected a run of '
        'configs/finetune/choice.py'
      )
    parts = len(asked[0].choices) if asked else 1
    odd = next((each for each in asked if len(each.choices) != parts), None)
    if odd is not None:
      raise UserError(f'{odd.place}: expected {parts} choices, got {len(odd.choices)}')
    logits = self._label_logits('right', questions.pairs(asked), cut, first, parts)
    grouped = [np.concatenate(logits[n : n + parts]) for n in range(0, len(logits), parts)]
    return [labelled.choice(logits_G) for logits_G in grouped]

  def answer(
    self,
    questions: Sequence[str],
    texts: Sequence[str],
    longest: int = 30,
    best: int = 20,
    threshold: float = 0.0,
  ) -> list[Answer]:
    """The answer to each question in its text, which may be of any length, by a fine-tuned run.

    Args:
      questions: any number; what is longer than the task says is cut.
      texts: as many; the same one may be given again.
      longest: tokens of an answer at most.
      best: first and last tokens that are paired, see `evals/squad/decoding.py`.
      threshold: odds above which there is no answer, where that may be.

    Raises:
      UserError: a model that was not fine-tuned on questions, other than one text for each, or
        limits below 1.
    """
    if self.net.token_labels is None or self.task.get('name') != 'spans':
      raise UserError(
        f'{self.source} was not fine-tuned on questions: expected a run of '
        'configs/finetune/squad.py'
      )
    if len(questions) != len(texts) or min(longest, best) < 1:
      raise UserError(
        f'expected one text for each question, and limits of 1 at least; got {len(questions)} '
        f'questions, {len(texts)} texts, longest={longest} and best={best}'
      )
    windows, found = spans.ask(questions, texts, self.task, self.vocabulary)
    rows = [Row(window.id_n, second=window.column) for window in windows]
    heads = self.net.token_labels
    logits = self._runner.run('answer', lambda v, batch: heads(v, batch)['span'], rows)
    decoded = decoding.decode(windows, found, logits, decoding.Limits(best, longest))
    odds = threshold if self.task['no_answer'] else None
    return [labelled.answer(each, odds) for each in decoded]

  def score(self, texts: Sequence[str], cut: bool = False, first: int = 1) -> list[Score]:
    """How likely each text is: see `Score`. The special tokens around it are not scored.

    Raises:
      UserError: a model without a head for words, or without a mask token; a text that is too long.
    """
    words, mask = self._words('score texts'), self._texts.mask
    found = self._texts.plain(texts, cut, first)
    if self.net.causal:
      rows = [[sentences_lib.continued(sentence)] for sentence in found]
    elif mask is None:
      raise UserError(
        f'{self.source} is scored token by token behind the mask token, which its vocabulary has '
        'none of: expected another vocabulary, or a causal model'
      )
    else:
      rows = [sentences_lib.blanked(sentence, mask) for sentence in found]

    def likelihood(variables: Variables, batch: Batch) -> Array:
      nll_BP, _ = lm.score(words(variables, batch), batch['target_BP'])
      return -jnp.sum(nll_BP * batch['weight_BP'], 1)

    values = iter(self._runner.run('score', likelihood, [row for each in rows for row in each]))
    scores = []
    for each in rows:
      total = math.fsum(float(next(values)) for _ in each)
      tokens = sum(len(row.columns) for row in each)
      scores.append(Score(total, tokens, math.exp(-total / tokens) if tokens else None))
    return scores

  def replaced(self, texts: Sequence[str], cut: bool = False, first: int = 1) -> list[list[Judged]]:
    """For each token of each text the probability that another stood there (ELECTRA).

    Raises:
      UserError: a model without a discriminator; a text that is too long.
    """
    judge = self.net.judge
    if judge is None:
      raise UserError(
        f'{self.source}, of config.model.name={self.net.name!r}, has no discriminator to find '
        'replaced tokens: expected an ELECTRA'
      )
    found = self._texts.plain(texts, cut, first)
    rows = [Row(sentence.id_n) for sentence in found]
    answers = self._runner.run('replaced', lambda v, batch: jax.nn.sigmoid(judge(v, batch)), rows)
    return [
      [
        Judged(self._texts.piece(number), int(number), float(prob))
        for number, prob in zip(s.id_n[s.begin : s.end], prob_T[s.begin : s.end], strict=True)
      ]
      for s, prob_T in zip(found, answers, strict=True)
    ]

  def embed(
    self,
    texts: Sequence[str],
    pool: Pool = 'mean',
    layer: int = -1,
    cut: bool = False,
    first: int = 1,
  ) -> Any:
    """Vectors of texts or of their tokens.

    Args:
      texts: any.
      pool: 'mean' of all tokens, special ones too; 'first' takes the token that stands for the
        text, [CLS], which XLNet has at the end; 'none' keeps the vectors of all tokens.
      layer: 0 is what enters the first layer, 1 its output; -1 the last one's, -2 that before.
      cut, first: see the class.

    Returns:
      float32 [texts, D]; with 'none' a list of float32 [tokens, D], special tokens included.

    Raises:
      UserError: no such layer, the 'first' of a causal model, a text that is too long or that has
        no token at all.
    """
    choose(pool, get_args(Pool), 'pool')
    number = nets.layer_number(self.net, layer)
    if pool == 'first' and self.net.causal:
      raise UserError(
        f'{self.source} reads from left to right, so its first token knows nothing of the text: '
        "expected pool='mean' or 'none'"
      )
    found = self._texts.plain(texts, cut, first)
    for place, sentence in enumerate(found, first):
      if not len(sentence.id_n):
        raise UserError(
          f'text {place} is empty, and the vocabulary of {self.source} puts no special token '
          'around it: expected one token at least'
        )
    rows = [Row(sentence.id_n) for sentence in found]
    vectors = functools.partial(nets.vectors, self.net, pool, number)
    answers = self._runner.run(('embed', pool, number), vectors, rows)
    if pool == 'none':
      return [x_TD[: len(s.id_n)] for x_TD, s in zip(answers, found, strict=True)]
    return np.stack(answers) if answers else np.zeros((0, self.net.width), np.float32)

  def tokens(self, texts: Sequence[str], cut: bool = False, first: int = 1) -> list[list[str]]:
    """The tokens whose vectors `embed` with pool='none' gives, as the vocabulary spells them."""
    found = self._texts.plain(texts, cut, first)
    return [[self._texts.piece(i) for i in sentence.id_n] for sentence in found]

  def _label_logits(
    self, name: str, said: Sequence[Sequence[str]], cut: bool, first: int, parts: int = 1
  ) -> list[np.ndarray]:
    """float32 logits [C] of a label of each text or pair of texts; `parts` of them are an example
    of the user's."""
    room = self.net.room or 1 << 30
    found = pairs.rows(said, self.vocabulary, room, self.task['separators'])
    sizes = [len(row.id_n) + row.cut for row in found]
    longest = [max(sizes[start : start + parts]) for start in range(0, len(sizes), parts)]
    self._texts.check_rows(longest, cut, first)
    second = lambda row: int(np.argmax(row.type_n)) if row.type_n.any() else 0
    rows = [Row(row.id_n, second=second(row)) for row in found]
    heads: Any = self.net.labels
    return self._runner.run(('label', name), lambda v, batch: heads(v, batch)[name], rows)

  def _words(self, what: str) -> nets.Words:
    if self.net.words is None:
      raise UserError(
        f'{self.source}, of config.model.name={self.net.name!r}, has no head for words and cannot '
        f'{what}: expected a model with one; this one embeds texts'
      )
    return self.net.words
