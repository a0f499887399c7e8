"""Damage to what lies on the disk: refused by the file's name or made again, never trained on."""

import json
import pathlib
import random
import re
import shutil
from collections.abc import Callable

import processes
import pytest
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
from tests.faults.bench import Bench, Case, bit_equal

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
  """Requires a UserError that names a file."""
  with pytest.raises(UserError, match=re.escape(name)):
    work()


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
        raise AssertionError(f'{file} is damaged, and what is said to be is {found}')
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
      raise AssertionError(f'{file} is damaged, and checkpoint {taken} is taken')
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
    raise AssertionError('a run over damaged tokens has ended well, or saved')
  assert 'tokens-00000.npy: expected sha256' in done.stderr and 'Traceback' not in done.stderr


def of(what: str, work: Callable, name: str, *args) -> Case:
  return Case(f'damage to a {what}', name, lambda bench: work(bench, *args))


CASES = [
  of('store', damaged_store, '10 flipped bits of tokens', 'tokens-*.npy', flip, 10),
  of('store', damaged_store, '12 flipped bits of other files', '*[!0-9].npy', flip, 12),
  of('store', damaged_store, '3 of the vocabulary', 'vocab/*', flip, 3),
  of('store', damaged_store, '5 of held-out text', 'heldout/*.npy', flip, 5),
  of('store', damaged_store, '10 of store.json', 'store.json', flip, 10),
  of('store', damaged_store, '6 files that were cut', '*.npy', cut, 6),
  of('store', damaged_store, 'store.json is all zeros', 'store.json', zero, 1),
  of('store', run_over_damage, 'a run over a flipped bit'),
  of('plan', damaged_plan, '12 flipped bits', '*.npy', flip, 12),
  of('plan', damaged_plan, '6 of its record', 'record.json', flip, 6),
  of('plan', damaged_plan, '3 files that were cut', '*.npy', cut, 3),
  of('plan', damaged_plan, 'a file is missing', 'length.npy', remove),
  of('plan', damaged_plan, 'the record is {}', 'record.json', says('{}')),
  of('plan', damaged_plan, 'the record is all zeros', 'record.json', zero),
  of('checkpoint', damaged_checkpoint, '10 flipped bits', 'state/**/*', flip, 10),
  of('checkpoint', damaged_checkpoint, '6 of its manifest', 'manifest.json', flip, 6),
  of('checkpoint', damaged_checkpoint, '4 files that were cut', 'state/**/*[!t]', cut, 4),
  of('checkpoint', damaged_checkpoint, 'a file is missing', 'state/d/*', remove),
  of('checkpoint', damaged_checkpoint, 'the manifest is {}', 'manifest.json', says('{}')),
  of('checkpoint', damaged_checkpoint, 'the manifest is all zeros', 'manifest.json', zero),
  of('checkpoint', damaged_checkpoint, 'the manifest is missing', 'manifest.json', remove),
  of('checkpoint', every_checkpoint, 'all of them'),
  of('checkpoint', of_the_future, 'one of the future'),
  of('workdir', damaged_config, 'config.json is empty', says('')),
  of('workdir', damaged_config, 'config.json is torn', cut),
  of('workdir', damaged_config, 'config.json is all zeros', zero),
  of('workdir', damaged_config, 'config.json is []', says('[]')),
  of('workdir', damaged_config, 'config.json is no UTF-8', says(b'\xff\xfe\0')),
  of('workdir', damaged_config, 'config.json lacks the config',
     says(json.dumps(dict(format=resume.FORMAT)))),
  of('workdir', of_another_format, 'config.json is of another format'),
  of('workdir', damaged_metrics, 'metrics.jsonl: a line is torn', lambda line: line[:20] + b'\n'),
  of('workdir', damaged_metrics, 'metrics.jsonl: a line is all zeros',
     lambda line: bytes(len(line) - 1) + b'\n'),
  of('workdir', damaged_metrics, 'metrics.jsonl: a line lacks its step',
     lambda line: re.sub(b'"step"', b'"stop"', line)),
  of('workdir', damaged_metrics, 'metrics.jsonl: a line is noise', lambda line: b'\xff\xfe' + line),
  of('workdir', damaged_history, 'saved.json is torn', 'saved.json', cut),
  of('workdir', damaged_history, 'checkpoints/ has vanished', 'checkpoints', remove),
  of('workdir', damaged_made_of, 'made_of.json is torn', cut),
  of('workdir', damaged_made_of, 'made_of.json is []', says('[7]')),
  of('workdir', rerun, 'checkpoint, scores, last line, starts/ and picture of a run', several,
     'Falling back to checkpoint', '40 is damaged'),
  of('workdir', rerun, 'the newest two checkpoints have vanished', no_checkpoint_but,
     'going on from 30'),
]  # fmt: skip
