"""XLNet (Yang et al. 2019, zihangdai/xlnet): permutation language modelling, two streams, memory.

  python -m bertjax.main --config=configs/xlnet.py:base --workdir=runs/xlnet \
      --config.data.input='text/*.txt.gz' --config.data.vocab=spiece.model

Sizes: test, tiny, base, large. The rows of a batch read columns of the corpus side by side, so a
small corpus needs a small batch. Memory is saved with every checkpoint, 38.7 GB of it for the large
model at 2048 rows in bfloat16; --config.save_carry=False leaves it out, and a resumed run then
starts without, so its losses are not the same bit for bit.

README's command says nothing of the optimizer, and the flags of train.py are not the paper's. Those
would be:

  --config.optimizer.schedule.peak=1e-4 --config.optimizer.schedule.warmup_steps=0
  --config.optimizer.eps=1e-8 --config.optimizer.weight_decay=0
  --config.optimizer.bias_correction=True
  --config.model.dropout=0 --config.model.attention_dropout=0
"""

from bertjax.cited import Recipe, cited
from bertjax.config import defaults
from bertjax.examples import recipes

README = 'xlnet/README.md, the pretraining command'
PAPER = 'XLNet paper, appendix A.4 (unverified)'
OURS = 'ours: as of configs/bert.py'
SIZES = {
  'test': cited(OURS, layers=2, width=64, heads=8, ffn=256),
  'tiny': cited(OURS, layers=2, width=128, heads=2, ffn=512),
  'base': cited(
    'xlnet/README.md, xlnet_config.json of XLNet-Base', layers=12, width=768, heads=12, ffn=3072
  ),
  'large': cited(README, layers=24, width=1024, heads=16, ffn=4096),
}


def model(size: str) -> Recipe:
  """`config.model` of a size; its memory follows from the length."""
  return Recipe(
    cited(defaults.NAMES, name='xlnet', family='xlnet', size=size)
    | SIZES[size]
    | cited(README, mem_len=0, reuse_len=0, untie_r=True)
    | cited("xlnet/modeling.py, by the default of TensorFlow's layer_norm", norm_eps=1e-12)
    | cited(
      "xlnet/README.md, xlnet_config.json; train.py's default is ReLU", activation='gelu_tanh'
    )
    | cited(PAPER, dropout=0.1, attention_dropout=0.1)
    | cited('xlnet/train.py:init, init_std', initializer='normal', init_std=0.02)
  )


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg` (default large)."""
  size = defaults.parse_size(arg, SIZES, 'large')
  c = defaults.base()
  c.update(cited(defaults.NAMES, name=f'xlnet-{size}'))
  c.update(
    cited('XLNet paper, section 3', total_steps=500_000)
    | cited(f'{README}; the paper has 8192', batch_size=2048)
    | cited(README, length=512)
  )
  c.update(cited(defaults.EVERY, log_steps=100, eval_steps=10_000, checkpoint_steps=10_000))
  c.best.update(cited(defaults.NAMES, metric='eval/plm'))

  half = lambda: c.get_ref('length') // 2  # 256
  c.data.plan = recipes.XLNET_PLAN
  c.data.plan.update(cited(README, reuse_len=half()))
  c.data.mask = recipes.XLNET_MASK
  reuse = c.data.plan.get_ref('reuse_len')  # one number: each of the three sets them all
  c.data.mask.update(cited(README, reuse_len=reuse, perm_size=half()))

  c.model = model(size)
  c.model.update(cited(README, mem_len=c.get_ref('length') * 3 // 4, reuse_len=reuse))
  # Zeros, which are seen, and never cleared, not even between epochs.
  c.objective = cited('xlnet/function_builder.py:two_stream_loss', name='plm')

  c.optimizer = defaults.adamw()
  c.optimizer.update(
    # README has neither; the defaults of train.py are 1e-8 and 0.
    cited(PAPER, eps=1e-6, weight_decay=0.01)
    | cited('xlnet/train.py:clip', clip=1.0)
    # Norms and biases are not decayed; r_w_bias, r_r_bias and r_s_bias (u, w, z) are: it puts them
    # back.
    | cited(
      'xlnet/model_utils.py:AdamWeightDecayOptimizer',
      b2=0.999,
      bias_correction=False,
      decay=defaults.DECAY_WEIGHTS_ONLY,
    )
  )
  c.optimizer.schedule = cited('xlnet/model_utils.py:get_train_op', name='linear') | (
    defaults.the_run(c)
    | cited(PAPER, warmup_steps=c.get_ref('total_steps') * 2 // 25)  # 40,000
    | cited(f'{PAPER}, of large', peak=4e-4)
    | cited('xlnet/train.py:min_lr_ratio', end_ratio=0.001)
  )

  # Every target has a mask of its own.
  del c.evals.pseudo_perplexity
  if size in ('test', 'tiny'):
    c.evals.held_out.update(cited('ours: a small corpus has few columns', batch_size=16))
    defaults.laptop(c)
    c.update(cited('ours: a small corpus has few columns', batch_size=16, length=128))
  return c
