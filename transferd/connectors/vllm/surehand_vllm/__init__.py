"""surehand-vllm: vLLM as P or D of durable handoffs.

vLLM loads `surehand_vllm.connector.SurehandConnector`. Its KV cache lies in a
memfd that the transferd beside it maps; the scheduler's side of the connector
does an engine's duties towards that daemon, and tells the engine's front
(`surehand engine --vllm`) what becomes of attempts. The worker's side only
makes the memory and reports what the scheduler's side decided.
"""
