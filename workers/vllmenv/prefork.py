"""Starts vLLM API servers that share one import.

`python -m vllm.entrypoints.openai.api_server` spends most of its start on
importing vLLM in three processes. This one imports it once and forks each
server from there, its engine core inside. What runs is vLLM's own: API server,
scheduler, block manager, connector, metrics, aborts. Only the way in which its
processes come about is ours.

Orders come as JSON lines on stdin, answers go as JSON lines to stdout:

    {"start": "p", "args": [...], "env": {...}, "log": "path"}   -> {"started": "p", "pid": 123}
    an engine ended by itself or was killed                      -> {"gone": "p", "status": 9}

Each engine is a process group, led by the pid that was told. When stdin ends,
all of them are killed.

With arguments it is one server with those, and takes no orders.
"""

import ctypes
import json
import multiprocessing
import os
import select
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
POLL_SECONDS = 0.05


def load() -> None:
    """Imports what a server needs, so that a fork has it."""
    import uvloop  # noqa: F401

    import vllm.entrypoints.launchers.api_server.entry  # noqa: F401
    import vllm.entrypoints.launchers.cli_args  # noqa: F401
    import vllm.entrypoints.openai.api_server  # noqa: F401
    import vllm.model_executor.models.llama  # noqa: F401
    import vllm.v1.attention.backends.cpu_attn  # noqa: F401
    import vllm.v1.engine.async_llm  # noqa: F401
    import vllm.v1.engine.core  # noqa: F401
    import vllm.v1.executor.uniproc_executor  # noqa: F401
    import vllm.v1.worker.cpu_model_runner  # noqa: F401
    import vllm.v1.worker.cpu_worker  # noqa: F401


def forked() -> multiprocessing.context.BaseContext:
    return multiprocessing.get_context("fork")


def serve(args: list[str]) -> None:
    """Is vLLM's own main, but for the fork."""
    import uvloop

    import vllm.v1.engine.utils as core
    import vllm.v1.executor.multiproc_executor as executor
    from vllm.entrypoints.launchers.api_server.entry import run_server
    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    core.get_mp_context = executor.get_mp_context = forked
    parsed = make_arg_parser(FlexibleArgumentParser()).parse_args(args)
    validate_parsed_serve_args(parsed)
    uvloop.run(run_server(parsed))


def die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def start(order: dict, answers: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setpgid(0, 0)
        die_with_parent()
        os.register_at_fork(after_in_child=die_with_parent)  # its engine core
        os.close(answers)
        null = os.open(os.devnull, os.O_RDONLY)
        log = os.open(order["log"], os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(order.get("env") or {})
        serve(order["args"])
    except BaseException:  # a fork never returns into the loop of its parent
        import traceback

        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def kill(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass


def reap(names: dict[int, str], say) -> None:
    while names:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        if pid in names:
            kill(pid)  # its engine core
            say({"gone": names.pop(pid), "status": status})


def main() -> None:
    answers = os.dup(1)
    os.dup2(2, 1)  # whoever prints does so to the log
    began = time.process_time()
    load()

    def say(message: dict) -> None:
        os.write(answers, json.dumps(message).encode() + b"\n")

    say({"ready": True, "cpu_seconds": round(time.process_time() - began, 1)})
    names: dict[int, str] = {}
    rest = b""
    while True:
        reap(names, say)
        if not select.select([0], [], [], POLL_SECONDS)[0]:
            continue
        got = os.read(0, 1 << 16)
        if not got:
            break
        *lines, rest = (rest + got).split(b"\n")
        for line in lines:
            order = json.loads(line)
            pid = start(order, answers)
            names[pid] = order["start"]
            say({"started": order["start"], "pid": pid})
    for pid in names:
        kill(pid)
    os._exit(0)  # what was imported has nothing to tidy up


if __name__ == "__main__":
    if sys.argv[1:]:
        load()
        os.register_at_fork(after_in_child=die_with_parent)  # its engine core
        serve(sys.argv[1:])
    else:
        main()
