"""Tables of tiles: what they choose, what they refuse, and how the tuner makes them."""

import copy
import json

import pytest
from mutation import mutation

from bertjax.kernels.relative_attention import arg_specs, tuning
from bertjax.kernels.relative_attention.gpu import forward as gpu_forward
from bertjax.kernels.relative_attention.tuning import Call, Entry, Tile
from bertjax.tools.bench.parts import kernel_tune

TPU = {'timed': None, 'entries': [{'kernels': {'both': {'queries': 128, 'keys': 128}}}]}


@pytest.mark.parametrize('file', sorted(tuning.FOLDER.glob('*.json')), ids=lambda file: file.stem)
def test_every_table_can_be_read_and_written(file):
  data = json.loads(file.read_text())
  impl = 'tpu' if file.stem.startswith('tpu') else 'gpu'
  assert tuning.dump(tuning.parse(impl, data), data['timed']) == data


@mutation('in pairs[2:])', 'in pairs[2:3])')
def test_the_first_entry_that_covers_a_call_is_chosen(tmp_path, monkeypatch, caplog):
  monkeypatch.setattr(tuning, 'FOLDER', tmp_path)
  tuning.load.cache_clear()
  data = copy.deepcopy(TPU)
  for conditions in (dict(size=64, length=512), dict(size=64, dtype='float32')):
    side = 128 * (len(data['entries']) + 1)
    entry = conditions | {'kernels': {'both': {'queries': side, 'keys': side}}}
    data['entries'].insert(-1, entry)
  (tmp_path / 'tpu_v9.json').write_text(json.dumps(data))
  (tmp_path / 'tpu.json').write_text(json.dumps(TPU))
  side = lambda *call, kind='TPU v9': tuning.choose('tpu', kind, Call(*call))['both'].keys
  assert side('bfloat16', 1, 64, 512) == 256
  assert side('float32', 1, 64, 513) == 384
  assert side('bfloat16', 1, 64, 513) == side('float32', 1, 128, 128) == 128
  assert not caplog.records
  for length in (512, 9):
    assert side('bfloat16', 1, 64, length, kind='another') == 128
  (said,) = caplog.records  # for two calls
  assert "no tiles were timed on 'another'" in said.getMessage()
  tuning.load.cache_clear()


@pytest.mark.parametrize('impl, kernels, message', [
  ('tpu', {'both': {'queries': 192, 'keys': 192}}, 'a multiple of 128, got Tile'),
  ('tpu', {'both': {'queries': 128, 'keys': 256}}, 'as many queries as keys in both'),
  ('tpu', {'forward': {'queries': 128, 'keys': 128}}, "expected tiles of both; got .'forward'"),
  ('tpu', {'both': {'queries': 128}}, 'expected queries, keys, warps, stages; got'),
  ('gpu', {'forward': {'queries': 48, 'keys': 16}}, 'powers of two from 16, got Tile'),
  ('gpu', {'diagonals': {'queries': 32, 'keys': 16}}, 'as many queries as keys in diagonals'),
  ('gpu', {'keys': {'queries': 32, 'keys': 16, 'warps': 3}}, 'warps and a stage or more'),
])  # fmt: skip
def test_refuses_tiles_that_a_kernel_cannot_have(impl, kernels, message):
  if impl == 'gpu':
    kernels = {name: {'queries': 32, 'keys': 32} for name in tuning.KERNELS['gpu']} | kernels
  with pytest.raises(ValueError, match=message):
    tuning.parse(impl, {'timed': None, 'entries': [{'kernels': kernels}]})


def test_refuses_tables_that_leave_calls_out_and_unknown_fields(tmp_path, monkeypatch):
  data = copy.deepcopy(TPU)
  data['entries'][0]['length'] = 128
  with pytest.raises(ValueError, match='a last entry for all calls, got one with length'):
    tuning.parse('tpu', data)
  with pytest.raises(ValueError, match='expected fields among .* got'):
    tuning.parse('tpu', {'timed': None, 'entries': [{'wide': 1}]})
  monkeypatch.setattr(tuning, 'FOLDER', tmp_path)
  (tmp_path / 'tpu.json').write_text('{"timed": null}')
  with pytest.raises(
    ValueError, match=r'tpu.json: expected .*; remove it; .* --mode=tune writes it'
  ):
    tuning.load.__wrapped__('tpu', 'TPU v9')


@mutation('lambda _, tile: [tile._replace(stages=n) for n in stages]', 'lambda _, tile: ()')
@mutation('min(timed)[1]', 'max(timed)[1]')
def test_the_tuner_keeps_the_fastest_and_names_what_does_not_compile():
  start = dict.fromkeys(tuning.KERNELS['gpu'], Tile(32, 32))
  goal = dict(forward=(128, 64), queries=(64, 128), keys=(16, 64), diagonals=(64, 64))

  def clock(chosen):
    if any(tile.queries == 128 and tile.warps == 4 for tile in chosen.values()):
      raise RuntimeError('out of registers')
    apart = lambda tile, want: sum(abs(a.bit_length() - b.bit_length()) for a, b in zip(tile, want))  # noqa: B905
    shallow = 0.1 * sum(4 - tile.stages for tile in chosen.values())
    return 1 + shallow + sum(apart(tile, goal[name]) for name, tile in chosen.items())

  found = kernel_tune.fastest('gpu', start, kernel_tune.Bench(lambda tiles: tiles, clock), [*start])
  assert {name: tile[:2] for name, tile in found.tiles.items()} == goal
  assert found.tiles['forward'].warps == 8
  assert {tile.stages for tile in found.tiles.values()} == {4}
  assert found.speedup == clock(start) / clock(found.tiles) > 1
  assert {tile.queries for _, tile in found.left_out} == {128}
  assert set(found.left_out.values()) == {'RuntimeError: out of registers'}


@mutation('if speedup > 1 else Found(dict(start)', 'if True else Found(dict(start)')
def test_the_tuner_keeps_what_it_began_with_where_nothing_together_is_faster():
  start = dict.fromkeys(tuning.KERNELS['gpu'], Tile(32, 32))

  def clock(chosen):  # each change alone is faster, two of them are slower
    changed = sum(tile != Tile(32, 32) for tile in chosen.values())
    return (1.0, 0.9, 1.5, 1.5, 1.5)[changed]

  found = kernel_tune.fastest('gpu', start, kernel_tune.Bench(lambda tiles: tiles, clock), [*start])
  assert found.tiles == start and found.speedup == 1.0


@pytest.mark.full
def test_the_tuner_writes_a_table_that_the_kernel_then_uses(tmp_path, monkeypatch):
  """With interpreted kernels: the times say nothing, the way from timing to the next call does."""
  for file in tuning.FOLDER.glob('*.json'):
    (tmp_path / file.name).write_text(file.read_text())
  monkeypatch.setattr(tuning, 'FOLDER', tmp_path)
  monkeypatch.setattr(gpu_forward, 'INTERPRET', True)
  monkeypatch.setattr(kernel_tune, 'candidates', lambda *_: [Tile(16, 16), Tile(32, 32)])
  tuning.load.cache_clear()
  shape = arg_specs.Shape(1, 40, 8, 1, 16, 'causal', table='past')
  rows = list(kernel_tune.rows({'it': shape}, 'gpu', 'float32', 1, 'today'))
  assert rows[-1] == dict(written=str(tmp_path / 'cpu.json'))
  tuning.load.cache_clear()
  table = tuning.load('gpu', 'cpu')
  assert (table[0].dtype, table[0].tables, table[0].size, table[0].length) == (
    'float32', 1, 16, 48,
  )  # fmt: skip
  chosen = tuning.choose('gpu', 'cpu', Call('float32', 1, 16, 48))
  assert {name: tuple(tile) for name, tile in chosen.items()} == {
    name: rows[0][name] for name in tuning.KERNELS['gpu']
  }
  tuning.load.cache_clear()


def test_a_new_entry_replaces_that_of_the_same_call():
  tile = lambda side: dict(both=Tile(side, side))
  rest = Entry(tile(256))
  old = (
    Entry(tile(128), 'bfloat16', 1, 64, 512),
    Entry(tile(128), 'float32', 1, 64, 9),
    rest,
  )
  new = [Entry(tile(512), 'bfloat16', 1, 64, 512), Entry(tile(256), 'bfloat16', 1, 64, 99)]
  table = kernel_tune.merged('tpu', old, new)
  assert table == (new[1], new[0], old[1], rest)
