"""The estimate from shapes: counted by hand, and what is proposed by it."""

from typing import Any

import pytest
from mutation import mutation

from bertjax.config import presets, sections
from bertjax.tools.bench.parts import own_step
from bertjax.tools.bench.parts.synthetic import synthetic_batch
from bertjax.tools.preflight import compiled_step, estimate, proposal
from configs import bert, modernbert

ONE = dict(data=1, fsdp=1, tensor=1, sequence=1)
ROWS, LENGTH = 32, 128
LAYERS, WIDTH, HEADS, FFN, WORDS = 2, 64, 8, 256, 30_592  # of bert.py:test, padded


FEW = {'model.vocab_size': 1024}  # a vocabulary whose logits are less than a layer
# Of a layer, with the biases of queries, keys and values, which have two axes as well.
KERNELS = 4 * WIDTH * WIDTH + 2 * WIDTH * FFN + 3 * WIDTH
DENSE = 2 * WIDTH * WIDTH  # of the heads of words and of the first token
TOKENS = ROWS * LENGTH
# light: a layer's input, queries, keys, values, attention, and what three products make of it, all
# but one as wide as the model; and attention's float32 sums.
KEPT = 2 * (7 * WIDTH + FFN) + 4 * HEADS


def estimated(
  sizes: dict[str, int] = ONE, of: Any = bert, rows: int = ROWS, **fields
) -> tuple[Any, dict[str, int]]:
  """(config, bytes by class) of a family's smallest model in bfloat16."""
  config = of.get_config('test')
  sections.complete(config)
  config.preset = 'tpu'
  presets.apply(config, [], {})
  config.update_from_flattened_dict(fields)
  config = own_step.sized(config, rows, LENGTH)
  with compiled_step.kernels('tpu', 'TPU v5 lite'):
    return config, estimate.of(config, synthetic_batch(config), sizes)


def slots(config: Any) -> int:
  """Words that are scored."""
  return synthetic_batch(config)['target_pos_BP'].size


@mutation("if eqn.primitive.name in ('scan', 'reduce_precision')]", 'if eqn.params is not None]')
@mutation('logits=logits + round(rows * traced.exps)', 'logits=logits')
def test_at_the_loss_logits_are_held_and_no_gradients():
  config, found = estimated()
  assert found['residuals'] == LAYERS * TOKENS * KEPT
  assert found['logits'] == 2 * 4 * slots(config) * WORDS  # with their exponentials
  assert found['low'] == 2 * (LAYERS * KERNELS + DENSE + WORDS * WIDTH)
  assert found['gradients'] == found['working'] == 0


@mutation('late = kernels.words if logits else 0', 'late = 0')
@mutation("if config.model.get('remat', 'light') != 'light':", 'if False:')
@pytest.mark.parametrize('remat', ['light', 'full'])
def test_a_turn_has_what_its_products_make_kept_or_not(remat):
  config, found = estimated(**FEW, **{'model.remat': remat})
  words = FEW['model.vocab_size']
  assert found['residuals'] == LAYERS * TOKENS * (KEPT if remat == 'light' else 2 * WIDTH)
  # Of its kernels the gradients, float32, before they lie among those of all layers.
  assert found['working'] == TOKENS * (KEPT + 4 * FFN) + 4 * (KERNELS + DENSE)
  assert found['logits'] == 4 * slots(config) * words
  assert found['gradients'] == found['parameters'] - 4 * words * WIDTH
  assert found['low'] == 2 * (LAYERS * KERNELS + DENSE)


@mutation('max((in_turn, at_loss, at_end),', 'max((in_turn, at_loss),')
def test_at_the_end_all_gradients_are_held():
  """A single row: its activations are less than the gradient of the word table."""
  config, found = estimated(rows=1)
  assert found['gradients'] == found['parameters'] and found['residuals'] == 0
  assert found['logits'] == 4 * slots(config) * WORDS


@mutation("in ('scan', 'reduce_precision')", "in ('scan',)")
@mutation('sum(n for _, n in largest if n == widest)', 'widest')
def test_a_pattern_of_layers_is_one_turn():
  """ModernBERT's first layer stands before the loop, whose turns have three. What 32 rows more take
  has no kernels in it."""
  (_, one), (_, two) = (estimated(of=modernbert, rows=n * ROWS, **FEW) for n in (1, 2))
  ffn, inner = 96, 6 * WIDTH  # as above, the input among them
  layer = 2 * (inner + 2 * ffn) + 4 * HEADS
  first = 2 * (inner - WIDTH + 2 * ffn)  # its input and sums are small and not marked
  assert two['residuals'] - one['residuals'] == TOKENS * (first + 3 * layer)
  assert two['working'] - one['working'] == TOKENS * 3 * (layer + 4 * 2 * ffn)


@pytest.mark.full
@mutation('key=cheapest)', 'key=cheapest, reverse=True)')
def test_the_cheapest_change_that_fits_is_proposed():
  config, found = estimated()
  search = lambda limit, sizes=ONE: proposal.search(config, synthetic_batch(config), sizes, limit)
  with compiled_step.kernels('tpu', 'TPU v5 lite'):
    # The sum of gradients is more than what half of the rows save, unless they are many.
    state = 3 * found['parameters'] + found['optimizer'] + found['low']
    rest = (found['residuals'] + found['logits']) // 4
    split = search(int(1.1 * (state + rest) / proposal.FULL))
    divided = search(int(0.7 * state), dict(ONE, data=4))
    nothing = search(found['parameters'])
  assert split is not None and 1 < split.microbatches <= 4 and split.fsdp == 1
  assert split.remat == 'light'
  assert divided is not None and divided.fsdp > 1
  assert divided.flags().startswith(f'--config.microbatches={divided.microbatches} --config.mesh')
  assert nothing is None
