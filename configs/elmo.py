"""ELMo (Peters et al. 2018, allenai/bilm-tf): the next word and the one before it, by LSTMs.

  python -m bertjax.main --config=configs/elmo.py:original --workdir=runs/elmo \
      --config.data.input='sentences/*.txt' --config.data.heldout=heldout.txt

A line is a sentence, whose words stand apart by white space. All words of the text have a number,
so that they are read by their characters; the softmax has the first `outputs` of them. A run gives
vectors of words, of any spelling, in their context: layer 0 is the word twice, 1 and 2 are what the
layers give forwards and backwards, and <S> and </S> have vectors too:

  python -m bertjax.embed --workdir=runs/elmo --input=FILE --output=OUT.npy --pool=none --layer=2

Not as there: words of the held-out text that the vocabulary lacks are read as <unk>; the columns of
a batch end with their epoch, in a row that may be shorter, and all begin the next one together.
Texts that are embedded begin with states of zeros; the original keeps them from text to text.
"""

from bertjax.cited import Recipe, cited
from bertjax.config import defaults
from bertjax.models.elmo import SIZES
from bertjax.models.layers.char_cnn import FILTERS

BILM = 'bilm-tf/bilm/training.py'
TRAIN = 'bilm-tf/bin/train_elmo.py'


def model(size: str) -> Recipe:
  """`config.model` of a size."""
  return Recipe(
    cited(defaults.NAMES, name='elmo', family='none', size=size)
    | cited(f'{TRAIN}:options' if size == 'original' else 'ours: a small one', **SIZES[size])
    | cited(f'{TRAIN}:options', skips=True, cell_clip=3.0, projection_clip=3.0, dropout=0.1)
    | cited(f'{TRAIN}:options', characters=50, character_width=16, filters=FILTERS, highways=2)
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
  # Words that occur three times in the 1 Billion Word Benchmark, with </S>, <S> and <unk>; others
  # are read by their characters, and predicted as <unk>.
  c.model.update(cited(f'{TRAIN}:n_tokens_vocab', outputs=793_471))
  c.objective = cited(f'{BILM}:train', name='bilm', times_length=True, memory='zeros') | cited(
    f'{TRAIN}:options', sampled=8192
  )
  c.optimizer = Recipe(
    cited(
      f'{BILM}:train, clip_grads', name='adagrad', accumulator=1.0, clip=10.0,
      decay=defaults.DECAY_ALL,
    )
  )  # fmt: skip
  c.optimizer.schedule = cited(f'{BILM}:train', name='constant', peak=0.2)

  c.data.plan = cited('bilm-tf/bilm/data.py:BidirectionalLMDataset', name='bilm_columns')
  c.data.mask = cited(
    'bilm-tf/bilm/data.py:_get_batch, UnicodeCharsVocabulary', name='bilm',
    characters=c.model.get_ref('characters'), words=c.model.get_ref('outputs'),
  )  # fmt: skip
  c.data.update(cited('bilm-tf/bilm/data.py: a line is a sentence', split='lines'))
  spelled = cited('ours: all words of a text have a number', type='marked_words', size=5_000_000)
  c.data.train_vocab.update(spelled)
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
  c.model.update(cited(ours, dropout=0.0, outputs=0, characters=20))
  c.model.update(cited(ours, filters=((1, 16), (2, 32), (3, 64))))
  c.objective.update(cited(ours, sampled=64 if c.model.size == 'test' else 0))
  c.data.train_vocab.update(cited(ours, size=10_000))
  c.evals.held_out.update(cited(ours, examples=512))
