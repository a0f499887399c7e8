"""Paths elsewhere, on fsspec's own memory."""

import contextlib
import functools
import gzip
import hashlib
import http.server
import socket
import sys
import threading
import time

import processes
import pytest
from mutation import mutation

from bertjax.errors import UserError
from bertjax.machine import checksums, copies, mirror, remote
from bertjax.text import corpus


@mutation("'///' if scheme in _LOCAL else '//'", "'/'")
def test_a_url_is_a_path():
  path = remote.path('memory://bucket/text/a.txt.gz')
  assert str(path) == 'memory://bucket/text/a.txt.gz'
  assert str(path.with_suffix('').parent / 'b') == 'memory://bucket/text/b'
  assert (path.name, path.suffix) == ('a.txt.gz', '.gz')
  assert str(remote.path('file:///tmp/a')) == 'file:///tmp/a'
  assert remote.path(path) == path and remote.is_remote(path)


@mutation('except (ImportError, ValueError) as error:', 'except ValueError as error:')
def test_a_scheme_without_its_package_is_refused_with_the_remedy(monkeypatch, tmp_path):
  monkeypatch.setitem(sys.modules, 'adlfs', None)
  monkeypatch.chdir(tmp_path)
  with pytest.raises(UserError, match='abfs://bucket/run cannot be read.*requirements-storage'):
    mirror.Workdir('abfs://bucket/run')
  with pytest.raises(UserError, match='cannot be read'):
    remote.path('gsx://bucket/run')
  assert not list(tmp_path.iterdir())


@mutation("with path.open('rb') as file:", "with open(path, 'rb') as file:")
def test_a_file_elsewhere_has_the_digest_of_its_bytes(there):
  there.pipe_file('/b/a', b'1')
  assert checksums.of_file(remote.path('memory://b/a')) == hashlib.sha256(b'1').hexdigest()


@pytest.mark.parametrize('kind', [ValueError, type('HttpError', (Exception,), {})])
@mutation('OSError) or is_foreign(error)):', 'OSError)):', case='ValueError')
def test_what_a_service_refuses_names_the_url(there, monkeypatch, kind):
  """Packages have classes of their own, and gcsfs raises ValueError for 'Bad Request'."""

  def refuse(self, path):
    raise kind('Bad Request')

  monkeypatch.setattr(type(there), 'info', refuse)
  with pytest.raises(UserError, match=f'memory://b/a: {kind.__name__}.*Bad Request'):
    remote.path('memory://b/a').exists()


@mutation('if on_disk or not (isinstance(error, OSError) or is_foreign(error)):', 'if on_disk:')
def test_an_error_of_ours_keeps_its_type(there, monkeypatch):
  there.pipe_file('/b/a', b'1')
  monkeypatch.setattr(type(there), 'modified', lambda self, path: None)
  with pytest.raises(AttributeError, match='timestamp'):
    remote.path('memory://b/a').stat()
  monkeypatch.setattr(type(there), 'info', lambda self: 1)
  with pytest.raises(TypeError, match='positional'):
    remote.path('memory://b/a').stat()


@contextlib.contextmanager
def serving(handler):
  """The URL of a web server."""
  pytest.importorskip('aiohttp')
  with http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f'http://127.0.0.1:{server.server_port}'
    server.shutdown()


class _Web(http.server.SimpleHTTPRequestHandler):
  """Serves files, and says nothing of it."""

  log_message = lambda self, *said: None


@mutation('except NotImplementedError:', 'except ZeroDivisionError:')
@mutation("if info.get('size') is None:", 'if False:')
def test_text_of_a_web_server_is_text(tmp_path, monkeypatch):
  monkeypatch.setenv('BERTJAX_CACHE', f'{tmp_path}.cache')
  texts = [f'the {i}\n\n'.encode() for i in range(2000)]
  (tmp_path / 'a.txt.gz').write_bytes(gzip.compress(b''.join(texts)))
  (tmp_path / 'b.jsonl').write_text('{"text": "last"}\n')
  with serving(functools.partial(_Web, directory=str(tmp_path))) as url:
    copied = [copies.local(f'{url}/b.jsonl', beside=beside) for beside in (False, True)]
    assert copied[0].read_text() == copied[1].read_text() == '{"text": "last"}\n'
    opened = corpus.open_files(f'{url}/a.txt.gz,{url}/b.jsonl')
    said = [opened.fingerprint[0][key] for key in ('size', 'mtime_ns')]
    assert [d.strip() for d in opened.records(0)] == [*(t.strip() for t in texts), b'last']
  stat = (tmp_path / 'a.txt.gz').stat()
  assert said == [stat.st_size, int(stat.st_mtime) * 10**9]


class _Unlisted(_Web):
  """Gives files, and no lists of them."""

  def list_directory(self, path):
    self.send_error(403)


@mutation("if getattr(error.__cause__, 'status', None) != 403:", 'if True:', case='False')
@mutation('1 if file else None', 'None', case='True')
@pytest.mark.parametrize('lists', [True, False])
def test_a_web_server_may_keep_its_list_of_files(lists, tmp_path, monkeypatch, caplog):
  monkeypatch.setenv('BERTJAX_CACHE', f'{tmp_path}.cache')
  (tmp_path / 'folder').mkdir()
  (tmp_path / 'folder' / 'c').write_text('c')
  for name in ('a', 'b'):
    (tmp_path / name).write_text(name)
  asked = []

  class Web(_Web if lists else _Unlisted):
    def do_GET(self):
      asked.append(self.path)
      super().do_GET()

  with serving(functools.partial(Web, directory=str(tmp_path))) as url:
    copied = copies.local(f'{url}/a', beside=True)
  assert sorted(file.name for file in copied.parent.glob('[ab]')) == ['a', 'b'][: 1 + lists]
  said = [f'{url} does not list its files' in line for line in caplog.messages]
  assert said == ([] if lists else [True])
  assert not any('folder/' in path for path in asked)


class _Refuses(http.server.BaseHTTPRequestHandler):
  """Answers with the number that begins the path."""

  log_message = lambda self, *said: None

  def do_GET(self):
    self.send_error(int(self.path[1:4]))


@mutation(
  'refused = isinstance(error, FileNotFoundError) and error.__cause__ or error', 'refused = error'
)
@mutation("or getattr(refused, 'status', None) == 404:", ':')
@mutation('    _info(pattern)  #', '    pass  #')
def test_a_web_server_that_refuses_is_not_one_without_the_file():
  with serving(_Refuses) as url:
    assert not remote.path(f'{url}/404/a').exists()
    with pytest.raises(UserError, match='no file matches .*/404/a.txt'):
      corpus.open_files(f'{url}/404/a.txt')
    with pytest.raises(UserError, match='/403/a.txt: ClientResponseError: 403, .*you may use it'):
      corpus.open_files(f'{url}/403/a.txt')
  for asked in ('exists', 'is_file', 'stat', 'read_bytes'):
    with pytest.raises(UserError, match=f'{url}/a: ClientConnectorError: Cannot connect'):
      getattr(remote.path(f'{url}/a'), asked)()
  with pytest.raises(UserError, match=f'{url}/a: ClientConnectorError: Cannot connect'):
    remote.find(f'{url}/a')


@mutation('if waited >= SAY_S:', 'if False:')
def test_a_server_that_never_answers_is_said_and_left(monkeypatch, caplog):
  pytest.importorskip('aiohttp')
  monkeypatch.setattr(remote, 'SAY_S', 0.3)
  monkeypatch.setattr(remote, 'GIVE_UP_S', 1.0)
  with socket.create_server(('127.0.0.1', 0)) as mute:
    url = f'http://127.0.0.1:{mute.getsockname()[1]}/a'
    with pytest.raises(UserError, match=f'{url} has not answered for 1 s: .*goes on'):
      remote.path(url).stat()
    assert f'Waiting for {url}, which has not answered' in caplog.text
    watch = remote._Watch(url)
    with watch:  # it answers
      for _ in range(12):
        time.sleep(0.2)
        watch.moved()


class _Drips(_Refuses):
  """Sends a byte at a time."""

  def do_GET(self):
    self.send_response(200)
    self.send_header('Content-Length', '5')
    self.end_headers()
    for _ in range(5):
      time.sleep(0.2)
      self.wfile.write(b'a')
      self.wfile.flush()


@mutation('    elif scheme in (', '    elif False and scheme in (')
def test_a_file_that_comes_slowly_comes(monkeypatch, tmp_path):
  aiohttp, http = pytest.importorskip('aiohttp'), pytest.importorskip('fsspec.implementations.http')
  monkeypatch.setattr(aiohttp.client, 'DEFAULT_TIMEOUT', aiohttp.ClientTimeout(total=0.5))
  http.HTTPFileSystem.clear_instance_cache()
  with serving(_Drips) as url:
    file_system, there = remote.at(f'{url}/a')
    file_system.get_file(there, str(tmp_path / 'a'))
  assert (tmp_path / 'a').read_bytes() == b'aaaaa'


def test_a_refused_connection_names_the_url(monkeypatch):
  s3fs = pytest.importorskip('s3fs')
  told = dict(
    AWS_ENDPOINT_URL=f'http://127.0.0.1:{processes.free_port()}', AWS_ACCESS_KEY_ID='nobody',
    AWS_SECRET_ACCESS_KEY='nothing', AWS_DEFAULT_REGION='us-east-1', AWS_MAX_ATTEMPTS='1',
  )  # fmt: skip
  for name, value in told.items():
    monkeypatch.setenv(name, value)
  monkeypatch.setattr(s3fs.S3FileSystem, 'retries', 1)
  with pytest.raises(UserError, match='s3://bucket/a: .*onnect'):
    remote.path('s3://bucket/a').exists()
