"""Damage to what lies on the disk: refused by the file's name or made again, never trained on."""

import functools
import json
import pathlib
import random
import re
import shutil
from collections.abc import Callable

import processes
import toy_store

from bertjax.checkpoint import manifest, reading, resume
from bertjax.errors import UserError
from bertjax.machine import checksums, durable
from bertjax.metrics import lines
from bertjax.store import cache, verify
from bertjax.store import ensure as ensure_store
from bertjax.store.reader import open_store
from configs import bert
from tests.faults import small
from tests.faults.campaign import Bench, Case, Silent, bit_equal

Damage = Callable[[pathlib.Path, random.Random], None]


def flip(path: pathlib.Path, draw: random.Random) -> None:
  """Flips a bit anywhere."""
  whole = bytearray(path.read_bytes())
  whole[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
  path.write_bytes(whole)


def cut(path: pathlib.Path, draw: random.Random) -> None:
  whole = path.read_bytes()
  path.write_bytes(whole[: draw.randrange(len(whole))])


def zero(path: pathlib.Path, draw: random.Random) -> None:
  """As after a power cut: the size is there, the text is not."""
  del draw
  path.write_bytes(bytes(path.stat().st_size))


def remove(path: pathlib.Path, draw: random.Random) -> None:
  del draw
  path.unlink() if path.is_file() else shutil.rmtree(path)


def says(text: str | bytes) -> Damage:
  """Puts something else in its place."""
  return lambda path, draw: path.write_bytes(text if isinstance(text, bytes) else text.encode())


def refused(name: str, work: Callable[[], object]) -> None:
  """Requires a UserError that names a file.

  Raises:
    Silent: there was none.
  """
  try:
    work()
  except UserError as error:
    assert name in str(error), f'expected {name} in: {error}'
  else:
    raise Silent(f'{name} is damaged, and nothing was refused')


def damaged_store(bench: Bench, name: str, damage: Damage, times: int = 1) -> None:
  """One file after the other, each whole again before the next."""
  path = bench.folder / 'store'
  toy_store.on_disk(path, parts=3, units=True, vocabulary=True)
  toy_store.on_disk(path / 'heldout', documents=20, seed=1)
  files = sorted(path.glob(name))
  for number in range(times):
    file = files[number % len(files)]
    whole = file.read_bytes()
    damage(file, bench.random)
    if file.name == 'store.json':
      refused('store', lambda: open_store(path))
    else:
      found = [said.partition(': ')[0] for said in verify.faults(path)]
      if found != [str(file)]:
        raise Silent(f'{file} is damaged, and what is said to be is {found}')
    file.write_bytes(whole)
  assert not [*verify.faults(path)]


def damaged_plan(bench: Bench, name: str, damage: Damage, times: int = 1) -> None:
  """The plan is built again, and is right."""
  store = small.plan_store(bench.folder / 'store')
  plan = small.right_plan(store)
  files = sorted(plan.glob(name))
  for number in range(times):
    damage(files[number % len(files)], bench.random)
    assert cache.fault(plan)
    assert small.right_plan(store) == plan


def workdir_of(bench: Bench) -> pathlib.Path:
  """A copy of the finished run."""
  return pathlib.Path(shutil.copytree(bench.shared.straight, bench.folder / 'run'))


def damaged_checkpoint(bench: Bench, name: str, damage: Damage, times: int = 1) -> None:
  """The newest intact one is taken instead."""
  workdir = workdir_of(bench)
  newest = workdir / 'checkpoints/40'
  files = sorted(p for p in newest.glob(name) if p.is_file())
  for number in range(times):
    file = files[number % len(files)]
    whole = file.read_bytes()
    damage(file, bench.random)
    taken = reading.newest(workdir).name
    if taken != '36':
      raise Silent(f'{file} is damaged, and checkpoint {taken} is taken')
    file.write_bytes(whole)
  assert reading.newest(workdir) == newest


def every_checkpoint(bench: Bench) -> None:
  workdir = workdir_of(bench)
  for path in workdir.glob('checkpoints/*/manifest.json'):
    flip(path, bench.random)
  refused('checkpoints', lambda: reading.newest(workdir))


def of_the_future(bench: Bench) -> None:
  """A manifest that a newer bertjax has written is no damage, and not passed over."""
  workdir = workdir_of(bench)
  path = workdir / 'checkpoints/40'
  body = manifest.read(path) | dict(format=99)
  durable.write_json(path / manifest.NAME, dict(body, sha256=checksums.digest(body)))
  refused('format 99', lambda: manifest.read(reading.newest(workdir)))


def damaged_config(bench: Bench, damage: Damage) -> None:
  workdir = workdir_of(bench)
  damage(workdir / 'config.json', bench.random)
  refused('config.json', lambda: resume.stored(workdir))


def of_another_format(bench: Bench) -> None:
  workdir = workdir_of(bench)
  found = json.loads((workdir / 'config.json').read_bytes())
  (workdir / 'config.json').write_text(json.dumps(found | dict(format=99)))
  refused('format 99', lambda: resume.stored(workdir))


def damaged_history(bench: Bench, name: str, damage: Damage) -> None:
  workdir = workdir_of(bench)
  damage(workdir / name, bench.random)
  refused(name, lambda: resume.check_history(workdir))


def damaged_made_of(bench: Bench, damage: Damage) -> None:
  record = bench.folder / ensure_store.RECORD
  record.write_text('{"input": "a.txt"}')
  damage(record, bench.random)
  data = bert.get_config('test').data
  refused(record.name, lambda: ensure_store.clear_others(data, 0, str(bench.folder)))


def damaged_metrics(bench: Bench, damage: Callable[[bytes], bytes]) -> None:
  """A line in the middle; `damage` turns it into another one."""
  path = workdir_of(bench) / 'metrics.jsonl'
  all_lines = path.read_bytes().splitlines(keepends=True)
  all_lines[7] = damage(all_lines[7])
  path.write_bytes(b''.join(all_lines))
  refused('metrics.jsonl, line 8', lambda: lines.read(path))


def rerun(bench: Bench, damage: Callable[[pathlib.Path], None], *said: str) -> None:
  """The command of the finished run, once more: it mends what it can, and ends as it did."""
  workdir = workdir_of(bench)
  damage(workdir)
  done = processes.run(bench.store, workdir)
  assert done.returncode == 0 and 'Traceback' not in done.stderr, done.stderr
  for each in said:
    assert each in done.stdout + done.stderr, done.stdout + done.stderr
  bit_equal(workdir, bench.shared.straight)


def several(workdir: pathlib.Path) -> None:
  """The newest checkpoint, the scores of the one before it, a line that a kill has torn, and what
  is kept for people alone."""
  flip(max(workdir.glob('checkpoints/40/state/d/*')), random.Random(0))
  (workdir / 'checkpoints/36/scores.json').write_text('{"scores": {"eval/mlm": ')
  with open(workdir / 'metrics.jsonl', 'a') as file:
    file.write('{"step": 41, "lo')
  (workdir / 'starts/00001.json').write_bytes(b'')
  (workdir / 'curves.png').write_bytes(b'')


def no_checkpoint_but(workdir: pathlib.Path) -> None:
  """The newest two have vanished, without a trace but for what was noted of them."""
  for step in ('36', '40'):
    shutil.rmtree(workdir / 'checkpoints' / step)


def run_over_damage(bench: Bench) -> None:
  """A page of the store was spoilt, and the run is told while it trains."""
  store = pathlib.Path(shutil.copytree(bench.store, bench.folder / 'store'))
  flip(store / 'tokens-00000.npy', random.Random(1))
  workdir = bench.folder / 'run'
  done = processes.run(store, workdir, '--config.checkpoint_steps=1')
  if done.returncode == 0 or list((workdir / 'checkpoints').iterdir()):
    raise Silent('a run over damaged tokens has ended well, or saved')
  assert 'tokens-00000.npy: expected sha256' in done.stderr and 'Traceback' not in done.stderr


def store_case(name: str, files: str, damage: Damage, times: int) -> Case:
  work = functools.partial(damaged_store, name=files, damage=damage, times=times)
  return Case('damage to a store', name, work, times)


def plan_case(name: str, files: str, damage: Damage, times: int = 1) -> Case:
  work = functools.partial(damaged_plan, name=files, damage=damage, times=times)
  return Case('damage to a plan', name, work, times)


def checkpoint_case(name: str, files: str, damage: Damage, times: int = 1) -> Case:
  work = functools.partial(damaged_checkpoint, name=files, damage=damage, times=times)
  return Case('damage to a checkpoint', name, work, times)


def config_case(name: str, damage: Damage) -> Case:
  work = functools.partial(damaged_config, damage=damage)
  return Case('damage to a workdir', f'config.json {name}', work)


def metrics_case(name: str, damage: Callable[[bytes], bytes]) -> Case:
  work = functools.partial(damaged_metrics, damage=damage)
  return Case('damage to a workdir', f'a line of metrics.jsonl {name}', work)


def history_case(name: str, file: str, damage: Damage) -> Case:
  work = functools.partial(damaged_history, name=file, damage=damage)
  return Case('damage to a workdir', name, work)


def workdir_case(name: str, work: Callable[[Bench], None], tries: int = 1) -> Case:
  return Case('damage to a workdir', name, work, tries)


CASES = [
  store_case('10 flipped bits of tokens', 'tokens-*.npy', flip, 10),
  store_case('12 flipped bits of other files', '*[!0-9].npy', flip, 12),
  store_case('3 of the vocabulary', 'vocab/*', flip, 3),
  store_case('5 of held-out text', 'heldout/*.npy', flip, 5),
  store_case('10 of store.json', 'store.json', flip, 10),
  store_case('6 files that were cut', '*.npy', cut, 6),
  store_case('store.json is all zeros', 'store.json', zero, 1),
  Case('damage to a store', 'a run over a flipped bit', run_over_damage),
  plan_case('12 flipped bits', '*.npy', flip, 12),
  plan_case('6 of its record', 'record.json', flip, 6),
  plan_case('3 files that were cut', '*.npy', cut, 3),
  plan_case('a file is missing', 'length.npy', remove),
  plan_case('the record is {}', 'record.json', says('{}')),
  plan_case('the record is all zeros', 'record.json', zero),
  checkpoint_case('10 flipped bits', 'state/**/*', flip, 10),
  checkpoint_case('6 of its manifest', 'manifest.json', flip, 6),
  checkpoint_case('4 files that were cut', 'state/**/*[!t]', cut, 4),
  checkpoint_case('a file is missing', 'state/d/*', remove),
  checkpoint_case('the manifest is {}', 'manifest.json', says('{}')),
  checkpoint_case('the manifest is all zeros', 'manifest.json', zero),
  checkpoint_case('the manifest is missing', 'manifest.json', remove),
  Case('damage to a checkpoint', 'all of them', every_checkpoint),
  Case('damage to a checkpoint', 'one of the future', of_the_future),
  config_case('is empty', says('')),
  config_case('is torn', cut),
  config_case('is all zeros', zero),
  config_case('is []', says('[]')),
  config_case('is no UTF-8', says(b'\xff\xfe\0')),
  config_case('lacks the config', says(json.dumps(dict(format=resume.FORMAT)))),
  workdir_case('config.json is of another format', of_another_format),
  metrics_case('is torn', lambda line: line[:20] + b'\n'),
  metrics_case('is all zeros', lambda line: bytes(len(line) - 1) + b'\n'),
  metrics_case('lacks its step', lambda line: re.sub(b'"step"', b'"stop"', line)),
  metrics_case('is noise', lambda line: b'\xff\xfe' + line),
  history_case('saved.json is torn', 'saved.json', cut),
  history_case('checkpoints/ has vanished', 'checkpoints', remove),
  workdir_case('made_of.json is torn', functools.partial(damaged_made_of, damage=cut)),
  workdir_case('made_of.json is []', functools.partial(damaged_made_of, damage=says('[7]'))),
  workdir_case(
    'checkpoint, scores, last line, starts/ and picture of a run', lambda b: rerun(
      b, several, 'Falling back to checkpoint', '40 is damaged'), 5),
  workdir_case(
    'the newest two checkpoints have vanished', lambda b: rerun(
      b, no_checkpoint_but, 'going on from 30'), 2),
]  # fmt: skip
