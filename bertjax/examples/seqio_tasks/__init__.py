import os

# TensorFlow greets on the standard error, unless it is told not to before it is imported.
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
