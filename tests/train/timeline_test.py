"""Which phase a step belongs to, and what a phase overrides."""

import pytest
from ml_collections import ConfigDict
from mutation import mutation

from bertjax.config import timeline as timeline_lib
from bertjax.config.timeline import Draws
from configs import bert

mutation('return phase, cycle * length + rest', 'return phase, rest')


def timeline(total, **named):
  c = bert.get_config('test')
  c.total_steps, c.phases = total, ConfigDict(named)
  return timeline_lib.make(c)


def test_blocks_follow_each_other_and_fill_the_run():
  t = timeline(10, a=dict(share=0.9, length=128), b=dict(share=0.1))
  assert [t.at(s) for s in range(10)] == [(0, s) for s in range(9)] + [(1, 0)]
  assert [p.config.length for p in t.phases] == [128, 512]


def test_turns_repeat_and_count_each_phase_alone():
  t = timeline(7, a=dict(turns=2), b=dict(turns=1))
  assert [t.at(s) for s in range(7)] == [(0, 0), (0, 1), (1, 0), (0, 2), (0, 3), (1, 1), (0, 4)]


def test_every_step_is_met_once_whatever_the_shares():
  for total in (1, 3, 17, 1000):
    t = timeline(total, a=dict(share=0.31), b=dict(share=0.27), c=dict(share=0.42))
    seen = [t.at(s) for s in range(total)]
    assert sum(t.lengths) == total
    assert len(set(seen)) == total
    assert [p for p, _ in seen] == sorted(p for p, _ in seen)


@mutation('for name in _in_order(resolved.phases):', 'for name in sorted(resolved.phases):')
def test_numbers_in_the_names_of_phases_count_as_numbers():
  named = {name: dict(share=0.25) for name in ('phase10', 'phase2', 'phase1', 'warm')}
  assert [p.name for p in timeline(8, **named).phases] == ['phase1', 'phase2', 'phase10', 'warm']


def test_without_phases_the_run_is_one():
  t = timeline(5)
  assert t.phases[0].name == 'main' and t.at(3) == (0, 3)


def test_steps_that_are_left_out_are_counted_from_one():
  c = bert.get_config('test')
  c.skip_steps = (3, (5, 7))
  t = timeline_lib.make(c)
  assert [done for done in range(1, 10) if t.leaves_out(done)] == [3, 5, 6, 7]


@pytest.mark.parametrize('temperature', [1.0, 2.0, 1000.0])
@mutation('** (1 / self.temperature)', '** self.temperature', case='2.0')
def test_phases_are_drawn_by_size_and_temperature(temperature):
  sizes = (100, 900, 7)
  found = Draws(sizes, temperature, 0).steps(20_000)[:, 0].tolist()
  weights = [n ** (1 / temperature) for n in sizes]
  for phase, weight in enumerate(weights):
    share = weight / sum(weights)
    spread = (share * (1 - share) / 20_000) ** 0.5
    assert found.count(phase) / 20_000 == pytest.approx(share, abs=4 * spread)
  # The one before says nothing of the next.
  b_b = sum(x == y == 1 for x, y in zip(found[::2], found[1::2], strict=True)) / 10_000
  assert b_b == pytest.approx((weights[1] / sum(weights)) ** 2, abs=0.02)


@mutation('phase, np.arange(len(own))', 'phase, own')
@mutation("root(self.seed, 'phase of a step')", "root(0, 'phase of a step')")
def test_draws_count_each_phase_alone_and_follow_from_seed_and_step():
  steps = lambda total, seed=0: Draws((10, 20), 1.0, seed).steps(total).tolist()
  seen = steps(50)
  for phase in (0, 1):
    mine = [index for p, index in seen if p == phase]
    assert mine == list(range(len(mine))) and mine
  assert steps(80)[:50] == seen and steps(50, 1) != seen
