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
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np

from bertjax import registry, sharding
from bertjax.errors import UserError, choose, root_logger_as_it_is
from bertjax.examples.spelling import Speller
from bertjax.machine import compiled, copies
from bertjax.models.layers.decoding import Beams, Sampling
from bertjax.models.layers.unmasking import Unmasking
from bertjax.text.sentences import Row
from bertjax.use import generate, nets, unmask
from bertjax.use import load as load_lib
from bertjax.use import vectors as vectors_lib
from bertjax.use.answers import Pool
from bertjax.use.batches import Runner
from bertjax.use.finetuned import FineTuned
from bertjax.use.texts import Texts, listed
from bertjax.use.words import Words


class Model(Words, FineTuned):
  """A trained model with its vocabulary, on a mesh; made by `load`.

  All that take texts, but for `generate`, which reads its prompts whole, take these too:
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
    trusted = [trust_code] if isinstance(trust_code, str) else trust_code
    with registry.trusting(trusted), root_logger_as_it_is():
      found = load_lib.find(path, step, task)
      net = nets.make(found.model, found.vocabulary.special, found.beside)
      tables = dict.fromkeys(net.model.tables, 0)
      if 'language' in tables:
        rows = dict(found.model.get('extra', ())).get('language')
        tables['language'] = load_lib.language_id(language, found.languages, rows)
      elif language is not None and not found.vocabulary.check_language:
        raise UserError(
          f'{found.source} has no table of languages, it reads them all alike: expected no '
          f'language, got {language!r}'
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
        load_lib.task_of(found, net.heads, net.room), found.tasks,
        vectors_lib.Sentences(**found.meta.get('sentences', {})),
      )  # fmt: skip

  @functools.cached_property
  def writing_runner(self) -> Runner:
    """Runs what writes, made at the first text: its layers are held a second time, one by one."""
    assert self.net.writer is not None
    return self.runner.for_writing(self.net.writer)

  def generate(
    self,
    prompts: Sequence[str],
    new_tokens: int = 20,
    sampling: Sampling | None = None,
    beams: Beams | None = None,
    seed: int = 0,
    ends: bool = True,
    first: int = 1,
    unmasking: Unmasking | None = None,
  ) -> list[generate.Text]:
    """Writes a text behind each prompt, or for each text that a model with a decoder reads. A model
    of masked words writes all tokens of a text in several passes. Raises UserError: a model that
    writes nothing, a prompt that leaves no room for the tokens, or numbers that make no sense.

    Args:
      new_tokens: at most.
      sampling: how tokens are drawn; None: the likeliest is taken.
      beams: a search of so many beams in place of it.
      seed: of the draws, from 0 to 2^31 - 1; a text depends on it, its number and its prompt alone.
      ends: whether a text ends with the vocabulary's end; else it has all the tokens.
      first: number of the first prompt, for messages.
      unmasking: the passes of a model of masked words; None: one for each token, the most certain
        first.
    """
    if sampling is not None and beams is not None:
      raise UserError('tokens are drawn or searched: expected one of sampling and beams, got both')
    if self.net.unmasks and (unmasking or not self.net.writer):
      if beams is not None:
        raise UserError(
          f'{self.source} writes in the place of masks: expected no beams (--beams), got '
          f'{beams.count}. Draw with --temperature, or set --steps, --order and --block'
        )
      how, drawn = unmasking or Unmasking(), sampling or Sampling()
      return unmask.texts(self, prompts, new_tokens, how, drawn, seed, ends, first)
    if unmasking is not None:
      raise UserError(
        f'{self.source} has no masked words to write, it writes one token behind the other: '
        'leave out unmasking (--steps, --order, --block). Draw with --temperature, or search with '
        '--beams'
      )
    return generate.texts(
      self, prompts, new_tokens, beams or sampling or Sampling(), seed, ends, first
    )

  def embed(
    self,
    texts: Sequence[str],
    pool: Pool | None = None,
    layer: int | Sequence[int] = -1,
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
      layer: 0 is what enters the first layer, 1 its output; -1 the last one's, -2 that before; of
        several layers each result has an axis more, before D or before the tokens and D.
      normalize: whether vectors have length 1; None: as declared with that pooling, else no.
    """
    how = vectors_lib.chosen(self._sentences, pool, self.source)
    kind: Any = choose(how.pool, get_args(Pool), 'pool')
    layer = layer.tolist() if isinstance(layer, np.ndarray) else layer
    several = isinstance(layer, Sequence) and len(layer) > 0
    asked: Any = layer if several else [layer]
    numbers = tuple(nets.layer_number(self.net, each) for each in asked)
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
    vectors = functools.partial(nets.vectors, self.net, kind, numbers)
    answers = self.runner.run(('embed', kind, numbers), vectors, rows)
    answers = answers if several else [each[0] for each in answers]
    if kind == 'none':
      made = [x[..., : len(s.id_n), :] for x, s in zip(answers, found, strict=True)]
    else:
      empty = np.zeros((0, *[len(numbers)] * several, self.net.width), np.float32)
      made = np.stack(answers) if answers else empty
    scaled = how.normalize if normalize is None else normalize
    return vectors_lib.normalized(made) if scaled else made

  def attention(
    self, texts: Sequence[str], layer: int = -1, cut: bool = False, first: int = 1
  ) -> list[np.ndarray]:
    """Returns how much each head of a layer attends from each token of a text (the second axis) to
    each: float32 [N, tokens, tokens], whose rows sum to 1; `tokens` has their names, and layers are
    as of `embed`. Raises UserError: no such layer, a text that is too long, or a model that does
    not tell what its layers attend with."""
    number = nets.layer_number(self.net, layer)
    if not number or not nets.tells_attention(self.net):
      raise UserError(
        f'{self.source}, of config.model.name={self.net.name!r}, does not tell what layer {number} '
        'attends with: expected a layer from 1 of a BERT without shared layers, or like it'
      )
    found = self._texts.plain(texts, cut, first)
    maps = functools.partial(nets.attention, self.net, number)
    answers = self.runner.run(('attention', number), maps, [Row(each.id_n) for each in found])
    sizes = [len(each.id_n) for each in found]
    return [x_NTT[:, :size, :size] for x_NTT, size in zip(answers, sizes, strict=True)]

  def tokens(self, texts: Sequence[str], cut: bool = False, first: int = 1) -> list[list[str]]:
    """Returns the tokens whose vectors `embed` with pool='none' gives, as the vocabulary spells
    them."""
    found = self._texts.plain(texts, cut, first)
    return [[self._texts.piece(i) for i in sentence.id_n] for sentence in found]
