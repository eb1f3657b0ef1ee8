"""The text that `klbr.help()` prints."""

TEXT = """\
A cell is Python source. Its names stay for the next cell, which may use `await` at the top level.

The value of a final expression is shown; `_` keeps the last one that was not None. What is printed is part
of the cell's result, up to 65,536 bytes; what child processes write is not, use workspace.run for that.

Ask the host by awaiting a request (128 per cell at most); help(workspace.run) shows
the arguments of one:

  await local.send("hello")                 say something to the operator
  await runtime.wait(30)                    end the turn; the code below does not run
  await workspace.run(["make", "test"])     run a command, all its descendants accounted for
  await evidence.resolve(["event:42"])      read the durable log
  await skills.index(); await skills.load("id")
  await peer.open(); await remote.ensure("build-host")

Modules: agents behavior evidence frontier hooks local maintenance orientation peer remote runtime skills
workspace. They are names here already, and `from klbr import local` works in a module.

A refused request raises klbr.HostError with .code and .message. Requests belong to the cell that runs: a task
that outlives its cell gets `scope_expired`. exit() ends the cell, not the worker. input() raises EOFError.
"""
