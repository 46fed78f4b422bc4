"""The questions about text, images and training over several GPUs. Fields have the library's names."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from .subjects import Clock, Name, Positive, Size, Strict, Tokens


class GenerateQuestion(Strict):
    """What text costs that an engine writes; see `joulecast.predict_generation`."""

    model: Name = Field(description="Name of a language model.", examples=["llama3_8b"])
    gpu: Name = Field(
        description="Name or alias from the catalogue; with a number for several.", examples=["2x H100 SXM"]
    )
    batch: Size = Field(description="Sequences at a time, on all GPUs together.", examples=[64])
    prompt_tokens: Tokens = Field(examples=[512])
    output_tokens: Tokens = Field(examples=[512])
    precision: Name = Field("bf16", description="Of the weights: bf16, fp16, fp8 or nvfp4.")
    engine: Name = Field("vllm", description="vllm, sglang or tensorrt_llm.")
    tensor_parallel: Size = 1
    expert_parallel: Size = 1
    batching: Name | None = Field(None, description="continuous or static. Default: what the engine does.")
    clock_mhz: Clock | None = Field(None, description="Graphics clock. Default: the GPU's own default.")
    power_limit_w: Positive | None = Field(None, description="Power cap of a board. Default: its own default.")
    cache_precision: Name | None = Field(None, description="fp8 for keys and values. Default: 16 bits.")
    predictor: Name | None = Field(None, description="A zoo name. Default: the best for the GPU.")

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"model": "llama3_8b", "gpu": "H100 SXM", "batch": 64, "prompt_tokens": 512, "output_tokens": 512}
            ]
        }
    )
