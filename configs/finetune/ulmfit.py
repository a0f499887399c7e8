"""ULMFiT's later stages (Howard and Ruder 2018, sections 3.2 and 3.3): `lm`, then `classes`.

  python -m bertjax.main --config=configs/finetune/ulmfit.py:lm --workdir=runs/imdb_lm \
      --config.init_from=runs/wiki --remap_vocab --config.data.input='imdb/*.txt'

The language model of configs/ulmfit.py goes on with the text of the task, whose vocabulary is made
of it: words that both have keep their rows, the others begin as the mean. fastai's own model is
--config.init_from=fastai:models/fwd_wt103.h5. Then:

  python -m bertjax.main --config=configs/finetune/ulmfit.py --workdir=runs/imdb \
      --config.init_from=runs/imdb_lm --config.data.train=train.tsv --config.data.dev=dev.tsv \
      --config.data.task.text="('review',)" --config.data.task.label=stars \
      --config.data.task.classes="('bad','good')"

Layers have rates of their own, 2.6 times slower each towards the words. The head learns for an
epoch of the 52, then the last layer with it for another, then all: these are shares, so fewer
--config.epochs shorten them too, unless --config.phases.phase1.share and its siblings say others.
What the scripts do otherwise: each stage of this has a new optimizer (here its moments go on),
decay is added to the gradient (here to the update), texts are padded in front and the padding
pooled (here not), and of longer texts than config.length all is read (here the beginning), and of a
text of just the columns that are pooled the first piece is left out (here, as in fastai 2, it
counts; --config.model.pooled=1399 leaves it out).

As pretraining has it, config.data.task and the files hold words that white space sets apart.
"""

from ml_collections import ConfigDict

from bertjax.cited import Recipe, cited
from bertjax.config import defaults
from configs import ulmfit
from configs.ulmfit import SCRIPTS

LM, CLASSES = f'{SCRIPTS}/finetune_lm.py', f'{SCRIPTS}/train_clas.py'
EPOCHS = 52  # one with the head alone, one with the last layer too, 50 with all


def language_model() -> Recipe:
  """The second stage: the language model, on the text of the task."""
  c = ulmfit.get_config('base')
  c.update(cited(defaults.NAMES, name='ulmfit-lm'))
  # 13 million words of IMDb, 2,900 batches an epoch
  c.update(cited(f'{LM}: cl, of 25; README has 50 for IMDb', total_steps=145_000))
  c.model = ulmfit.model('base')
  groups = ((r'lstm_0/.*', 1 / 6), (r'lstm_1/.*', 1 / 3), (r'lstm_2/.*', 1.0), (r'.*', 1 / 2))
  c.optimizer.update(cited(f'{LM}: lrs', lr_scale=groups))
  c.optimizer.schedule.update(cited(f'{LM}: lr', peak=4e-3))
  return c


def classifier() -> Recipe:
  """The third stage: labels of texts."""
  c = defaults.base()
  c.update(cited(defaults.NAMES, name='ulmfit-classes'))
  c.update(cited(f'{CLASSES}: bs // 2', batch_size=32))
  c.update(cited(f'{CLASSES}: cl, with those before it', epochs=float(EPOCHS)))
  c.update(cited('ours: the columns that the scripts pool', length=1400))
  c.update(cited(defaults.EVERY, log_steps=20))

  c.model = ulmfit.model('base')
  c.model.update(
    cited(
      f'{CLASSES}: dps',
      input_dropout=0.4, weight_dropout=0.5, word_dropout=0.05, hidden_dropout=0.3,
      head_dropout=0.4, inner_dropout=0.1,
    )
    | cited(f'{CLASSES}: get_rnn_classifier', chunk=70, pooled=1400, inner=50)
    | cited('ours: as many classes as the task', labels=(('label', 0),))
  )  # fmt: skip
  c.objective = cited('fastai 0.7, text.py:TextModel', name='classify')
  depth = (r'word', r'lstm_0/.*', r'lstm_1/.*', r'lstm_2/.*')
  groups = tuple((group, 2.6 ** (place - 4)) for place, group in enumerate(depth))
  c.optimizer = ulmfit.adam(c, (*groups, (r'.*', 1.0)), clip=25.0, decay=1e-6)
  c.optimizer.schedule.update(cited(f'{CLASSES}: lr', peak=0.01))

  def stage(first: int, epochs: int, cut: int, frozen: tuple[str, ...]) -> dict:
    steps = lambda count: c.get_ref('total_steps') * count // EPOCHS
    schedule = dict(start=steps(first), total_steps=steps(epochs), ratio=8.0, cut=cut)
    return dict(share=epochs / EPOCHS, optimizer=dict(freeze=frozen, schedule=schedule))

  c.phases = cited(
    f'{CLASSES}: freeze_to, use_clr',
    phase1=stage(0, 1, 3, depth),
    phase2=stage(1, 1, 3, depth[:3]),
    phase3=stage(2, EPOCHS - 2, 8, ()),
  )
  c.data.update(cited('ours: labelled files', reader='labelled'))
  c.data.update(cited('fastai 0.7, text.py:SortishSampler', length_block=50))
  c.data.task = cited(
    "ours: the task's columns", name='classify', text=('text',), label='label', classes=()
  )
  c.evals = ConfigDict()
  c.evals.dev = cited(defaults.EVERY, type='classification')
  c.best.update(cited('ours: what is looked at', metric='eval/dev/accuracy', mode='max'))
  return c


def get_config(arg: str | None = None):
  """The recipe of a stage, `lm` or `classes` (default)."""
  stage = defaults.parse_size(arg, ('lm', 'classes'), 'classes')
  return language_model() if stage == 'lm' else classifier()
