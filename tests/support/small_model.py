"""A small model, and a workload that takes it from a ConfigMap."""

from typing import Any

SMALL_LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "intermediate_size": 512,
    "num_attention_heads": 4, "num_key_value_heads": 4, "num_hidden_layers": 2, "vocab_size": 512,
}  # fmt: skip
"""Its config.json."""
FROM_CONFIG_MAP: dict[str, Any] = {
    "name": "mine",
    "microBatchSize": 1,
    "sequenceLength": 64,
    "huggingFaceConfig": {"configMapKeyRef": {"name": "my-model", "key": "config.json"}},
}
