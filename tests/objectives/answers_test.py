"""The head of answers whose end is asked for behind a start: logits, loss and every gradient.

XLNet's is compared with the three heads of transformers' XLNetForQuestionAnswering, put together
as the original does: transformers trains the answer class on the state of the right start, where
zihangdai/xlnet has the mean by probability. ALBERT has the same heads there, on its own encoder.
ELECTRA's is written out from its paper's code (tests/support/answer_heads.py): transformers has
none.
"""

import cases
import finetuned
import jax
import numpy as np
import parity
import pytest
import state_dicts
from flax.core import meta
from mutation import mutation
from slow_imports import answer_heads, torch

from bertjax import models
from bertjax.errors import UserError
from bertjax.objectives import spans
from bertjax.objectives.spans import answer_terms

LENGTHS, LENGTH = (17, 40, 9), 40


def config(family):
  form = 'electra' if family == 'electra' else 'xlnet'
  return finetuned.config(family, labels=(), token_labels=(), answers=form)


def batch_of(family):
  """Questions of five tokens: before the text behind [CLS], or with [CLS] behind the text."""
  batch = cases.batch([(n,) for n in LENGTHS], LENGTH, types=0)
  for b, n in enumerate(LENGTHS):
    if family == 'xlnet':
      batch['type_BT'][b, n - 4 : n - 1], batch['type_BT'][b, n - 1] = 1, 2
      batch['first_BG'][b] = n - 1
      start, end = 1, n - 6
    else:
      batch['type_BT'][b, 5:n] = 1
      start, end = 5, n - 2
    batch.setdefault('span_start_BG', np.zeros((3, 1), np.int32))[b] = start
    batch.setdefault('span_end_BG', np.zeros((3, 1), np.int32))[b] = end
  # The second has its answer in another window.
  batch['span_start_BG'][1] = batch['span_end_BG'][1] = batch['first_BG'][1]
  batch['span_impossible_BG'] = np.zeros((3, 1), np.int32)
  if family == 'electra':
    batch['span_impossible_BG'][2] = 1
  return batch


def allowed(family, batch):
  """p_mask of the originals, turned round: tokens of the text and [CLS]; ELECTRA's mask has the
  last [SEP] too, which is in the text's segment."""
  found_BT = np.zeros(batch['token_BT'].shape, bool)
  for b, n in enumerate(LENGTHS):
    texts = dict(xlnet=range(n - 5), albert=range(5, n - 1), electra=range(5, n))
    found_BT[b, [*texts[family], batch['first_BG'][b, 0]]] = True
  return torch.tensor(found_BT)


def params_of(theirs, c, of):
  """Ours, of what `of` gives for a parameter of theirs."""
  bare = c.copy_and_resolve_references()
  bare.model.answers = 'none'
  named = {k: of(v) for k, v in theirs.encoder.named_parameters()}
  encoder = state_dicts.from_huggingface(
    {k: v for k, v in named.items() if not k.startswith('pooler.')}, bare.model
  )
  return dict(encoder, answers=theirs.head.ours(of))


def gradient(parameter):
  zeros = np.zeros(parameter.shape, np.float32)
  return zeros if parameter.grad is None else parameter.grad.numpy()


@pytest.fixture(
  scope='module', params=['xlnet', pytest.param('albert', marks=pytest.mark.full), 'electra']
)
def both(request):
  """(family, config, batch, theirs, our parameters)."""
  family = request.param
  c, batch = config(family), batch_of(family)
  theirs = answer_heads.Theirs(family, c)
  return family, c, batch, theirs, params_of(theirs, c, lambda p: p.detach().numpy())


def their_loss(batch, impossible_B, start, end, none):
  """(span, none), each the mean over the rows."""
  cross = torch.nn.functional.cross_entropy
  gold = [torch.tensor(np.asarray(batch[f'span_{e}_BG'][:, 0], np.int64)) for e in ('start', 'end')]
  span = (cross(start, gold[0]) + cross(end, gold[1])) / 2
  labels = torch.tensor(np.asarray(impossible_B, np.float32))
  return span, torch.nn.functional.binary_cross_entropy_with_logits(none, labels)


@mutation('NONE_SCALE = 0.5', 'NONE_SCALE = 1.0', case='xlnet')
@mutation("column_BK = batch['span_start_BG'] if", 'column_BK = column_BK[:, :1] if', case='xlnet')
@mutation('if not last_separator:', 'if False:', case='albert')
@mutation('if not last_separator:', 'if True:', case='electra')
@mutation("gather_positions(x_BTD, batch['first_BG'][:, :1])[:, 0]", 'x_BTD[:, 0]', case='xlnet')
@mutation(" if by_window else batch[f'{LABEL}_impossible_BG'][:, 0] > 0", '', case='electra')
def test_logits_loss_and_gradients_are_those_of_the_original(both):
  family, c, batch, theirs, params = both
  theirs.zero_grad()
  _, *logits = theirs(batch, allowed(family, batch))
  impossible_B = batch['span_impossible_BG'][:, 0]
  if family != 'electra':  # where a window without the answer counts
    impossible_B = (batch['span_start_BG'] == batch['first_BG'])[:, 0]
  span, none = their_loss(batch, impossible_B, *logits)
  (span + none / 2).backward()
  objective = spans.make(c)
  loss, gradients = parity.loss_and_gradients(objective, params, batch)
  said = jax.jit(objective.predict)(dict(params=params), (), batch)['answers']
  for mine, other, name in zip(said, logits, ('start', 'end', 'none'), strict=True):
    parity.close(mine, other.detach().numpy(), parity.LOGITS, name)
  found = answer_terms(said, batch, family != 'electra')
  assert float(found['none'].total) / 3 == pytest.approx(none.item(), rel=1e-5)
  assert abs(loss - (span + none / 2).item()) <= parity.LOSS * loss
  expected = params_of(theirs, c, gradient)
  for each in (expected, gradients):
    for end in ('start', 'end', 'end_norm'):  # the softmax does not see what all tokens share
      if end in each['answers']:
        assert np.abs(each['answers'][end].pop('bias')).max() < 1e-6
    assert not np.any(each.pop('mask', 0))  # XLNet's query stream, which nothing reads
  parity.close_gradients(gradients, expected)


@mutation('(x_BTD, column_BK)', '(x_BTD, 0 * column_BK + column_BK[:, :1])', case='xlnet')
def test_each_of_the_likeliest_starts_has_ends_of_its_own(both):
  family, c, batch, theirs, params = both
  asked = {k: v for k, v in batch.items() if not k.startswith('span')}
  beam = jax.jit(spans.make(c).predict)(dict(params=params), (), asked)['answers']
  size = 20 if family == 'electra' else 5
  with torch.no_grad():
    h, start, _, none = theirs(batch, allowed(family, batch))
    parity.close(beam.none_B, none.numpy(), parity.LOGITS, 'none')
    for b in range(3):
      log_p, column = start.log_softmax(-1)[b].topk(size)
      some = int((log_p > -1e20).sum())  # a short text has fewer
      parity.close(beam.start_BK[b, :some], log_p[:some].numpy(), parity.LOGITS, 'starts')
      assert np.array_equal(beam.start_column_BK[b, :some], column[:some])
      for k in range(some):
        end = theirs.head.end_logits(h[b], h[b, column[k]][None])
        end = end.masked_fill(~allowed(family, batch)[b], -1e30)
        ends, places = end.log_softmax(-1).topk(size)
        parity.close(beam.end_BKK[b, k, :some], ends[:some].numpy(), parity.LOGITS, 'ends')
        assert np.array_equal(beam.end_column_BKK[b, k, :some], places[:some])


def test_padding_and_rows_that_fill_up_a_batch_change_nothing(both):
  _, c, batch, _, params = both
  objective = spans.make(c)
  longer = {k: np.pad(v, ((0, 0), (0, 7))) if k.endswith('_BT') else v for k, v in batch.items()}
  longer = {k: np.concatenate([v, v[:1]]) for k, v in longer.items()}
  longer['example_weight_BG'][3] = 0
  loss, again = (parity.loss_of(objective, each)(params)[0] for each in (batch, longer))
  np.testing.assert_allclose(again, loss, rtol=1e-5)


@mutation(
  'return count + answers_lib.flops(self.answers, self.width, batch)',
  'return count',
  file='bertjax/models/bert.py',
  case='albert',
)
@pytest.mark.parametrize('family', ['xlnet', 'albert', 'electra'])
def test_flops_are_those_of_the_matrices_that_tokens_and_rows_meet(family):
  c, batch = config(family), batch_of(family)
  sized = lambda form: models.build(c.model).clone(answers=form).flops(batch)
  shapes = meta.unbox(jax.eval_shape(models.build(c.model).init, jax.random.key(0), batch))
  sizes = {k: v['kernel'].size for k, v in shapes['params']['answers'].items() if k != 'end_norm'}
  each = sizes['start'] + sizes['end'] + sizes['end_hidden'] // 2  # which h meets
  row = sizes['end_hidden'] // 2 + sizes['none_hidden'] + sizes['none']
  assert sized(c.model.answers) - sized('none') == 6 * (sum(LENGTHS) * each + len(LENGTHS) * row)


@pytest.mark.full
def test_what_the_class_reads_is_dropped_in_training_alone():
  c = config('albert')
  c.model.head_dropout = 0.5
  finetuned.check_dropout(spans.make(c), batch_of('albert'), 'none')


@pytest.mark.parametrize(
  ('fields', 'said'),
  [
    (
      dict(token_labels=(('span', 2),)),
      "answers='xlnet' is a head of its own.* got .*token_labels",
    ),
    (dict(words=True), "answers='xlnet' is a head of its own.* got .*words"),
    (dict(answers='elektra'), "did you mean 'electra'"),
    (dict(answers='none'), 'or no labels and a head of config.model.answers'),
  ],
)
def test_other_heads_beside_it_and_unknown_forms_are_refused(fields, said):
  c = config('albert')
  c.model.update(fields)
  with pytest.raises(UserError, match=said):
    spans.make(c)
