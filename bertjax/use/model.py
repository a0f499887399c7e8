"""A trained model, to be used: fill in blanks, score texts, find replaced tokens, embed.

  import bertjax

  model = bertjax.Model.load('runs/bert')
  model.fill(['the capital of [MASK] is paris.'])[0][0][0]    # Candidate('france', 2605, 0.93, ..)
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

from bertjax import registry, sharding
from bertjax.errors import UserError, choose
from bertjax.evals.fill_mask import likeliest
from bertjax.examples.spelling import Speller
from bertjax.machine import compiled, copies
from bertjax.models.layers.contracts import PairModel
from bertjax.models.layers.decoding import Beams, Sampling
from bertjax.objectives import lm
from bertjax.text import sentences as sentences_lib
from bertjax.text.sentences import Row
from bertjax.types import Array, Batch, Variables
from bertjax.use import generate, nets
from bertjax.use import load as load_lib
from bertjax.use import vectors as vectors_lib
from bertjax.use.answers import Candidate, Judged, Pool, Score
from bertjax.use.batches import Runner
from bertjax.use.finetuned import FineTuned
from bertjax.use.texts import Texts, listed
from bertjax.vocab.vocabulary import Vocabulary


class Model(FineTuned):
  """A trained model with its vocabulary, on a mesh; made by `load`.

  All that take texts take these too:
    cut: whether a text that is too long for the model is cut, which is said once, or refused.
    first: number of the first text, for messages.

  Attributes:
    source: where it was read from.
    net: what it can do.
    task: what its head of labels is for, see `load.task_of`; {} without one.
    tasks: of a run on several, where `load` was told none of them; () of any other.
    runner: runs it on its devices.
  """

  def __init__(
    self,
    source: pathlib.Path,
    net: nets.Net,
    texts: Texts,
    runner: Runner,
    task: Mapping[str, Any],
    tasks: tuple[str, ...] = (),
    sentences: vectors_lib.Sentences = vectors_lib.MEAN,
  ):
    self.source, self.net, self.task, self.tasks = source, net, task, tasks
    self._texts, self.runner, self._sentences = texts, runner, sentences

  def __repr__(self) -> str:
    return f'bertjax.Model.load({str(self.source)!r})'

  def __reduce__(self) -> Any:
    raise TypeError(f'{self!r} lies on devices: give another process the path, to load it there')

  @classmethod
  def load(
    cls,
    path: pathlib.Path | str,
    step: int | str | None = None,
    mesh: Any = None,
    language: str | int | None = None,
    task: str = '',
    trust_code: Sequence[str] = (),
  ) -> 'Model':
    """Reads a model. Raises UserError: no model there, a damaged one, or one that cannot read text;
    a mesh that does not fit; no language where one is needed; no such task.

    Args:
      path: workdir of a run, one of its checkpoints, a directory of transformers, or FORMAT:PATH.
      step: of the run's checkpoint; 'best' by the run's `config.best`; None: the newest intact one.
      mesh: a `jax.sharding.Mesh`, or sizes as in `config.mesh` or as --mesh has them; None: all
        devices share the rows.
      language: of the texts, by name or number, where the model has a table of languages, or cuts
        words by their rules; None: that of the examples that it was fine-tuned on, for the rules.
      task: whose head is meant, of a run on several; '': the encoder alone.
      trust_code: modules of somebody's own that the config of the run may name: they are imported.
    """
    compiled.keep(copies.cache())
    registry.TRUSTED.update(trust_code)
    found = load_lib.find(path, step, task)
    net = nets.make(found.model, found.vocabulary.special)
    tables = dict.fromkeys(net.model.tables, 0)
    if 'language' in tables:
      rows = dict(found.model.get('extra', ())).get('language')
      tables['language'] = load_lib.language_id(language, found.languages, rows)
    elif language is not None and not found.vocabulary.check_language:
      raise UserError(
        f'{found.source} has no table of languages, it reads them all alike: expected no language, '
        f'got {language!r}'
      )
    cut_by = found.language if language is None else language
    vocabulary = load_lib.in_language(found.vocabulary, cut_by, found.languages)
    devices = sharding.Devices(load_lib.make_mesh(mesh), found.rules)
    variables, made = found.read(sharding.abstract(nets.shapes(net), devices.rules, devices.mesh))
    net = nets.without(net, made)
    speller = Speller(vocabulary, most) if (most := net.model.spells) else None
    runner = Runner(variables, devices, net.frame, net.room, tables, speller)
    vocabulary = speller.vocabulary if speller else vocabulary
    return cls(
      found.source, net, Texts(found.source, vocabulary, net.frame, net.room), runner,
      load_lib.task_of(found, net.heads, net.room), found.tasks, found.sentences,
    )  # fmt: skip

  @property
  def vocabulary(self) -> Vocabulary:
    """The vocabulary that encodes its texts."""
    return self._texts.vocabulary

  def fill(
    self, texts: Sequence[str], top: int = 5, cut: bool = False, first: int = 1
  ) -> list[list[list[Candidate]]]:
    """Returns the likeliest tokens for each blank of each text. Raises UserError: a model without a
    head for words, or a causal one; a text without a blank, or too long.

    Args:
      texts: each with one or more [MASK], or the vocabulary's own mask token.
      top: how many.
    """
    self._require_words('fill in blanks')
    if self.net.model.causal:
      raise UserError(
        f'{self.source} reads from left to right and sees nothing behind a blank: expected a '
        'masked model to fill it in; this one scores texts'
      )
    if not isinstance(top, int) or top < 1:
      raise UserError(f'expected at least one candidate for each blank, got top={top}')
    found = self._texts.with_blanks(texts, cut, first)
    size = self.vocabulary.size  # the word table may have more rows, which no text has
    top = min(top, size)
    predict = lambda variables, carry, batch: dict(
      logits_BPV=lm.all_scores(self.net.words(variables, batch))
    )
    tops = likeliest(predict, top, size)
    rows = [Row(sentence.id_n, sentence.blanks) for sentence in found]
    answers = self.runner.run(('fill', top), lambda v, batch: tops(v, (), batch), rows)
    candidates = lambda prob_C, id_C: [
      Candidate(self._texts.piece(i), int(i), float(p), self._texts.text(i))
      for i, p in zip(id_C, prob_C, strict=True)
    ]
    return [
      [candidates(prob_PC[slot], id_PC[slot]) for slot in range(len(sentence.blanks))]
      for sentence, (prob_PC, id_PC) in zip(found, answers, strict=True)
    ]

  def score(self, texts: Sequence[str], cut: bool = False, first: int = 1) -> list[Score]:
    """Scores each text by its likelihood: see `Score`. Special tokens around it are not scored.
    Raises UserError: a model without a head for words, or without a mask token; a text that is too
    long."""
    self._require_words('score texts')
    mask, found = self._texts.mask, self._texts.plain(texts, cut, first)
    if self.net.model.causal:
      rows = [[sentences_lib.continued(sentence)] for sentence in found]
    elif mask is None:
      raise UserError(
        f'{self.source} is scored token by token behind the mask token, which its vocabulary has '
        'none of: expected another vocabulary, or a causal model'
      )
    else:
      rows = [sentences_lib.blanked(sentence, mask) for sentence in found]

    def likelihood(variables: Variables, batch: Batch) -> Array:
      nll_BP, _ = lm.score(self.net.words(variables, batch), batch['target_BP'])
      return -jnp.sum(nll_BP * batch['weight_BP'], 1)

    values = iter(self.runner.run('score', likelihood, [row for each in rows for row in each]))
    scores = []
    for each in rows:
      total = math.fsum(float(next(values)) for _ in each)
      tokens = sum(len(row.columns) for row in each)
      scores.append(Score(total, math.exp(-total / tokens) if tokens else None, tokens))
    return scores

  def generate(
    self,
    prompts: Sequence[str],
    new_tokens: int = 20,
    sampling: Sampling | None = None,
    beams: Beams | None = None,
    seed: int = 0,
    ends: bool = True,
    first: int = 1,
  ) -> list[generate.Text]:
    """Writes a text behind each prompt, or for each text that a model with a decoder reads. Raises
    UserError: a model that writes nothing, a prompt that leaves no room for the tokens, or numbers
    that make no sense.

    Args:
      new_tokens: at most.
      sampling: how tokens are drawn; None: the likeliest is taken.
      beams: a search of so many beams in place of it.
      seed: of the draws, from 0 to 2^31 - 1; a text depends on it, its number and its prompt alone.
      ends: whether a text ends with the vocabulary's end; else it has all the tokens.
      first: number of the first prompt, for messages.
    """
    if sampling is not None and beams is not None:
      raise UserError('tokens are drawn or searched: expected one of sampling and beams, got both')
    return generate.texts(
      self, prompts, new_tokens, beams or sampling or Sampling(), seed, ends, first
    )

  def replaced(self, texts: Sequence[str], cut: bool = False, first: int = 1) -> list[list[Judged]]:
    """For each token of each text the probability that another stood there (ELECTRA). Raises
    UserError: a model without a discriminator; a text that is too long."""
    if not self.net.can('replaced'):
      raise UserError(
        f'{self.source}, of config.model.name={self.net.name!r}, has no discriminator to find '
        'replaced tokens: expected an ELECTRA'
      )
    found = self._texts.plain(texts, cut, first)
    rows = [Row(sentence.id_n) for sentence in found]
    judge = lambda v, batch: jax.nn.sigmoid(self.net.read(v, batch)['rtd_BT'])
    answers = self.runner.run('replaced', judge, rows)
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
    pool: Pool | None = None,
    layer: int = -1,
    cut: bool = False,
    first: int = 1,
    normalize: bool | None = None,
  ) -> Any:
    """Vectors of texts or of their tokens. Returns float32 [texts, D]; with 'none' a list of
    float32 [tokens, D], special tokens included. Raises UserError: no such layer, the 'first' of a
    causal model, a text that is too long or that has no token at all.

    Args:
      pool: 'mean' of all tokens, special ones too; 'first' takes the token that stands for the
        text, [CLS], which XLNet has at the end; 'none' keeps the vectors of all tokens; None: what
        modules.json of sentence-transformers declares, with its length and prompt, else 'mean'.
      layer: 0 is what enters the first layer, 1 its output; -1 the last one's, -2 that before.
      normalize: whether vectors have length 1; None: as declared with that pooling, else no.
    """
    how = vectors_lib.chosen(self._sentences, pool, self.source)
    kind: Any = choose(how.pool, get_args(Pool), 'pool')
    number = nets.layer_number(self.net, layer)
    if kind == 'first' and self.net.model.causal:
      raise UserError(
        f'{self.source} reads from left to right, so its first token knows nothing of the text: '
        "expected pool='mean' or 'none'"
      )
    texts = [how.text(text) for text in listed(texts, first)]
    found = self._texts.plain(texts, cut, first, how.length)
    for place, sentence in enumerate(found, first):
      if not len(sentence.id_n):
        raise UserError(
          f'text {place} is empty, and the vocabulary of {self.source} puts no special token '
          'around it: expected one token at least'
        )
    rows = [Row(sentence.id_n) for sentence in found]
    vectors = functools.partial(nets.vectors, self.net, kind, number)
    answers = self.runner.run(('embed', kind, number), vectors, rows)
    if kind == 'none':
      made = [x_TD[: len(s.id_n)] for x_TD, s in zip(answers, found, strict=True)]
    else:
      made = np.stack(answers) if answers else np.zeros((0, self.net.width), np.float32)
    scaled = how.normalize if normalize is None else normalize
    return vectors_lib.normalized(made) if scaled else made

  def tokens(self, texts: Sequence[str], cut: bool = False, first: int = 1) -> list[list[str]]:
    """Returns the tokens whose vectors `embed` with pool='none' gives, as the vocabulary spells
    them."""
    found = self._texts.plain(texts, cut, first)
    return [[self._texts.piece(i) for i in sentence.id_n] for sentence in found]

  def _require_words(self, what: str) -> None:
    if not self.net.can('word'):
      raise UserError(
        f'{self.source}, of config.model.name={self.net.name!r}, has no head for words and cannot '
        f'{what}: expected a model with one; this one embeds texts'
      )
    if isinstance(self.net.model, PairModel):
      raise UserError(
        f'{self.source}, of config.model.name={self.net.name!r}, scores the words of a second text '
        f'and cannot {what}: this one embeds and writes texts (bertjax.generate)'
      )
