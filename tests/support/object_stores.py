"""Servers on this machine that speak the protocols of gs:// and s3://."""

import contextlib
import pathlib
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import fsspec
import processes
import pytest

GS = ('gcp_storage_emulator', 'start', '--host=127.0.0.1', '--in-memory', '--default-bucket=bucket')
S3 = ('moto.server', '-H', '127.0.0.1')


@contextlib.contextmanager
def serving(scheme: str, folder: pathlib.Path) -> Iterator[str]:
  """A server with an empty bucket; this process and its children find it. Yields the bucket's URL.

  Args:
    scheme: gs or s3.
    folder: for the server's log, and for the copies of this host.
  """
  pytest.importorskip('gcsfs' if scheme == 'gs' else 's3fs')
  module, *arguments = GS if scheme == 'gs' else S3
  pytest.importorskip(module.partition('.')[0])
  port = processes.free_port()
  url = f'http://127.0.0.1:{port}'
  command = [sys.executable, '-m', module, *arguments, *(f'--port={port}',)]
  told = dict(
    STORAGE_EMULATOR_HOST=url,
    GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT='false',  # asks Google itself for the kind of bucket
    AWS_ENDPOINT_URL=url,
    AWS_ACCESS_KEY_ID='nobody',
    AWS_SECRET_ACCESS_KEY='nothing',
    AWS_DEFAULT_REGION='us-east-1',
    BERTJAX_CACHE=str(folder / 'host'),
  )
  with (
    open(folder / f'{scheme}.log', 'w', encoding='utf-8') as log,
    pytest.MonkeyPatch.context() as m,
  ):
    for name, value in told.items():
      m.setenv(name, value)
    server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
      _wait_for(port, server)
      fsspec.core.url_to_fs(f'{scheme}://bucket')[0].makedirs('bucket', exist_ok=True)
      yield f'{scheme}://bucket'
    finally:
      server.terminate()
      server.wait()
      fsspec.get_filesystem_class(scheme).clear_instance_cache()  # of a server that is gone


def put(file: pathlib.Path, url: str) -> str:
  """Sends a file, not by our own code; returns its URL."""
  file_system, there = fsspec.core.url_to_fs(url)
  file_system.put_file(str(file), there)
  return url


def names(url: str) -> list[str]:
  """The files below a URL, by their names there."""
  file_system, there = fsspec.core.url_to_fs(url)
  file_system.invalidate_cache()
  return sorted(name[len(there) + 1 :] for name in file_system.find(there))


def get(url: str, folder: pathlib.Path) -> pathlib.Path:
  """Fetches all that is below a URL, not by our own code; returns the folder."""
  file_system, there = fsspec.core.url_to_fs(url)
  for name in names(url):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    file_system.get_file(f'{there}/{name}', str(folder / name))
  return folder


def _wait_for(port: int, server: subprocess.Popen) -> None:
  end = time.monotonic() + 60
  while True:
    try:
      socket.create_connection(('127.0.0.1', port)).close()
      return
    except OSError:
      assert server.poll() is None and time.monotonic() < end, 'the server did not start'
      time.sleep(0.05)
