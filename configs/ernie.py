"""ERNIE 1.0 (Sun et al. 2019, PaddlePaddle/ERNIE): words, phrases and entities masked as a whole.

  python -m bertjax.main --config=configs/ernie.py:base --workdir=runs/ernie \
      --config.data.input='zhwiki/*.txt' --config.data.lexicon='lexicon/*.txt' \
      --config.data.vocab=vocab.txt

Sizes: those of configs/bert.py; base is the paper's. SIZE_dialogues is the dialogue task of section
3.3 of the paper: who speaks in place of segments, and whether a reply belongs to its dialogue. It
takes JSON lines, a dialogue each, {"text": "turn\\nturn", "role": [0, 1]}, and goes on from a model
without dialogues by config.init_from; bertjax/examples/plans/dialogues.py says what is ours in it.

The other arm of the paper's comparison is --config.data.mask.word_prob=0, characters alone.
"""

from bertjax.cited import cited
from bertjax.config import defaults
from bertjax.examples import recipes
from bertjax.models.bert import SIZES
from configs import bert

DIALOGUES = '_dialogues'
ROLES = 2  # rows of the role table: query and reply
SCRIPT = 'ERNIE/ERNIE/script/pretrain.sh'


def get_config(arg: str | None = None):
  """The recipe at the size, and on the text, named by `arg` (default base)."""
  name = defaults.parse_size(arg, [s + kind for s in SIZES for kind in ('', DIALOGUES)], 'base')
  size = name.removesuffix(DIALOGUES)
  c = defaults.base()
  c.update(cited(defaults.NAMES, name=f'ernie-{name}'))
  c.update(
    cited(SCRIPT, total_steps=1_000_000, length=512)
    # Rows of 512: 8,192 tokens for each of 8 devices, which is how the original counts batches.
    | cited(f'{SCRIPT}:batch_size, in_tokens, CUDA_VISIBLE_DEVICES', batch_size=128)
  )
  c.update(cited(defaults.EVERY, log_steps=100, eval_steps=10_000, checkpoint_steps=10_000))

  c.model = bert.model(size)
  c.model.update(
    cited(defaults.NAMES, family='ernie')
    | cited(
      'ERNIE/ERNIE/config/ernie_config.json',
      positions=513,
      types=2,
      activation='relu',
      dropout=0.1,
      attention_dropout=0.1,
      init_std=0.02,
    )
    | cited("the default of Paddle's layer_norm (unverified)", norm_eps=1e-5)
  )
  # Means of both losses, weights 1.
  c.objective = cited('ERNIE/ERNIE/model/ernie.py:get_pretraining_output', name='mlm', plus=0.0)

  c.optimizer = defaults.adamw()
  c.optimizer.update(
    # Adam by Paddle's defaults, then p -= lr * weight_decay * p.
    cited(
      'ERNIE/ERNIE/optimization.py:optimization',
      b2=0.999,
      eps=1e-8,
      bias_correction=True,
      decay=defaults.DECAY_WEIGHTS_ONLY,
      clip=1.0,
    )
    | cited(SCRIPT, weight_decay=0.01)
  )
  c.optimizer.schedule = (
    cited('ERNIE/ERNIE/optimization.py:linear_warmup_decay', name='bert_linear')
    | defaults.the_run(c)
    | cited(SCRIPT, peak=1e-4)
    # 4,000 of 1,000,000.
    | cited(
      'ERNIE/ERNIE/pretrain_args.py:warmup_steps, of later versions; the first had 5,000',
      warmup_steps=c.get_ref('total_steps') // 250,
    )
  )

  c.data.plan, c.data.mask = recipes.ERNIE_PLAN, recipes.ERNIE_MASK
  c.data.update(cited('ours: its batches hold equal counts of tokens', pack=8))
  if name.endswith(DIALOGUES):
    _read_dialogues(c)
  if size == 'tiny':
    defaults.laptop(c)
  return c


def _read_dialogues(c) -> None:
  c.update(cited('ours: the paper says neither length nor batch', length=128, batch_size=64))
  paper = 'ERNIE paper, section 3.3'
  c.model.update(cited(paper, types=0, extra=(('role', ROLES),), labels=(('fake', 2),)))
  c.data.plan = cited(paper, name='dialogues')
  c.data.update(cited('ours: how dialogues are read', pack=1, columns=('role',), split='lines'))
