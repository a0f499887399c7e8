"""From text to batches. TensorFlow reads the environment when a module here first imports it."""

import os

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
