"""Made from the contracts by transferd/connectors/vllm/cmd/goldens. Do not edit."""

MAX_FRAME_BYTES = 33554432
MAX_FIRST_BYTES = 16384
SLOT_BYTES = 512
MAX_FLAG_SLOTS = 16384
SLOT_VISIBLE = 2
MAX_ID_BYTES = 64
MAX_NAME_BYTES = 128
MAX_PIECES = 2097152
MAX_PIECE_BYTES = 4194304
MAX_GROUPS = 32
MAX_PROMPT_TOKENS = 2097152
LEASE_MIN_MS = 50
LEASE_MAX_MS = 600000
LEASE_DEFAULT_MS = 6000
OVERLAP_TOKENS = 512

# What the caller of a refused operation may do, by the refusal's code.
ADVICE = {
    "not_ready": "retry-same-epoch",
    "unavailable": "retry-same-epoch",
    "stale_epoch": "new-epoch",
    "stale_incarnation": "new-epoch",
    "stale_token": "new-epoch",
    "conflict": "new-epoch",
    "closed": "new-epoch",
    "aborted": "give-up",
    "capacity": "new-epoch",
    "mismatch": "new-epoch",
    "integrity": "new-epoch",
    "not_validated": "new-epoch",
    "progress": "new-epoch",
    "lease_expired": "new-epoch",
    "engine": "new-epoch",
    "invalid": "give-up",
    "too_large": "give-up",
    "denied": "give-up",
    "key_reused": "give-up",
    "cancelled": "give-up",
    "deadline": "give-up",
    "outcome_unknown": "give-up",
    "stream_broken": "give-up",
    "gone": "give-up",
    "reset": "give-up",
    "internal": "operator",
}
