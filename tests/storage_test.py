"""What is asked of files elsewhere, on fsspec's own memory; object_store_test has servers."""

import pathlib
import sys

import fsspec
import pytest
from mutation import mutation

from bertjax import mirror, storage
from bertjax.errors import UserError


@pytest.fixture
def there(tmp_path, monkeypatch):
  """An empty file system, and a cache for this host."""
  monkeypatch.setenv('BERTJAX_CACHE', str(tmp_path / 'cache'))
  found = fsspec.filesystem('memory')
  found.store.clear()
  found.pseudo_dirs[:] = ['']
  return found


def silent(line):
  del line


def refuse(line):
  raise AssertionError(f'copied again: {line}')


@pytest.mark.parametrize('text', ['runs/a', '/runs/a', 'C:/runs', 'tfds:wiki/2', 'en=a.txt', ''])
def test_what_is_no_url_is_local(text):
  assert not storage.is_remote(text)
  assert storage.path(text) == pathlib.Path(text)
  assert storage.local(text) == pathlib.Path(text)


@mutation(
  'storage: a path elsewhere loses a slash',
  'bertjax/storage.py',
  "'///' if scheme in _LOCAL else '//'",
  "'/'",
)
def test_a_url_is_a_path():
  path = storage.path('memory://bucket/text/a.txt.gz')
  assert str(path) == 'memory://bucket/text/a.txt.gz'
  assert str(path.with_suffix('').parent / 'b') == 'memory://bucket/text/b'
  assert (path.name, path.suffix) == ('a.txt.gz', '.gz')
  assert str(storage.path('file:///tmp/a')) == 'file:///tmp/a'
  assert storage.path(path) == path and storage.is_remote(path)


@mutation(
  'storage: a missing package is a traceback',
  'bertjax/storage.py',
  'except (ImportError, ValueError) as error:',
  'except ValueError as error:',
)
def test_a_scheme_without_its_package_is_refused_with_the_remedy(monkeypatch, tmp_path):
  monkeypatch.setitem(sys.modules, 'adlfs', None)
  monkeypatch.chdir(tmp_path)
  with pytest.raises(UserError, match=r'abfs://bucket/run cannot be read.*bertjax\[storage\]'):
    mirror.Workdir('abfs://bucket/run')
  with pytest.raises(UserError, match='cannot be read'):
    storage.path('gsx://bucket/run')
  assert not list(tmp_path.iterdir())


@mutation(
  'storage: what changed elsewhere is not copied again',
  'bertjax/storage.py',
  'self._known.get(name) != [token, *_seen(file)]',
  'name not in self._known',
)
def test_a_copy_is_made_once_and_again_where_a_side_changed(there):
  there.pipe({'/b/store/a': b'first', '/b/store/sub/c': b'same'})
  here = storage.local('memory://b/store', silent)
  assert (here / 'a').read_bytes() == b'first' and (here / 'sub/c').read_bytes() == b'same'
  assert storage.local('memory://b/store', refuse) == here
  there.pipe_file('/b/store/a', b'other')  # of the same size
  assert (storage.local('memory://b/store', silent) / 'a').read_bytes() == b'other'
  (here / 'sub/c').write_bytes(b'torn')
  assert (storage.local('memory://b/store', silent) / 'sub/c').read_bytes() == b'same'


@mutation(
  'storage: a name leads out of the copy',
  'bertjax/storage.py',
  "if name.startswith('/') or '..' in name.split('/'):",
  'if False:',
)
@pytest.mark.parametrize('name', ['../evil', 'a/../../evil', '/evil'])
def test_a_name_that_leads_out_of_the_copy_is_refused(there, monkeypatch, name):
  found = {f'/b/store/{name}': dict(type='file', size=4)}
  monkeypatch.setattr(type(there), 'find', lambda self, path, detail: found)
  with pytest.raises(UserError, match='would lie outside'):
    storage.local('memory://b/store', silent)


def test_one_file_comes_alone_or_with_its_neighbours(there):
  there.pipe({'/b/v/vocab.json': b'1', '/b/v/merges.txt': b'2', '/b/v/deep/x': b'3'})
  here = storage.local('memory://b/v/vocab.json', silent)
  assert here.read_bytes() == b'1' and not here.with_name('merges.txt').exists()
  here = storage.local('memory://b/v/vocab.json', silent, beside=True)
  assert here.with_name('merges.txt').exists() and not here.with_name('deep').exists()
  with pytest.raises(UserError, match='there is nothing at memory://b/none'):
    storage.local('memory://b/none', silent)


@mutation(
  'storage: the marker of an older store stays while parts change',
  'bertjax/storage.py',
  'if marker and marker[1] in there:',
  'if marker is None:',
)
def test_the_marker_is_sent_last_and_an_old_one_goes_first(there, monkeypatch):
  there.pipe({'/b/store/store.json': b'old', '/b/store/part': b'old'})
  events = []
  for name in ('pipe_file', 'rm_file'):
    do = getattr(type(there), name)
    heard = lambda self, path, *more, name=name, do=do, **options: (
      events.append((name, path.rpartition('/')[2])),
      do(self, path, *more, **options),
    )
    monkeypatch.setattr(type(there), name, heard)
  with storage.output('memory://b/store', 'store.json', silent) as here:
    assert (here / 'part').read_bytes() == b'old'
    for name in ('part', 'store.json', 'torn.tmp'):
      (here / name).write_bytes(b'new')
  assert events == [('rm_file', 'store.json'), ('pipe_file', 'part'), ('pipe_file', 'store.json')]
  assert there.cat_file('/b/store/store.json') == b'new'


def test_files_are_found_by_glob_by_folder_and_alone(there):
  there.pipe({'/b/t/a.txt': b'1', '/b/t/b.txt': b'2', '/b/t/sub/c.md': b'3'})
  names = lambda pattern: [str(path) for path in storage.find(pattern)]
  assert names('memory://b/t/*.txt') == ['memory://b/t/a.txt', 'memory://b/t/b.txt']
  assert names('memory://b/t/a.txt') == ['memory://b/t/a.txt']
  assert len(names('memory://b/t')) == 3
  with storage.find('memory://b/t/b.txt')[0].open() as file:
    assert file.readline(100) == b'2'


@mutation(
  'mirror: a checkpoint without its manifest is fetched',
  'bertjax/mirror.py',
  'for step in begun - complete:',
  'for step in set():',
)
def test_only_complete_checkpoints_are_fetched_and_states_on_demand(there):
  there.pipe(
    {
      '/b/run/metrics.jsonl': b'{}\n',
      '/b/run/checkpoints/5/manifest.json': b'{}',
      '/b/run/checkpoints/5/state/x': b'5',
      '/b/run/checkpoints/9/state/x': b'9',
    }
  )
  run = mirror.Workdir('memory://b/run', silent)
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


def test_a_look_at_a_run_changes_nothing_there(there):
  there.pipe({'/b/run/config.json': b'{}', '/b/run/checkpoints/9/state/x': b'under way'})
  before = dict(there.store)
  here, _ = mirror.opened('memory://b/run', silent)
  assert (here / 'config.json').exists() and there.store.keys() == before.keys()


def test_a_run_sends_what_is_not_of_its_host_alone(there):
  run = mirror.Workdir('memory://b/run', silent)
  run.fetch()
  here = pathlib.Path(run.path)
  for name in ('metrics.jsonl', 'lock', 'plans/a', 'tensorboard/e', 'checkpoints/5/manifest.json'):
    (here / name).parent.mkdir(parents=True, exist_ok=True)
    (here / name).write_bytes(b'x')
  run.send()
  sent = sorted(name.removeprefix('/b/run/') for name in there.store)
  assert sent == ['metrics.jsonl', 'owner.json', 'tensorboard/e']
  mirror.Workdir('memory://b/run', silent).fetch()  # a later run
  with pytest.raises(UserError, match='was taken over by process'):
    run.send()
