"""llama.cpp's own HTTP server on a model of `make_model.py`, until standard input ends.

python serve.py MODEL.gguf PORT CONTEXT_TOKENS [API_KEY]
"""

import os
import sys

import xllamacpp

model, port, context_tokens, *keys = sys.argv[1:]
settings = xllamacpp.CommonParams()
settings.model.path = model
settings.hostnames = ["127.0.0.1"]
settings.port = int(port)
settings.n_ctx = int(context_tokens)
settings.n_parallel = 1
settings.use_jinja = True
settings.reuse_port = False
settings.cpuparams.n_threads = 1
if keys:
    settings.api_keys = keys
server = xllamacpp.Server(settings)
print("listening", server.listening_address, flush=True)
sys.stdin.read()
# The engine's threads have nothing to save.
os._exit(0)
