"""The scheduler's side: it alone speaks to transferd and to the engine's front."""

from __future__ import annotations

import logging
import mmap
import os
from collections.abc import Iterable
from typing import Any

from . import constants, wire
from .announcing import Words
from .daemon import ATTACHED, DETACHED, Daemon, Event, attach_message
from .duties import Duties
from .engine import form_of, revision_of, vllm_version
from .front import Front
from .memory import FlagPage
from .sources import Sources
from .steps import Reports, Steps
from .targets import Targets
from .wire import ROLE_DECODE, Key, Refusal
from .worker import Registered

ATTACH_WAIT = 30.0
SPARE_SLOTS = 64  # flag slots beyond the requests that run at once: for those that drain


class Scheduler:
    """Made empty, then opened once the worker's memory is known."""

    def __init__(self, vllm_config: Any, kv_cache_config: Any, extra: Any, log: logging.Logger) -> None:
        self._config, self._kv_cache_config, self._extra, self._log = vllm_config, kv_cache_config, extra, log
        self._manager: Any = None
        self._live: set[str] = set()
        self._steps = Steps()
        self._opened = False

    def bind(self, kv_cache_manager: Any) -> None:
        self._manager = kv_cache_manager

    def open(self, workers: list[Registered]) -> None:
        if len(workers) != 1:
            raise Refusal("mismatch", f"{len(workers)} workers: tensor and pipeline parallelism are not handed over yet")
        (worker,) = workers
        self._engine = self._config.kv_transfer_config.engine_id
        fd = os.open(f"/proc/{worker.pid}/fd/{worker.fd}", os.O_RDWR | os.O_CLOEXEC)
        self._segment = memoryview(mmap.mmap(fd, worker.bytes, mmap.MAP_SHARED))
        model = self._config.model_config
        revision = self._extra("revision", "") or revision_of(model.model)
        platform = self._extra("platform", "") or _platform()
        self._form = form_of(self._config, self._kv_cache_config, worker, revision, platform)
        flags = FlagPage(2 * self._config.scheduler_config.max_num_seqs + SPARE_SLOTS)
        hello = attach_message(self._engine, worker.bytes, flags.slots, self._form)
        self._daemon = Daemon(self._extra("transferd_socket", ""), hello, [fd, flags.fd], flags, self._event, self._log)
        self._duties = Duties(self._daemon.attached, self._log)
        self._front = Front(self._extra("front_socket", ""), self._state, self._load, self._steps.wake, self._drop, self._log)
        common = (self._daemon, self._duties, self._steps, self._front, self._form)
        self._targets = Targets(*common, self._log)
        serial = int(self._extra("serial_below", constants.OVERLAP_TOKENS))  # shorter prompts are announced once they are computed
        self._sources = Sources(*common, self._segment, self._log, serial)
        places = [self._form.modules.index(name) for name in worker.layers]
        self._words = Words(os.open(f"/proc/{worker.pid}/fd/{worker.words}", os.O_RDONLY | os.O_CLOEXEC), lambda step, place: self._sources.wrote(step, places[place]))
        self._opened = True
        self._daemon.start(ATTACH_WAIT)
        self._duties.start()
        self._words.start()
        self._front.start()

    def close(self) -> None:
        if self._opened:
            self._front.close()
            self._words.close()
            self._daemon.close()
            self._duties.close()

    # vLLM's scheduler calls, in its thread.

    def new(self, request: Any) -> None:
        self._live.add(request.request_id)
        key: Key | None = None
        try:
            plan = wire.request_plan(request.kv_transfer_params)
            if plan is None:
                return
            key = Key.of(plan.plan.attempt)
        except Refusal as e:
            self._log.warning("a request was refused: %s", e)
            self._targets.new(request.request_id, None, None, e)
            return
        if plan.role == ROLE_DECODE:
            failure = None
            if request.skip_reading_prefix_cache:
                failure = Refusal("invalid", "prompt log probabilities need the whole prompt computed here")
            self._targets.new(request.request_id, key, plan, failure)
        else:
            self._sources.new(request.request_id, key, plan, request)

    def matched(self, request: Any, computed: int) -> tuple[int, bool]:
        waiting = self._targets.is_waiting(request.request_id)
        if waiting is None:
            self._sources.cached(request.request_id, computed)
            return 0, False
        return (request.num_prompt_tokens - computed, True) if waiting else (0, False)

    def allocated(self, request: Any, blocks: Any, external: int) -> None:
        self._targets.allocated(request.request_id, request.num_prompt_tokens, external, tuple(map(list, blocks.get_block_ids())))

    def step(self, output: Any) -> Reports:
        for request in getattr(output, "preempted_req_ids", None) or ():
            self._targets.preempted(request)
            self._sources.preempted(request)
        watch = self._sources.scheduled(output.num_scheduled_tokens, self._table)
        holding = self._targets.count() + self._sources.count() > 0
        reports = self._steps.take(output.total_num_scheduled_tokens == 0, holding)
        reports.watch = watch
        return reports

    def _table(self, request: str) -> tuple[list[int], ...]:
        return tuple(map(list, self._manager.get_block_ids(request)))

    def delivered(self, requests: Iterable[str]) -> None:
        self._targets.delivered(set(requests))

    def finished(self, request: Any, computed: bool, blocks: tuple[list[int], ...]) -> bool:
        self._live.discard(request.request_id)
        keep = self._targets.finished(request.request_id)
        if keep is None:
            keep = self._sources.finished(request.request_id, computed, request.num_prompt_tokens, blocks)
        return bool(keep)

    # Other threads.

    def _event(self, e: Event) -> None:
        if e.kind in (ATTACHED, DETACHED):
            self._front.tell(beside=self._beside(e.kind == ATTACHED))
        elif e.source:
            self._sources.event(e)
        else:
            self._targets.event(e)

    def _drop(self, key: Key) -> None:
        self._steps.wake()
        self._sources.drop(key)

    def _state(self) -> list[Any]:
        """What a front that has just come has to know."""
        model = self._config.model_config
        name = model.served_model_name
        hello = wire.ConnectorMessage().hello
        hello.engine, hello.revision, hello.layout = self._engine, self._form.revision, self._form.layout
        hello.block_tokens, hello.blocks = self._form.block_tokens, self._kv_cache_config.num_blocks - 1  # one is nobody's
        hello.max_tokens, hello.version = model.max_model_len, f"surehand-vllm beside vllm {vllm_version()}"
        hello.model = name[0] if isinstance(name, list) else str(name or model.model)
        if self._form.described is not None:
            hello.described = self._form.described.SerializeToString(deterministic=True)
        beside = self._beside(self._daemon.attached.is_set())
        # Attached comes last: with it the engine takes requests, and what it could take must be known.
        return [wire.ConnectorMessage(hello=hello), wire.ConnectorMessage(load=self._load()), wire.ConnectorMessage(beside=beside)]

    def _beside(self, attached: bool) -> Any:
        m = wire.ConnectorMessage().beside
        m.attached = attached
        if self._daemon.identity is not None:
            i = self._daemon.identity
            m.node, m.incarnation, m.peer_address, m.peer_protocol = i.node, i.incarnation, i.peer, i.protocol
        return m

    def _load(self) -> Any:
        m = wire.ConnectorMessage().load
        parked = self._targets.parked()
        m.blocks_free = self._manager.block_pool.get_num_free_blocks() if self._manager is not None else self._kv_cache_config.num_blocks - 1
        m.waiting = parked
        m.running = max(len(self._live) - parked, 0)
        m.idle_steps_total = self._steps.idle_total
        return m


def _platform() -> str:
    """Names what the order of bytes inside a block may depend on."""
    from vllm.platforms import current_platform

    return f"{current_platform.device_type}/{current_platform.get_cpu_architecture().name.lower()}"
