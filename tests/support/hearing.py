"""Signals that tests send to what they start."""

import signal


def let_children_hear() -> None:
  """Has what this process starts hear SIGINT and SIGHUP. A shell's background job ignores the
  first, nohup the second, and so does libtpu where there is no handler: children would inherit
  that, and a handler they do not. Under nohup this process lives on."""
  nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
  signal.signal(signal.SIGHUP, (lambda *_: None) if nohup else signal.default_int_handler)
  signal.signal(signal.SIGINT, signal.default_int_handler)
