"""The metadata server of a Google machine, which says what a TPU VM is part of."""

import pathlib
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping

from bertjax.errors import UserError

BOARD = pathlib.Path('/sys/class/dmi/id/product_name')


def asker(environ: Mapping[str, str]) -> Callable[[str], str | None] | None:
  """What asks the metadata server for an attribute of this machine; None on other machines."""
  server = environ.get('GCE_METADATA_IP')
  if server is None:
    try:
      board = BOARD.read_text(encoding='utf-8')
    except OSError:
      return None
    if 'Google Compute Engine' not in board:
      return None
    server = 'metadata.google.internal'

  def ask(key: str) -> str | None:
    url = f'http://{server}/computeMetadata/v1/instance/attributes/{key}'
    request = urllib.request.Request(url, headers={'Metadata-Flavor': 'Google'})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    for attempt in range(6):
      try:
        with opener.open(request, timeout=10) as answer:
          return answer.read().decode()
      except urllib.error.HTTPError as error:
        if error.code == 404:
          return None
        failure: Exception = error
      except OSError as error:
        failure = error
      time.sleep(0.1 * 2**attempt)
    raise UserError(
      f'the metadata server of this Google machine did not say whether it is part of a TPU pod '
      f'({url}: {failure}): try again, or set --processes=1 for a run on this machine alone'
    )

  return ask
