"""A function in a process of its own ends with the process that waits for it."""

import subprocess
import sys

from mutation import mutation
from processes import ROOT, environment

WAITS = """
from bertjax import children
children.apart(exec, "import os, time; os.write(1, b'begun\\\\n'); time.sleep(60)")
"""


@mutation('  _follow(parent.sentinel)\n', '')
def test_a_function_apart_ends_with_a_parent_that_is_killed():
  words = [sys.executable, '-c', WAITS]
  process = subprocess.Popen(words, cwd=ROOT, env=environment(), stdout=subprocess.PIPE)
  assert process.stdout.readline() == b'begun\n'
  process.kill()
  process.communicate(timeout=20)  # to the end of its output, which the function has too
