"""What a student learns from its teacher, against the original programs' losses in PyTorch."""

import cases
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import taught_models
import torch_models
from ml_collections import ConfigDict
from mutation import mutation
from slow_imports import F, torch
from tiers import in_tiers

from bertjax.config import sections
from bertjax.errors import UserError
from bertjax.kernels.cross_entropy import Scores, logits
from bertjax.objectives import distill, teaching
from configs.distill import distilbert, kd

SHAPE = dict(width=36, heads=3, ffn=52, positions=45, dropout=0.0, attention_dropout=0.0)
LABEL = dict(words=False, head_dropout=0.0, types=3)
WORDS = dict(labels=(), words=True)


def config(objective, teacher: dict, **student):
  """A student of two layers, a teacher of four."""
  c = cases.config('bert', layers=2, **SHAPE, **student)
  c.length = 40
  c.objective = ConfigDict(dict(objective))
  sections.complete(c)
  c.objective.teacher.model = cases.config('bert', layers=4, **SHAPE, **teacher).model
  return c


def pair_of(c, student='BertForSequenceClassification', teacher=''):
  """Student and teacher of a config, as classes of transformers."""
  mine = torch_models.like(c.model, student, 0.3, 1)
  return mine, torch_models.like(c.objective.teacher.model, teacher or student, 0.3, 2)


def tensors(batch, types=True):
  tensor = lambda x: torch.tensor(np.asarray(x)).long()
  found = dict(
    input_ids=tensor(batch['token_BT']), attention_mask=tensor(batch['example_BT'] > 0),
    token_type_ids=tensor(batch['type_BT']),
  )  # fmt: skip
  return found if types else {k: v for k, v in found.items() if k != 'token_type_ids'}


@pytest.mark.parametrize('normalize', in_tiers([False, True], [False]))
@mutation('float(given.soft) * float(given.temperature) ** 2', 'float(given.soft)', case='True')
@mutation('ours = first(student_LBTD[:-1])', 'ours = first(student_LBTD[1:])', case='True')
@mutation('error_BG /= classes', 'error_BG /= 1', case='False')
def test_classes_are_learned_as_patient_knowledge_distillation_does(normalize):
  """intersun/PKD-for-BERT-Model-Compression, src/KD_loss.py: alpha .7, T 10, beta 500."""
  fields = dict(LABEL, labels=(('label', 3),))
  c = config(kd.get_config('pkd').objective, fields, **fields)
  c.objective.update(dict(state_layers=(2,), normalize=normalize))
  student, teacher = pair_of(c)
  batch = cases.batch([(17,), (40,), (9,)], 40, types=3, label='label')
  batch['label_BG'] = np.array([[0], [2], [1]])
  mine = student(**tensors(batch), output_hidden_states=True)
  with torch.no_grad():
    theirs = teacher(**tensors(batch), output_hidden_states=True)
  soft = (
    F.kl_div(F.log_softmax(mine.logits / 10, 1), F.softmax(theirs.logits / 10, 1), reduction='sum')
    / mine.logits.numel()
  )
  first = lambda out, layer: out.hidden_states[1 + layer][:, 0]
  ours, wanted = first(mine, 0), first(theirs, 2)
  if normalize:
    ours, wanted = F.normalize(ours, dim=-1), F.normalize(wanted, dim=-1)
  hard = F.cross_entropy(mine.logits, torch.tensor(batch['label_BG'][:, 0]))
  loss = 0.7 * 100 * soft + 0.3 * hard + 500 * F.mse_loss(ours, wanted)
  taught_models.check(distill.make(c), c, student, teacher, loss, batch)


@pytest.mark.parametrize('everywhere', in_tiers([True, False], [False]))
@mutation('weight_BP = real_BT if ', 'weight_BP = jnp.ones_like(real_BT) if ', case='True')
@mutation(
  "gather_positions(scores.hidden_BPE, batch['target_pos_BP'])",
  "scores.hidden_BPE[:, : batch['target_pos_BP'].shape[1]]",
  file='bertjax/models/layers/heads.py',
  case='True',
)
@mutation(
  'part_V = jnp.where(wanted_V > -jnp.inf, jnp.exp(wanted_V) * (wanted_V - found_V), 0.0)',
  'part_V = jnp.where(found_V > -jnp.inf, jnp.exp(found_V) * (found_V - wanted_V), 0.0)',
  case='False',
)
def test_words_are_learned_as_distilbert_does(everywhere):
  """transformers, examples/research_projects/distillation/distiller.py: 5 CE + 2 MLM + cosine."""
  c = config(distilbert.get_config().objective, dict(WORDS, types=3), types=0, **WORDS)
  c.model.family = 'distilbert'
  c.objective.everywhere = everywhere
  student, teacher = pair_of(c, 'DistilBertForMaskedLM', 'BertForMaskedLM')
  batch = cases.batch([(17,), (40,), (9,)], 40, types=3)
  mine = student(**tensors(batch, types=False), output_hidden_states=True)
  with torch.no_grad():
    theirs = teacher(**tensors(batch), output_hidden_states=True)
  truth = torch.full(batch['token_BT'].shape, -100)
  for b, p in zip(*np.nonzero(batch['weight_BP']), strict=True):
    truth[b, batch['target_pos_BP'][b, p]] = int(batch['target_BP'][b, p])
  real = torch.tensor(batch['example_BT'] > 0)
  taken = real if everywhere else truth >= 0
  soft = F.kl_div(
    F.log_softmax(mine.logits[taken] / 2, -1), F.softmax(theirs.logits[taken] / 2, -1),
    reduction='batchmean',
  )  # fmt: skip
  mlm = F.cross_entropy(mine.logits[truth >= 0], truth[truth >= 0])
  last = lambda out: out.hidden_states[-1][real]
  cosine = F.cosine_embedding_loss(last(mine), last(theirs), torch.ones(int(real.sum())))
  taught_models.check(distill.make(c), c, student, teacher, 5 * 4 * soft + 2 * mlm + cosine, batch)


@mutation('jnp.moveaxis(found, 0, 1).reshape(rows, columns)', 'found.reshape(rows, columns)')
def test_a_divergence_in_parts_is_that_of_the_whole(monkeypatch):
  rng = np.random.default_rng(0)
  table_VE = jnp.array(rng.normal(size=(256, 8)), jnp.float32)
  make = lambda: Scores(
    jnp.array(rng.normal(size=(3, 12, 8)), jnp.float32), table_VE, jnp.zeros(256), 211
  )
  teacher, student = make(), make()
  whole = teaching.divergence(logits(teacher), logits(student), 2.0)
  monkeypatch.setattr(teaching, 'CHUNK', 3 * 256 * 4)

  def error(hidden_BPE):
    student_now = student._replace(hidden_BPE=hidden_BPE)
    return jnp.sum(distill.word_divergence(teacher, student_now, 2.0))

  np.testing.assert_allclose(distill.word_divergence(teacher, student, 2.0), whole, rtol=1e-5)
  assert np.isfinite(jax.grad(error)(student.hidden_BPE)).all()
  np.testing.assert_allclose(
    distill.word_divergence(teacher, teacher, 2.0), np.zeros((3, 12)), atol=1e-6
  )


REFUSED = dict(
  no_teacher=(lambda c: setattr(c.objective.teacher, 'model', ConfigDict()), 'has no model'),
  classes=(
    lambda c: c.objective.teacher.model.update(labels=(('label', 2),)),
    'tells 2 classes apart, the student 3',
  ),
  head=(lambda c: c.objective.teacher.model.update(labels=()), 'no head for labels'),
  width=(
    lambda c: c.objective.teacher.model.update(width=48, heads=4),
    'the teacher has 48, the student 36',
  ),
  layers=(lambda c: c.objective.update(state_layers=(4,)), r'expected 1 layer below 4.*\(4,\)'),
  cosine=(lambda c: c.objective.update(cosine=1.0), 'cosine=1.0 is of words'),
  nothing=(lambda c: c.objective.update(states=0.0, soft=0.0), 'else it needs no teacher'),
)


@pytest.mark.parametrize('case', REFUSED)
def test_what_cannot_be_learned_is_refused(case):
  change, said = REFUSED[case]
  fields = dict(LABEL, labels=(('label', 3),))
  c = config(kd.get_config('pkd').objective, fields, **fields)
  c.objective.state_layers = (2,)
  distill.make(c)
  change(c)
  with pytest.raises(UserError, match=said):
    distill.make(c)
