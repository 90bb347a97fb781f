"""The class that vLLM loads:

    --kv-transfer-config '{"kv_connector": "SurehandConnector",
        "kv_connector_module_path": "surehand_vllm.connector",
        "kv_role": "kv_producer" (P) or "kv_consumer" (D), "engine_id": "p1",
        "kv_connector_extra_config": {"transferd_socket": PATH, "front_socket": PATH}}'
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
    SupportsHMA,
)
from vllm.logger import init_logger

from .scheduler import Scheduler
from .steps import Reports
from .worker import Registered, Worker

logger = init_logger("vllm.surehand")


@dataclass
class Metadata(KVConnectorMetadata):
    reports: Reports = field(default_factory=Reports)


class SurehandConnector(KVConnectorBase_V1, SupportsHMA):
    """Reserve first: D's request comes before P's prompt is computed. All of its prompt is
    promised, so its blocks are allocated and opened as the target; it runs once transferd
    has committed them. P's blocks are opened in the step that computes the end of its prompt,
    announced layer by layer as that step writes them, and sealed when its request ends."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        config = self._kv_transfer_config
        if config.kv_load_failure_policy != "fail":
            raise ValueError("surehand: kv_load_failure_policy must be fail: a transfer that broke is never computed over in silence")
        for key in ("transferd_socket", "front_socket"):
            if not config.get_from_extra_config(key, ""):
                raise ValueError(f"surehand: kv_connector_extra_config lacks {key}")
        if role == KVConnectorRole.WORKER:
            self._worker = Worker(config.engine_id)
        else:
            self._scheduler = Scheduler(vllm_config, kv_cache_config, config.get_from_extra_config, logger)

    # The worker's side.

    def get_mem_pool_context(self) -> AbstractContextManager[None]:
        return self._worker.mem_pool_context()

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        self._worker.register(kv_caches)

    def get_handshake_metadata(self) -> KVConnectorHandshakeMetadata | None:
        return self._worker.registered()

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        metadata = self._get_connector_metadata()
        assert isinstance(metadata, Metadata)
        return self._worker.results(metadata.reports)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        pass  # transferd writes the memory

    def wait_for_layer_load(self, layer_name: str) -> None:
        pass  # a request runs only once all of it is there

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        metadata = self._get_connector_metadata()
        assert isinstance(metadata, Metadata)
        if metadata.reports.watch:
            self._worker.wrote(metadata.reports.watch, layer_name)

    def wait_for_save(self) -> None:
        pass

    # The scheduler's side.

    def bind_kv_cache_manager(self, kv_cache_manager: Any) -> None:
        super().bind_kv_cache_manager(kv_cache_manager)
        self._scheduler.bind(kv_cache_manager)

    def set_xfer_handshake_metadata(self, metadata: dict[int, KVConnectorHandshakeMetadata]) -> None:
        self._scheduler.open([m for m in metadata.values() if isinstance(m, Registered)])

    def set_xfer_handshake_metadata_pp_aware(self, metadata: dict[tuple[int, int], KVConnectorHandshakeMetadata]) -> None:
        self._scheduler.open([m for m in metadata.values() if isinstance(m, Registered)])

    def get_loaded_kv_cache_group_ids(self, request: Any) -> tuple[int, ...]:
        return tuple(range(len(self._kv_cache_config.kv_cache_groups)))

    def on_new_request(self, request: Any) -> None:
        self._scheduler.new(request)

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        return self._scheduler.matched(request, num_computed_tokens)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        self._scheduler.allocated(request, blocks, num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        return Metadata(self._scheduler.step(scheduler_output))

    def update_connector_output(self, connector_output: Any) -> None:
        self._scheduler.delivered(connector_output.finished_recving or ())

    def request_finished_all_groups(self, request: Any, block_ids: tuple[list[int], ...]) -> tuple[bool, dict[str, Any] | None]:
        from vllm.v1.request import RequestStatus

        computed = request.status in (RequestStatus.FINISHED_LENGTH_CAPPED, RequestStatus.FINISHED_STOPPED)
        return self._scheduler.finished(request, computed, tuple(map(list, block_ids))), None

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        return self.request_finished_all_groups(request, (block_ids,))

    def take_events(self) -> Iterable[Any]:
        return ()

    def shutdown(self) -> None:
        if self.role == KVConnectorRole.SCHEDULER:
            self._scheduler.close()
