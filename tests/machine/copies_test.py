"""Copies of what lies elsewhere, on fsspec's own memory; object_store_test has servers."""

import pytest
from mutation import mutation
from no_room import no_room

from bertjax.errors import UserError
from bertjax.machine import copies


def silent(line):
  del line


def refuse(line):
  raise AssertionError(f'copied again: {line}')


@mutation('self._known.get(name) != [token, *_seen(file)]', 'name not in self._known')
def test_a_copy_is_made_once_and_again_where_a_side_changed(there):
  there.pipe({'/b/store/a': b'first', '/b/store/sub/c': b'same'})
  here = copies.local('memory://b/store', silent)
  assert (here / 'a').read_bytes() == b'first' and (here / 'sub/c').read_bytes() == b'same'
  assert copies.local('memory://b/store', refuse) == here
  there.pipe_file('/b/store/a', b'other')  # of the same size
  assert (copies.local('memory://b/store', silent) / 'a').read_bytes() == b'other'
  (here / 'sub/c').write_bytes(b'torn')
  assert (copies.local('memory://b/store', silent) / 'sub/c').read_bytes() == b'same'


@mutation('    copy.drop(wanted, names)\n', '')
@mutation('if not names or not here', 'if not here')
@mutation('if wanted(name) and name not in there]', 'if name not in there]')
def test_what_is_no_longer_there_is_not_in_the_copy(there):
  """Made here, it stays, and so do files beside the one that is asked for."""
  there.pipe({'/b/v/vocab.txt': b'a', '/b/v/tokenizer_config.json': b'{}', '/b/v/other': b'x'})
  here = copies.local('memory://b/v', silent)
  (here / 'plan').write_bytes(b'made here')
  there.rm_file('/b/v/tokenizer_config.json')
  copies.local('memory://b/v/vocab.txt', silent)
  assert (here / 'tokenizer_config.json').exists()
  copies.local('memory://b/v', silent)
  assert sorted(path.name for path in here.iterdir()) == ['other', 'plan', 'vocab.txt']
  there.rm_file('/b/v/vocab.txt')
  with pytest.raises(UserError, match='there is nothing at memory://b/v/vocab.txt'):
    copies.local('memory://b/v/vocab.txt', silent)


@mutation("if name.startswith('/') or '..' in name.split('/'):", 'if False:')
@pytest.mark.parametrize('name', ['../evil', 'a/../../evil', '/evil'])
def test_a_name_that_leads_out_of_the_copy_is_refused(there, monkeypatch, name):
  found = {f'/b/store/{name}': dict(type='file', size=4)}
  monkeypatch.setattr(type(there), 'find', lambda self, path, **how: found)
  with pytest.raises(UserError, match='would lie outside'):
    copies.local('memory://b/store', silent)


@mutation('if marker and marker[1] in there:', 'if marker is None:')
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
  with copies.output('memory://b/store', 'store.json') as here:
    assert (here / 'part').read_bytes() == b'old'
    for name in ('part', 'store.json', 'torn.tmp'):
      (here / name).write_bytes(b'new')
  assert events == [('rm_file', 'store.json'), ('pipe_file', 'part'), ('pipe_file', 'store.json')]
  assert there.cat_file('/b/store/store.json') == b'new'


@mutation('copy.drop(lambda name: True, copy', '(copy')
@mutation('if marker and marker not in self._known:', 'if marker:')
@mutation('if marker and marker not in self._known:', 'if False:')
@mutation('    self._note.unlink(missing_ok=True)\n    self._known.clear()\n', '')
def test_what_was_removed_there_is_not_sent_again(there):
  def written(*names):
    with copies.output('memory://b/store', 'store.json') as here:
      here.mkdir(parents=True, exist_ok=True)
      before = sorted(path.name for path in here.iterdir())
      for name in names:
        (here / name).write_bytes(b'new')
      if 'fails' in names:
        raise UserError('fails')
    return before

  assert written('store.json', 'part', 'more') == []
  there.rm_file('/b/store/more')
  assert written() == ['part', 'store.json'] and not there.exists('/b/store/more')
  there.rm('/b/store', recursive=True)
  with pytest.raises(UserError):  # what was not sent yet stays
    assert written('store.json', 'fails') == []
  assert written() == ['fails', 'store.json'] and there.exists('/b/store/store.json')


@mutation('lambda _: copy.url', "lambda _: ''")
def test_what_is_wrong_with_the_output_names_its_url(there):
  with pytest.raises(UserError) as caught, copies.output('memory://b/store/', '') as here:
    raise UserError(f'{here} exists, {here}/a is no store, {here}.partial neither')
  assert str(caught.value) == (
    f'memory://b/store exists, memory://b/store/a is no store, {here}.partial neither'
  )


@mutation("remote.explained(f'{self.url}/{name}'), contextlib.suppress", 'contextlib.suppress')
def test_what_the_service_refuses_names_the_url(there, monkeypatch):
  def refuse(self, path, **options):
    raise ValueError('Bad Request')

  there.pipe({'/b/run/a': b'1'})
  copy = copies.Copy('memory://b/run', 'copies')
  assert copy.read('none') is None
  monkeypatch.setattr(type(there), 'rm_file', refuse)
  monkeypatch.setattr(type(there), 'cat_file', refuse)
  for ask in (lambda: copy.read('a'), lambda: copy.remove('', 'a')):
    with pytest.raises(UserError, match='memory://b/run/a: .*Bad Request'):
      ask()


@mutation("with writing(f'a copy of {url}', part), remote", 'with remote')
def test_a_full_disk_says_what_was_copied(there):
  there.pipe({'/b/store/a': b'first'})
  copies.local('memory://b/store', silent)
  there.pipe({'/b/store/a': bytes(2**16)})
  with pytest.raises(OSError, match="while writing a copy of memory://b/store/a: '.*a.part'"):
    with no_room(2**14):  # of the notes
      copies.local('memory://b/store', silent)


@mutation("or [str(info['size'])])", ')')
def test_a_file_of_another_size_is_another_one():
  """Some file systems say nothing of a file but its size, others have words of their own."""
  assert copies._token(dict(size=3)) != copies._token(dict(size=4))
  for key in ('modificationTime', 'blob_id', 'last_modified', 'Last-Modified'):
    one, two = ({'size': 3, key: value} for value in (1, 2))
    assert copies._token(one) != copies._token(two)


@mutation("if info['size'] < seen[0]:", "if info['size'] != seen[0]:")
def test_a_large_file_that_grows_while_it_is_sent_is_sent_again(there, monkeypatch):
  monkeypatch.setattr(copies, '_WHOLE', 4)
  put = type(there).put_file

  def grown(self, source, target, **options):
    with open(source, 'ab') as file:
      file.write(b'a line\n')
    put(self, source, target, **options)

  copy = copies.Copy('memory://b/run', 'runs/0')
  copy.here.mkdir(parents=True)
  (copy.here / 'metrics.jsonl').write_bytes(b'a line\n')
  with monkeypatch.context() as patched:
    patched.setattr(type(there), 'put_file', grown)
    copy.push(copy.here, '')
  (copy.here / 'metrics.jsonl').write_bytes(b'a line\n' * 3)
  copy.push(copy.here, '')
  assert there.cat_file('/b/run/metrics.jsonl') == b'a line\n' * 3
  monkeypatch.setattr(type(there), 'put_file', lambda *given, **options: None)
  (copy.here / 'metrics.jsonl').write_bytes(b'a line\n' * 4)
  with pytest.raises(UserError, match='expected 28 bytes there, got 21'):
    copy.push(copy.here, '')
