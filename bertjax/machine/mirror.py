"""The workdir of a run: a directory, or a URL and the local directory that is kept in step with it.

A run works in a local directory whatever its --workdir is. Where that is a URL, what the run left
there is fetched at the start, and sent again with each checkpoint:

  metrics.jsonl, config.json, vocab/, tensorboard/, ..   whole, before the checkpoint's manifest
  checkpoints/500/state                                  by the processes that wrote it
  checkpoints/500/manifest.json                          last: without it there is no checkpoint

So the URL holds at any moment what a local workdir would hold after a kill, and any host can go on.
Before its first checkpoint a run may have sent a part of these files: it begins anew without them.
Every process has a local directory of its own and fetches the checkpoint that is restored whole.
A workdir that is a directory is one for all processes, which is seen to at the start.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import socket
import time
import uuid
from collections.abc import Callable, Collection
from typing import Any

from bertjax import json_files
from bertjax.errors import UserError
from bertjax.machine import copies, durable, hosts, remote

CHECKPOINTS, MANIFEST, SCORES = 'checkpoints', 'manifest.json', 'scores.json'
_COMPLETE = re.compile(f'{CHECKPOINTS}/([^/]+)/{MANIFEST}')
OWNER = 'owner.json'  # the run that writes to a URL; in a directory only while processes meet
VISIBLE_S = 90.0  # in which a network file system shows what another host has written
STORE, _STORE_JSON = 'store', 'store/store.json'  # of a run that was given text
_KEPT = ('lock', 'plans', 'store.partial')  # of this host: neither sent nor removed
_MADE_OF = 'made_of.json'
_MADE = (STORE, 'vocab', _MADE_OF)  # of text
_OWN = (*_KEPT, STORE, CHECKPOINTS)  # not sent with the small files
_SHOWN = ('tensorboard', 'profile')  # sent, and not fetched: nothing here reads them


class TakenOver(UserError):
  """A run that was started later writes to the same URL."""


class Workdir:
  """The workdir of a run, as one of its processes sees it: `text`, what the user gave, `path`, the
  local directory, and `remote`, False if they are one: then methods do nothing. Every process makes
  the same calls."""

  def __init__(self, text: str, say: copies.Say = copies.to_stderr, reads: bool = False):
    """Takes a path or a URL; `reads`: the run is only looked at. UserError: nothing reads the
    URL."""
    self.text, self._say, self._reads = text, say, reads
    self.remote = remote.is_remote(text)
    self.path = text
    self._run = uuid.uuid4().hex
    if self.remote:
      kind = 'copies' if reads else f'runs/{hosts.index()}'
      self._copy = copies.Copy(text.rstrip('/'), kind)
      self.path = str(self._copy.here)

  def fetch(self) -> None:
    """Makes the local directory what the URL holds, but for the states of checkpoints. UserError on
    every process: one, which is named, sees another directory."""
    if self.remote:
      with self._copy.alone():
        self._fetch()
    if not self._reads and hosts.count() > 1:
      self._require_shared()

  def _fetch(self) -> None:
    there, here = self._copy.names(), self._copy.here
    complete = {found[1] for found in map(_COMPLETE.fullmatch, there) if found}
    if not self._reads and hosts.index() == 0:
      self._copy.write(OWNER, json.dumps(self._owner()).encode())
      begun = {name.split('/')[1] for name in there if name.startswith(f'{CHECKPOINTS}/')}
      for step in begun - complete:
        self._copy.remove(f'{CHECKPOINTS}/{step}', MANIFEST)
    # They are sent file by file, and may be a part before a marker behind them is there.
    begins = not complete and not self._reads
    unsure = {'config.json', *(() if _STORE_JSON in there else _MADE)} if begins else set()
    kept = {*_KEPT, *unsure & {_MADE_OF}}  # which says what store.partial is of
    for path in sorted(here.rglob('*'), reverse=True):  # a folder comes after what is in it
      name = path.relative_to(here)
      if path.is_dir():
        if not any(path.iterdir()):  # empty folders are not sent, and say nothing
          path.rmdir()
      elif name.parts[0] not in kept and (name.as_posix() not in there or name.parts[0] in unsure):
        path.unlink()
    for folder in (here / CHECKPOINTS).glob('*'):
      if folder.name not in complete:
        shutil.rmtree(folder)

    def wanted(name: str) -> bool:
      first, *rest = name.split('/')
      if first == CHECKPOINTS:
        return rest[0] in complete and rest[1:] in ([MANIFEST], [SCORES])
      return first not in (*_SHOWN, OWNER, *unsure) and (first != STORE or _STORE_JSON in there)

    self._copy.pull(wanted, self._say)
    (here / CHECKPOINTS).mkdir(parents=True, exist_ok=True)

  def _require_shared(self) -> None:
    """Refuses a workdir that is not one: process 0 writes a file there, which all others read.
    Paths say nothing: /tmp is another directory on each host, and one may have two names."""
    first, file = hosts.index() == 0, f'{self.text}/{OWNER}'
    if first and not self.remote:  # to a URL it is written already
      pathlib.Path(self.text).mkdir(parents=True, exist_ok=True)
      durable.write_json(pathlib.Path(file), self._owner())
    run = hosts.gather('workdir', self._run)[0]
    if first:
      self._say(f'Every process needs one workdir: each looks for {file}')
    end, waits = time.monotonic() + VISIBLE_S, False
    while not (seen := self._writer().get('run') == run) and time.monotonic() < end:
      if not waits:
        self._say(f'Every process needs one workdir: waiting up to {VISIBLE_S:g} s for its {file}')
      waits = True
      time.sleep(1.0)
    found = 'seen' if seen else f'not in {self.text} after {VISIBLE_S:g} s'
    remedy = 'give all the same --workdir, on a file system that they share, or a URL'
    try:
      hosts.require_same('the workdir', {f'{OWNER} of process 0': found}, remedy)
    finally:
      if first and not self.remote:
        pathlib.Path(file).unlink(missing_ok=True)

  def fetch_checkpoint(self, step: str) -> None:
    """Fetches what is not here of a checkpoint."""
    if self.remote:
      with self._copy.alone():
        self._copy.pull(lambda name: True, self._say, f'{CHECKPOINTS}/{step}')

  def send(self) -> None:
    """Sends all but checkpoints and the store, from process 0."""
    if self.remote and hosts.index() == 0:
      self._require_ours()
      self._copy.push(self._copy.here, '', wanted=lambda name: name.split('/')[0] not in _OWN)

  def send_store(self) -> None:
    """Sends the store that was made of the run's text; from process 0."""
    if self.remote and not self._reads:
      self._require_ours()
      wanted = lambda name: name.split('/')[0] in _MADE
      self._copy.push(self._copy.here, '', last=_STORE_JSON, wanted=wanted)

  def fetch_store(self) -> None:
    """Fetches the store that process 0 has sent."""
    if self.remote:
      self._copy.pull(lambda name: name.split('/')[0] in _MADE, self._say)

  def send_state(self, directory: pathlib.Path, step: str, names: Collection[str]) -> None:
    """Sends files of a checkpoint that this process has written."""
    self._copy.push(directory, f'{CHECKPOINTS}/{step}', wanted=lambda name: name in names)

  def send_manifest(self, directory: pathlib.Path, step: str, names: Collection[str]) -> None:
    """Sends the small files, then the manifest, which makes the checkpoint one; from process 0.
    Files there that are none of `names` are of a run that this one has taken over, and go."""
    if self.remote:
      self.send()
      self._copy.prune(f'{CHECKPOINTS}/{step}', names)
      self.send_state(directory, step, (MANIFEST,))

  def send_scores(self, step: int) -> None:
    """Sends the scores of a checkpoint; from process 0."""
    if self.remote:
      self._require_ours()
      self.send_state(self._copy.here / CHECKPOINTS / str(step), str(step), (SCORES,))

  def remove_checkpoint(self, step: int) -> None:
    """Removes a checkpoint there; from process 0."""
    if self.remote:
      self._require_ours()
      self._copy.remove(f'{CHECKPOINTS}/{step}', MANIFEST)

  def _owner(self) -> dict[str, str | int]:
    return dict(run=self._run, host=socket.gethostname(), pid=os.getpid())

  def _writer(self) -> dict[str, Any]:
    """Returns the run that has written its name last; {} where that cannot be read."""
    if self.remote:
      return json.loads(self._copy.read(OWNER) or b'{}')
    with contextlib.suppress(OSError, ValueError):
      return json_files.loads(pathlib.Path(self.path, OWNER).read_bytes())
    return {}

  def taken_over(self) -> str:
    """By whom, where a run that was started later writes; '' while it is ours. Process 0 knows."""
    if not self.remote or hosts.index() > 0:
      return ''
    owner = self._writer()
    if owner.get('run') == self._run:
      return ''
    return (
      f'{self.text} was taken over by process {owner.get("pid")} on {owner.get("host")}, which '
      'was started later: this run ends, so that they do not mix; stop one of them, or give '
      'another --workdir'
    )

  def _require_ours(self) -> None:
    """Raises TakenOver, with host and process, if a run that was started later writes here."""
    if said := self.taken_over():
      raise TakenOver(said)


def opened(path: pathlib.Path | str) -> tuple[pathlib.Path, Callable[[str], None]]:
  """Returns the local directory of a run that is only looked at, named by its workdir, a checkpoint
  or a URL of either, and what makes the checkpoint of a step complete there."""
  if not remote.is_remote(path):
    return pathlib.Path(path).absolute(), lambda step: None
  run, _, step = str(path).rstrip('/').partition(f'/{CHECKPOINTS}/')
  place = Workdir(run, reads=True)
  place.fetch()
  here = pathlib.Path(place.path)
  return here / CHECKPOINTS / step if step else here, place.fetch_checkpoint
