"""Multilingual BERT (google-research/bert, multilingual.md): BERT on Wikipedia in 104 languages.

  python -m bertjax.main --config=configs/mbert.py:base --workdir=runs/mbert \
      --config.data.input='en=wiki/en*.txt,is=wiki/is*.txt' --config.data.vocab=DIR_WITH_vocab.txt

Sizes: those of configs/bert.py. One WordPiece vocabulary of 119,547 pieces for all languages; no
language ids. Theirs has seen the languages with the same smoothing; `python -m bertjax.vocab` draws
the sentences of files alike, and those of a seqio Mixture by its rates. Batch, steps and lengths
are not published: they are English BERT's (unverified).
"""

from bertjax.cited import cited, reattribute
from bertjax.config import defaults
from bertjax.models.bert import SIZES
from configs import bert

ENGLISH = "English BERT's: bert/multilingual.md gives none (unverified)"


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg` (default base)."""
  size = defaults.parse_size(arg, SIZES, 'base')
  c = bert.get_config(size)
  c.update(cited(defaults.NAMES, name=f'mbert-{size}'))
  if size != 'tiny':
    reattribute(
      c, ENGLISH, 'total_steps', 'batch_size', 'length', 'optimizer.schedule.peak',
      'optimizer.schedule.warmup_steps', 'phases.phase1.share', 'phases.phase1.length',
      'phases.phase2.share',
    )  # fmt: skip
  given = 'bert/multilingual.md'  # the recommended `new` models; lowercasing strips accents
  c.data.update(cited(given, lowercase=False, language_alpha=0.7))
  return c
