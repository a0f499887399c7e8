"""XLNet (Yang et al. 2019, zihangdai/xlnet): permutation language modelling, two streams, memory.

  python -m bertjax.main --config=configs/xlnet.py:base --workdir=runs/xlnet \
      --config.data.input='text/*.txt.gz' --config.data.vocab=spiece.model

Sizes: test, tiny, base, large. The rows of a batch read columns of the corpus side by side, so a
small corpus needs a small batch. Memory is saved with every checkpoint, 38.7 GB of it for the large
model at 2048 rows in bfloat16; --config.save_carry=False leaves it out, and a resumed run then
starts without, so its losses are not the same bit for bit.
"""

from ml_collections import ConfigDict

from configs import common

# README and xlnet_config.json of the released models; tiny and test are ours.
SIZES: dict[str, dict[str, int]] = {
  'test': dict(layers=2, width=64, heads=8, ffn=256),
  'tiny': dict(layers=2, width=128, heads=2, ffn=512),
  'base': dict(layers=12, width=768, heads=12, ffn=3072),
  'large': dict(layers=24, width=1024, heads=16, ffn=4096),
}


def get_config(arg: str | None = None):
  """The recipe at the size named by `arg` (default large)."""
  size = common.parse_size(arg, SIZES, 'large')
  c = common.base()
  c.name = f'xlnet-{size}'
  c.total_steps = 500_000  # train_steps
  c.batch_size = 2048  # README; the paper has 8192
  c.length = 512  # seq_len
  c.log_steps, c.eval_steps, c.checkpoint_steps = 100, 10_000, 10_000
  c.best.metric = 'eval/plm'

  half = c.get_ref('length') // 2  # 256
  c.data.plan = dict(name='xlnet_columns', reuse_len=half, both_directions=True)  # bi_data
  c.data.mask = dict(
    name='xlnet_permutation',
    reuse_len=c.data.plan.get_ref('reuse_len'),
    perm_size=half,
    context=6,  # mask_alpha=6 / mask_beta=1; num_predict=85 of 512 follows
    max_words=5,  # max_gram
    whole_word=False,  # the original counts pieces where it means words; True mends it
    static=False,  # the original draws once per TFRecord, and num_passes of them
    max_targets=0,
  )

  c.model = ConfigDict(
    dict(
      name='xlnet',
      family='xlnet',
      size=size,
      vocab_size=0,  # of the store: 32000
      **SIZES[size],
      mem_len=0,
      reuse_len=0,
      clamp_len=0,  # -1 in the original: none
      untie_r=True,  # README
      words=True,
      norm_eps=1e-12,  # modeling.py, by TensorFlow's default
      activation='gelu_tanh',  # xlnet_config.json; the flag's default is ReLU
      dropout=0.1,
      attention_dropout=0.1,
      initializer='normal',
      init_std=0.02,
      remat=False,
      dtype='float32',
    )
  )
  c.model.mem_len = c.get_ref('length') * 3 // 4  # README: 384; the flag's default is 0
  c.model.reuse_len = c.data.plan.get_ref('reuse_len')
  c.objective = dict(name='plm')

  c.optimizer = common.adamw()  # eps 1e-6: README; uncorrected as BERT's, model_utils.py
  # Norms and biases are not decayed; r_w_bias, r_r_bias and r_s_bias (u, w, z) are: model_utils.py
  # puts them back.
  c.optimizer.schedule = dict(
    name='linear',
    peak=4e-4,  # paper, large; of base unverified
    warmup_steps=c.get_ref('total_steps') * 2 // 25,  # paper: 40,000
    total_steps=c.get_ref('total_steps'),
    end_ratio=0.001,  # min_lr_ratio
  )

  c.evals.pseudo_perplexity.rows = 0  # every target has a mask of its own
  if size in ('test', 'tiny'):
    c.evals.held_out.batch_size = 16
    common.laptop(c)
    c.batch_size, c.length = 16, 128
  return c
