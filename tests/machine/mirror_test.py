"""A workdir that is kept in step with a URL, on fsspec's own memory."""

import pathlib

import pytest
from mutation import mutation

from bertjax.errors import UserError
from bertjax.machine import mirror


@mutation('for step in begun - complete:', 'for step in set():')
def test_only_complete_checkpoints_are_fetched_and_states_on_demand(there):
  sent = {'metrics.jsonl': b'{}\n', 'checkpoints/5/manifest.json': b'{}'}
  sent |= {'checkpoints/5/state/x': b'5', 'checkpoints/9/state/x': b'9'}
  there.pipe({f'/b/run/{name}': data for name, data in sent.items()})
  run = mirror.Workdir('memory://b/run')
  here = pathlib.Path(run.path)
  (here / 'checkpoints/7').mkdir(parents=True)
  (here / 'checkpoints/7/manifest.json').write_bytes(b'of another run')
  (here / 'plans').mkdir()
  (here / 'plans/kept').write_bytes(b'')
  run.fetch()
  names = lambda: sorted(p.relative_to(here).as_posix() for p in here.rglob('*') if p.is_file())
  assert names() == ['checkpoints/5/manifest.json', 'metrics.jsonl', 'plans/kept']
  assert not there.exists('/b/run/checkpoints/9')
  run.fetch_checkpoint('5')
  assert 'checkpoints/5/state/x' in names()


@mutation("if owner.get('run') == self._run:", "if owner.get('run') is not None:")
def test_a_run_sends_what_is_not_of_its_host_alone(there):
  run = mirror.Workdir('memory://b/run')
  run.fetch()
  here = pathlib.Path(run.path)
  for name in ('metrics.jsonl', 'lock', 'plans/a', 'tensorboard/e', 'checkpoints/5/manifest.json'):
    (here / name).parent.mkdir(parents=True, exist_ok=True)
    (here / name).write_bytes(b'x')
  run.send()
  sent = sorted(name.removeprefix('/b/run/') for name in there.store)
  assert sent == ['metrics.jsonl', 'owner.json', 'tensorboard/e']
  mirror.Workdir('memory://b/run').fetch()  # a later run
  with pytest.raises(UserError, match='was taken over by process'):
    run.send()


@mutation("      self._copy.prune(f'{CHECKPOINTS}/{step}', names)\n", '')
@mutation('      self._require_ours()\n      self.send_state(', '      self.send_state(')
def test_a_checkpoint_has_no_file_of_a_run_that_was_taken_over(there, tmp_path):
  first, second = (mirror.Workdir('memory://b/run') for _ in range(2))
  first.fetch()
  second.fetch()
  there.pipe({'/b/run/checkpoints/5/state/of_the_first': b'late'})
  (tmp_path / 'state').mkdir()
  (tmp_path / 'state/x').write_bytes(b'x')
  (tmp_path / mirror.MANIFEST).write_bytes(b'{}')
  second.send_state(tmp_path, '5', ['state/x'])
  second.send_manifest(tmp_path, '5', ['state/x'])
  names = {name for name in there.store if '/checkpoints/' in name}
  assert names == {f'/b/run/checkpoints/5/{each}' for each in ('state/x', mirror.MANIFEST)}
  assert 'was taken over by process' in first.taken_over() and not second.taken_over()
  with pytest.raises(mirror.TakenOver):
    first.send_scores(5)


SENT = {  # before the first checkpoint, by a start that was killed
  'config.json': b'{}', 'trackers.json': b'theirs', 'vocab/vocab.json': b'theirs',
  'made_of.json': b'theirs', 'store/heldout/store.json': b'theirs',
}  # fmt: skip
LEFT = {'made_of.json': b'ours', 'store.partial/progress.json': b'ours'}  # here, of prepare


@mutation('path.rmdir()', 'pass', file='bertjax/machine/mirror.py')
@mutation('return first not in (*_SHOWN, OWNER, *unsure)', 'return first not in (*_SHOWN, OWNER)')
@mutation('kept = {*_KEPT, *unsure & {_MADE_OF}}', 'kept = {*_KEPT}')
@pytest.mark.parametrize(
  'there_too, fetched',
  [
    (None, {}),
    ({}, {'trackers.json'}),
    ({'store/store.json': b'{}'}, {*SENT, 'store/store.json'} - {'config.json'}),
    (
      {'checkpoints/5/manifest.json': b'{}'},
      {*SENT, 'checkpoints/5/manifest.json'} - {'store/heldout/store.json'},
    ),
  ],
  ids=['nothing', 'a part', 'the store', 'a checkpoint'],
)
def test_what_was_sent_file_by_file_counts_with_what_is_sent_behind_it(there, there_too, fetched):
  sent = {} if there_too is None else SENT | there_too
  there.pipe({f'/b/run/{name}': data for name, data in sent.items()})
  run = mirror.Workdir('memory://b/run')
  here = pathlib.Path(run.path)
  made = 'config.json vocab/vocab.json vocab/merges.txt store/vocab/vocab.json plans/x'
  for name in (*made.split(), *LEFT):
    (here / name).parent.mkdir(parents=True, exist_ok=True)
    (here / name).write_bytes(b'ours')
  (here / 'vocab.partial').mkdir()
  run.fetch()
  found = {p.relative_to(here).as_posix(): p.read_bytes() for p in here.rglob('*') if p.is_file()}
  assert found == {**LEFT, 'plans/x': b'ours', **{name: sent[name] for name in fetched}}
  empty = [path.name for path in here.rglob('*') if path.is_dir() and not any(path.iterdir())]
  assert empty == ['checkpoints'] * ('checkpoints/5/manifest.json' not in fetched)
