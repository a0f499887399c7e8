"""ELMo (Peters et al. 2018, allenai/bilm-tf): the next word and the one before it, by LSTMs.

  python -m bertjax.main --config=configs/elmo.py:original --workdir=runs/elmo \
      --config.data.input='sentences/*.txt' --config.data.heldout=heldout.txt

A line is a sentence, whose words stand apart by white space.
"""

from bertjax.cited import Recipe, cited
from bertjax.config import defaults
from bertjax.models.elmo import SIZES

BILM = 'bilm-tf/bilm/training.py'
TRAIN = 'bilm-tf/bin/train_elmo.py'


def model(size: str) -> Recipe:
  """`config.model` of a size."""
  return Recipe(
    cited(defaults.NAMES, name='elmo', family='none', size=size)
    | cited(f'{TRAIN}:options' if size == 'original' else 'ours: a small one', **SIZES[size])
    | cited(f'{TRAIN}:options', skips=True, cell_clip=3.0, projection_clip=3.0, dropout=0.1)
  )


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg` (default original)."""
  size = defaults.parse_size(arg, SIZES, 'original')
  c = defaults.base()
  c.update(cited(defaults.NAMES, name=f'elmo-{size}'))
  # 10 epochs of the 768,648,884 words of the 1 Billion Word Benchmark, on 3 cards of 128 rows.
  c.update(cited(f'{TRAIN}:options', batch_size=384, length=20, total_steps=1_000_840))
  c.update(cited(defaults.EVERY, log_steps=100, eval_steps=10_000, checkpoint_steps=10_000))
  c.best.update(cited(defaults.NAMES, metric='eval/bilm'))

  c.model = model(size)
  c.objective = cited(f'{BILM}:train', name='bilm', times_length=True, memory='zeros')
  c.optimizer = Recipe(
    cited(
      f'{BILM}:train, _get_feed_dict_from_X; {TRAIN}:options', name='adagrad', accumulator=1.0,
      clip=10.0, decay=defaults.DECAY_ALL,
    )
  )  # fmt: skip
  c.optimizer.schedule = cited(f'{BILM}:train', name='constant', peak=0.2)

  c.data.plan = cited('bilm-tf/bilm/data.py:BidirectionalLMDataset', name='bilm_columns')
  c.data.mask = cited('bilm-tf/bilm/data.py:_get_batch', name='bilm')
  c.data.update(cited('bilm-tf/bilm/data.py: a line is a sentence', split='lines'))
  # Of the 1 Billion Word Benchmark those that occur three times, with </S>, <S>, <unk>; and <pad>.
  words = cited(f'{TRAIN}:n_tokens_vocab', type='marked_words', size=793_472)
  c.data.train_vocab.update(words)
  # No position is to be scored with both sides visible.
  del c.evals.pseudo_perplexity
  if size in ('test', 'tiny'):
    _laptop(c)
  return c


def _laptop(c: Recipe) -> None:
  """Gives a recipe what learns on a core in minutes."""
  ours = 'ours: what a laptop learns with'
  c.update(cited(ours, total_steps=2500, batch_size=32, log_steps=100))
  c.update(cited(ours, eval_steps=500, checkpoint_steps=500))
  c.model.update(cited(ours, dropout=0.0))
  c.data.train_vocab.update(cited(ours, size=10_000))
  c.evals.held_out.update(cited(ours, examples=512))
