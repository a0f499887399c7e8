"""ERNIE 1.0 (Sun et al. 2019, PaddlePaddle/ERNIE): words, phrases and entities masked as a whole.

  python -m bertjax.main --config=configs/ernie.py:base --workdir=runs/ernie \
      --config.data.input='zhwiki/*.txt' --config.data.lexicon='lexicon/*.txt' \
      --config.data.vocab=vocab.txt

Sizes: those of configs/bert.py; base is the paper's. SIZE_dialogues is the dialogue task of section
3.3 of the paper: who speaks in place of segments, and whether a reply belongs to its dialogue. It
takes JSON lines, a dialogue each, {"text": "turn\\nturn", "role": [0, 1]}, and goes on from a model
without dialogues by config.init_from; data/dialogues.py says what is ours in it.

The authors' own records are read with --config.data.input=ernie1:demo_train_set.gz; their ids
belong to the vocabulary of ERNIE 1.0, 17,964 pieces of which the released model makes 18,000 rows.

The other arm of the paper's comparison is --config.data.mask.word_prob=0, characters alone.
"""

from bertjax.data import recipes
from bertjax.models.bert import SIZES
from configs import bert, common

DIALOGUES = '_dialogues'
ROLES = 2  # rows of the role table: query and reply


def get_config(arg: str | None = None):
  """The recipe at the size, and on the text, named by `arg` (default base)."""
  name = common.parse_size(arg, [s + kind for s in SIZES for kind in ('', DIALOGUES)], 'base')
  size = name.removesuffix(DIALOGUES)
  c = common.base()
  c.name = f'ernie-{name}'
  c.total_steps = 1_000_000  # pretraining.py and script/pretrain.sh, as all of this
  c.batch_size = 16  # rows of 512: 8,192 tokens, which is how the original counts batches
  c.length = 512
  c.log_steps, c.eval_steps, c.checkpoint_steps = 100, 10_000, 10_000

  c.model = bert.model(size)
  c.model.update(
    dict(
      family='ernie',
      positions=513,  # ernie_config.json
      activation='relu',
      norm_eps=1e-5,  # the default of Paddle's layer_norm
    )
  )
  c.objective = dict(name='mlm', plus=0.0)  # means of both losses, weights 1

  c.optimizer = common.adamw()  # optimization.py: Adam, then p -= lr * weight_decay * p
  c.optimizer.eps = 1e-8
  c.optimizer.bias_correction = True
  c.optimizer.schedule = dict(
    name='bert_linear',
    peak=1e-4,
    warmup_steps=c.get_ref('total_steps') // 250,  # 4,000 of 1,000,000
    total_steps=c.get_ref('total_steps'),
  )

  c.data.plan, c.data.mask = recipes.ERNIE_PLAN, recipes.ERNIE_MASK
  c.data.pack = 8  # its batches hold equal counts of tokens
  if name.endswith(DIALOGUES):
    _read_dialogues(c)
  if size == 'tiny':
    common.laptop(c)
  return c


def _read_dialogues(c) -> None:
  """The paper says neither length nor batch."""
  c.length, c.batch_size = 128, 64
  c.model.update(dict(types=0, extra=(('role', ROLES),), labels=(('fake', 2),)))
  c.data.plan = dict(name='dialogues', turns=3, fake_prob=0.5)  # QRQ, QRR, QQR
  c.data.pack = 1
  c.data.columns = ('role',)
  c.data.split = 'lines'
