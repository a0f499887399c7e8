"""Fine-tuning settings of each family: `glue.py:TASK,FAMILY` and `squad.py:VERSION,FAMILY`.

Without a family the recipe is BERT's. `roberta` is for RoBERTa and XLM-R, `albert` for ALBERT,
`electra` for ELECTRA's small and base models and `electra_large` for the large one; `gpt` is for
GPT and GPT-2, and for texts alone; `xlnet` and `xlnet_base`, XLNet's large and base models, are for
questions alone. They say how is trained, and
of questions with which head; which model it is follows from `config.init_from`.
"""

from collections.abc import Callable

from bertjax.cited import Recipe, cited
from bertjax.config import defaults
from configs import gpt as gpt_recipe

FAIRSEQ = 'fairseq/examples/roberta/README.glue.md'
ROBERTA = 'RoBERTa paper, table 10 (unverified)'
ELECTRA = 'electra/configure_finetuning.py'
RUN_GLUE = 'albert/run_glue.sh'
XLNET = 'xlnet/run_squad.py: flags'
GPT = 'finetune-transformer-lm/train.py: flags'

# Peak and batch, for ten epochs; steps are 6% warm-up but for QQP.
ROBERTA_GLUE = dict(
  mnli=(1e-5, 32), qnli=(1e-5, 32), qqp=(1e-5, 32), rte=(2e-5, 16), sst2=(1e-5, 32),
  mrpc=(1e-5, 16), cola=(1e-5, 16), stsb=(2e-5, 16),
)  # fmt: skip
# Steps of warm-up, peak, steps, batch.
ALBERT_GLUE = dict(
  sst2=(1256, 1e-5, 20935, 32), mnli=(1000, 3e-5, 10000, 128), cola=(320, 1e-5, 5336, 16),
  qnli=(1986, 1e-5, 33112, 32), qqp=(1000, 5e-5, 14000, 128), rte=(200, 3e-5, 800, 32),
  stsb=(214, 2e-5, 3598, 16), mrpc=(200, 2e-5, 800, 32),
)  # fmt: skip
LONGER = ('rte', 'stsb')  # for ELECTRA
OF_QUESTIONS = ('xlnet', 'xlnet_base')  # families without a recipe for GLUE here
OF_TEXTS = ('gpt',)  # and without one for questions
SIMILARITY = ('mrpc', 'stsb', 'qqp')  # tasks whose pairs have no order (GPT paper, section 4.2)


def roberta(c: Recipe, task: str) -> None:
  """fairseq's: Adam with eps before the correction, decay of all parameters, no clip."""
  c.optimizer.update(
    cited(FAIRSEQ, b2=0.98, eps=1e-6, clip=0.0)
    | cited('fairseq/fairseq/optim/adam.py:Adam', bias_correction=True, eps_first=True)
    | cited('fairseq/fairseq/trainer.py: one group of parameters', decay=defaults.DECAY_ALL)
  )
  c.optimizer.schedule.update(
    cited('fairseq/fairseq/optim/lr_scheduler/polynomial_decay_schedule.py', name='linear')
  )
  c.data.task.update(
    cited('fairseq/fairseq/tasks/sentence_prediction.py: separator_token', separators=2)
  )
  warmup = c.get_ref('total_steps') * 6 // 100
  if task not in ROBERTA_GLUE:
    c.update(cited(ROBERTA, batch_size=48, epochs=2.0))
    c.optimizer.update(cited(ROBERTA, weight_decay=0.01))
    c.optimizer.schedule.update(cited(ROBERTA, peak=1.5e-5, warmup_steps=warmup))
    return
  peak, batch = ROBERTA_GLUE[task]
  if task == 'qqp':
    warmup = c.get_ref('total_steps') * 28318 // 113272
  c.update(cited(FAIRSEQ, batch_size=batch, epochs=10.0, length=512))
  c.optimizer.update(cited(FAIRSEQ, weight_decay=0.1))
  c.optimizer.schedule.update(cited(FAIRSEQ, peak=peak, warmup_steps=warmup))
  c.model.update(cited('fairseq/fairseq/models/roberta/model.py: pooler_dropout', head_dropout=0.0))


def albert(c: Recipe, task: str) -> None:
  """Steps and not epochs on GLUE; the optimizer is BERT's."""
  if task not in ALBERT_GLUE:
    c.update(cited('ALBERT paper, appendix A.4 (unverified)', batch_size=48, epochs=2.0))
    c.optimizer.schedule.update(cited('ALBERT paper, appendix A.4 (unverified)', peak=5e-5))
    if task == 'v2':
      head = dict(answers='xlnet', token_labels=())
      c.model.update(cited('albert/squad_utils.py:create_v2_model', **head))
      c.model.update(cited('albert/run_squad_v2.py: flags, dropout_prob', head_dropout=0.1))
    return
  warmup, peak, steps, batch = ALBERT_GLUE[task]
  every = 200 if task == 'qnli' else 100
  c.update(
    cited(RUN_GLUE, epochs=0.0, total_steps=steps, batch_size=batch, length=512)
    | cited(f'{RUN_GLUE}: save_checkpoints_steps', checkpoint_steps=every, eval_steps=every)
  )
  warmup = c.get_ref('total_steps') * warmup // steps
  c.optimizer.schedule.update(cited(RUN_GLUE, peak=peak, warmup_steps=warmup))


def electra(c: Recipe, task: str) -> None:
  """Layers learn the slower the nearer they are to the input.

  The original shows the pairs of MRPC and STS-B in both orders in every epoch; here in one.
  """
  c.update(cited(ELECTRA, batch_size=32))
  if task in LONGER:
    c.update(cited(f'{ELECTRA}: of RTE and STS', epochs=10.0, length=128))
  elif task in ROBERTA_GLUE:
    c.update(cited(ELECTRA, epochs=3.0, length=128))
  else:
    c.update(cited(f'{ELECTRA}: of SQuAD', epochs=2.0, length=512))
    c.model.update(
      cited(
        'electra/finetune/qa/qa_tasks.py:get_prediction_module', answers='electra', token_labels=()
      )
    )
    c.evals.dev.update(cited(f'{ELECTRA}: qa_na_threshold', threshold=-2.75))
  c.optimizer.update(
    cited('electra/model/optimization.py:create_optimizer', b2=0.999, eps=1e-6, clip=1.0)
    | cited('electra/model/optimization.py:AdamWeightDecayOptimizer', bias_correction=False)
    | cited(ELECTRA, weight_decay=0.01, layer_decay=0.8)
  )
  warmup = c.get_ref('total_steps') // 10
  c.optimizer.schedule.update(
    cited('electra/model/optimization.py:create_optimizer', name='product_linear')
    | cited(ELECTRA, peak=1e-4, warmup_steps=warmup)
  )


def electra_large(c: Recipe, task: str) -> None:
  """Half the rate, which falls less from layer to layer."""
  electra(c, task)
  c.optimizer.update(cited(f'{ELECTRA}: of the large model', layer_decay=0.9))
  c.optimizer.schedule.update(cited(f'{ELECTRA}: of the large model', peak=5e-5))


def gpt(c: Recipe, task: str) -> None:
  """The words of the texts are learned beside their labels."""
  c.update(
    cited(f'{GPT}, n_batch on four devices', batch_size=32) | cited(GPT, epochs=3.0, length=512)
  )
  labels = dict(labels=c.model.labels, head_dropout=0.1)
  c.model = gpt_recipe.model('gpt1')
  c.model.update(cited(f'{GPT}, clf_pdrop', **labels))
  if task in SIMILARITY:
    c.model.update(cited('GPT paper, section 3.3', both_orders=True))
  c.objective.update(cited(f'{GPT}, lm_coef', lm=0.5))
  c.optimizer.update(
    cited('finetune-transformer-lm/opt.py:adam', name='openai_adam')
    | cited(GPT, b1=0.9, b2=0.999, eps=1e-8, weight_decay=0.01, clip=1.0)
  )
  del c.optimizer.bias_correction
  warmup = c.get_ref('total_steps') * 2 // 1000
  c.optimizer.schedule.update(
    cited('finetune-transformer-lm/opt.py:warmup_linear', name='product_linear')
    | cited(GPT, peak=6.25e-5, warmup_steps=warmup)
  )


def xlnet(c: Recipe, task: str) -> None:
  """Steps and not epochs, and Adam without decay of weights.

  The original's decay by layer multiplies gradients, which Adam undoes.
  """
  del task
  script = 'xlnet/scripts/tpu_squad_large.sh'
  c.update(cited(script, epochs=0.0, total_steps=8000, batch_size=48, length=512))
  c.update(cited(f'{script}: save_steps', checkpoint_steps=1000, eval_steps=1000))
  c.model.update(
    cited('xlnet/function_builder.py:get_qa_outputs', answers='xlnet', token_labels=())
    | cited(f'{XLNET}, dropout', head_dropout=0.1)
  )
  c.optimizer.update(
    cited(XLNET, weight_decay=0.0, clip=1.0)
    | cited(script, eps=1e-6)
    | cited(
      "xlnet/model_utils.py:get_train_op, TensorFlow's AdamOptimizer",
      b2=0.999, bias_correction=True, eps_first=True,
    )
  )  # fmt: skip
  warmup = c.get_ref('total_steps') // 8
  c.optimizer.schedule.update(
    cited('xlnet/model_utils.py:get_train_op', name='linear')
    | cited(script, peak=3e-5, warmup_steps=warmup)
  )
  c.evals.dev.update(cited(XLNET, best=5, longest=64))


def xlnet_base(c: Recipe, task: str) -> None:
  """Three GPUs with eight rows each."""
  xlnet(c, task)
  script = 'xlnet/scripts/gpu_squad_base.sh'
  c.update(cited(script, total_steps=12_000, batch_size=24))
  warmup = c.get_ref('total_steps') // 12
  c.optimizer.schedule.update(cited(script, peak=2e-5, warmup_steps=warmup))


FAMILIES: dict[str, Callable[[Recipe, str], None]] = dict(
  bert=lambda c, task: None,
  roberta=roberta,
  albert=albert,
  electra=electra,
  electra_large=electra_large,
  gpt=gpt,
  xlnet=xlnet,
  xlnet_base=xlnet_base,
)


def split(arg: str | None, tasks: tuple[str, ...], default: str) -> tuple[str, str]:
  """The task and the family of TASK or TASK,FAMILY.

  Raises:
    UserError: there is no such task, or no such family has a recipe for it.
  """
  task, _, family = (arg or default).partition(',')
  task = defaults.parse_size(task, tasks, default)
  return task, defaults.parse_size(family, having(task), 'bert')


def having(task: str) -> tuple[str, ...]:
  """The families that have a recipe for a task."""
  if task == 'wnli':  # which the others left out, or recast
    return ('bert',)
  without = OF_QUESTIONS if task in ROBERTA_GLUE else OF_TEXTS
  return tuple(f for f in FAMILIES if f not in without)


def apply(c: Recipe, family: str, task: str) -> None:
  """Changes BERT's recipe for a task to that of a family; names the config by both."""
  FAMILIES[family](c, task)
  if family != 'bert':
    c.update(cited(defaults.NAMES, name=f'{c.name}-{family}'))
