"""The estimate from shapes: counted by hand, and what is proposed by it."""

from typing import Any

import pytest
from mutation import mutation

from bertjax.bench import own_step
from bertjax.bench.synthetic import synthetic_batch
from bertjax.config import presets
from bertjax.preflight import compiled_step, estimate, proposal
from configs import bert

ONE = dict(data=1, fsdp=1, tensor=1, sequence=1)
ROWS, LENGTH = 32, 128
LAYERS, WIDTH, HEADS, FFN, WORDS = 2, 64, 8, 256, 30_592  # of bert.py:test, padded


def estimated(sizes: dict[str, int] = ONE, **fields) -> tuple[Any, dict[str, int]]:
  """(config, bytes by class) of BERT's smallest model in bfloat16."""
  config = bert.get_config('test')
  config.preset = 'tpu'
  presets.apply(config, [], {})
  config.update_from_flattened_dict(fields)
  config = own_step.sized(config, ROWS, LENGTH)
  with compiled_step.kernels('tpu', 'TPU v5 lite'):
    return config, estimate.of(config, synthetic_batch(config), sizes)


@mutation(
  'estimate: what is kept outside of the layers counts as theirs',
  'bertjax/preflight/estimate.py',
  "found.items() if eqn.primitive.name == 'scan'}",
  "found.items() if eqn.params.setdefault('length', 1)}",
)
def test_counts_what_a_layer_keeps():
  """light: its input, queries, keys, values, attention, and what three products make of it, all but
  one as wide as the model; and attention's float32 sums."""
  config, found = estimated()
  tokens = ROWS * LENGTH
  assert found['residuals'] == LAYERS * tokens * (2 * (7 * WIDTH + FFN) + 4 * HEADS)
  slots = synthetic_batch(config)['target_pos_BP'].shape[1]
  logits = 2 * 4 * ROWS * slots * WORDS  # with their exponentials
  kernels = 4 * WIDTH * (4 * WIDTH + 2 * FFN)  # float32, of a layer
  heads = 4 * 2 * WIDTH * WIDTH  # of the words and of the first token
  assert found['working'] == max(logits, 4 * tokens * FFN + kernels + heads)


@mutation(
  'estimate: what is computed again counts',
  'bertjax/preflight/estimate.py',
  'return Traced(sum(map(size, scans))',
  'return Traced(sum(map(size, found))',
)
def test_less_is_kept_where_more_is_computed_again():
  kept = {name: estimated(**{'model.remat': name})[1]['residuals'] for name in estimate_policies()}
  assert kept['none'] > kept['light'] > kept['dots'] > kept['full']
  assert kept['full'] == LAYERS * ROWS * LENGTH * WIDTH * 2


def estimate_policies() -> list[str]:
  return ['none', 'light', 'dots', 'full']


def test_a_mesh_divides_parameters_and_rows():
  _, one = estimated()
  _, many = estimated(dict(ONE, data=2, fsdp=4))
  assert many['residuals'] == one['residuals'] // 8
  assert one['parameters'] / 4 <= many['parameters'] < one['parameters'] / 3.8  # norms are whole
  assert many['optimizer'] < one['optimizer'] / 3.8
  _, twice = estimated(microbatches=2)
  assert twice['residuals'] == one['residuals'] // 2
  assert twice['gradients'] == 2 * one['gradients'] == 2 * one['parameters']


@mutation(
  'proposal: the dearest change first',
  'bertjax/preflight/proposal.py',
  'key=cheapest)',
  'key=cheapest, reverse=True)',
)
def test_the_cheapest_change_that_fits_is_proposed():
  config, found = estimated()
  search = lambda limit, sizes=ONE: proposal.search(config, synthetic_batch(config), sizes, limit)
  with compiled_step.kernels('tpu', 'TPU v5 lite'):
    # The sum of gradients is more than what half of the rows save, unless they are many.
    state = found['parameters'] + found['optimizer'] + 2 * found['gradients'] + found['low']
    rest = (found['residuals'] + found['working']) // 4
    split = search(int(1.1 * (state + rest) / proposal.FULL))
    divided = search(int(0.7 * state), dict(ONE, data=4))
    nothing = search(found['parameters'])
  assert split is not None and 1 < split.microbatches <= 4 and split.fsdp == 1
  assert split.remat == 'light'
  assert divided is not None and divided.fsdp > 1
  assert divided.flags().startswith(f'--config.microbatches={divided.microbatches} --config.mesh')
  assert nothing is None


@pytest.mark.parametrize('policy, left', [('none', 4), ('dots', 2), ('full', 1)])
def test_no_proposal_keeps_more(policy, left):
  config = bert.get_config('test')
  config.model.remat = policy
  assert len(proposal.policies(config)) == left
