"""ULMFiT's language model (Howard and Ruder 2018, fastai 0.7, courses/dl2/imdb_scripts): AWD-LSTM.

  python -m bertjax.main --config=configs/ulmfit.py:base --workdir=runs/wiki \
      --config.data.input=wiki.train.tokens --config.data.heldout=wiki.valid.tokens

A vocabulary of words is made of the text, unless config.data.vocab names one. Rows of a batch are
columns of the text, and the state of each goes on from batch to batch. configs/finetune/ulmfit.py
has the stages that follow.

Sizes: test, tiny (ours), base. The penalties and the softmax are those of the scripts: AR of the
output before its dropout, no bias; awd-lstm-lm and fastai from 1.0 on have
--config.model.ar_of=dropped --config.model.word_bias=True. Lengths of steps are drawn around 70, as
there; --config.data.plan.drawn=0 --config.length=70 draws none. NT-ASGD is
--config.optimizer.average=5. The scripts score 15,000 sampled words in pretraining (here all), and
add weight decay to the gradient (here to the update).
"""

from bertjax.cited import Recipe, cited
from bertjax.config import defaults
from bertjax.examples import recipes
from bertjax.models.awd_lstm import SIZES

SCRIPTS = 'fastai/courses/dl2/imdb_scripts'
PRETRAIN = f'{SCRIPTS}/old/pretrain_lm.py'
DROPOUT = dict(  # of the language model: dropouti, dropout, wdrop, dropoute, dropouth
  input_dropout=0.25, dropout=0.1, weight_dropout=0.2, word_dropout=0.02, hidden_dropout=0.15
)  # fmt: skip


def model(size: str, share: float = 1.0) -> Recipe:
  """`config.model` of a size, with this share of the dropouts."""
  shape = 'awd-lstm-lm/main.py' if size == 'base' else 'ours: small ones'
  return Recipe(
    cited(defaults.NAMES, name='awd_lstm', family='none', size=size)
    | cited(shape, **SIZES[size])
    | cited(PRETRAIN, **{name: share * rate for name, rate in DROPOUT.items()})
    | cited(f'{PRETRAIN}: seq2seq_reg', ar=2.0, tar=1.0)
    | cited(
      'fastai/fastai/lm_rnn.py: seq2seq_reg, LinearDecoder, RNN_Encoder (initrange .1), 0.7',
      ar_of='whole',
      word_bias=False,
      init_std=0.1 / 3**0.5,
    )
  )


def adam(c: Recipe, groups: tuple[tuple[str, float], ...], clip: float, decay: float) -> Recipe:
  """`config.optimizer` of all stages, with the multipliers of the rate of groups of layers."""
  o = defaults.adamw()
  o.update(
    cited(PRETRAIN, b1=0.8, b2=0.99, weight_decay=decay, clip=clip, lr_scale=groups)
    | cited('pytorch/torch/optim/adam.py', eps=1e-8, bias_correction=True, decay=defaults.DECAY_ALL)
  )
  o.schedule = defaults.the_run(c) | cited(
    f'{PRETRAIN}: use_clr', name='slanted_triangular', ratio=32.0, cut=10
  )
  return o


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg` (default base)."""
  size = defaults.parse_size(arg, SIZES, 'base')
  c = defaults.base()
  c.update(cited(defaults.NAMES, name=f'ulmfit-{size}'))
  c.update(cited(PRETRAIN, batch_size=64) | cited('ours: 70 and 25, in sixteens', length=96))
  # 103 million words, 23,000 batches an epoch
  c.update(cited(f'{SCRIPTS}/README.md: --cl 12', total_steps=276_000))
  c.update(cited(defaults.EVERY, log_steps=200, eval_steps=4000, checkpoint_steps=4000))
  c.best.update(cited(defaults.NAMES, metric='eval/lm'))

  c.model = model(size, share=0.5)
  c.objective = cited("ours: the paper's unit of the loss", name='lm', unit='word')
  groups = ((r'lstm_0/.*', 1 / 6), (r'lstm_1/.*', 1 / 3), (r'.*', 1.0))
  c.optimizer = adam(c, groups, clip=0.3, decay=1e-7)
  c.optimizer.schedule.update(cited(f'{SCRIPTS}/README.md: --lr 1e-3', peak=1e-3))

  c.data.train_vocab.update(
    cited('fastai/fastai/text.py: max_vocab, 0.7', type='words', size=60_000)
  )
  c.data.plan = cited('fastai/fastai/text.py:LanguageModelLoader, 0.7', name='lm_columns', drawn=70)
  c.data.mask = recipes.CAUSAL_MASK
  c.data.update(cited('ours: each line ends with <eos>, as in WikiText', split='verbatim'))
  c.evals.held_out.update(cited('ours: the mean of what is drawn', length=70))
  # No position is to be scored with both sides visible.
  del c.evals.pseudo_perplexity
  if size == 'tiny':
    ours = 'ours: what a laptop learns with'
    c.update(cited(ours, total_steps=2500, batch_size=32))
    c.update(cited(ours, log_steps=100, eval_steps=500, checkpoint_steps=500))
    c.optimizer.schedule.update(cited(ours, peak=8e-3))
  return c
