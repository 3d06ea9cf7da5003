"""Delay state-space models in Hugging Face `transformers`, around `TokenModel`.

import delayssm.hf  # registers the model type "ds4d" with AutoConfig and AutoModelForCausalLM

model = DS4DForCausalLM.from_model(token_model)  # model.model is token_model
model.save_pretrained("my-model")
model = AutoModelForCausalLM.from_pretrained("my-model")
model.generate(input_ids, attention_mask=attention_mask, max_new_tokens=20)
"""

try:
    from transformers import AutoConfig, AutoModelForCausalLM
except ImportError as error:
    raise ImportError(f"delayssm.hf needs an extra: pip install '.[hf]' in a clone ({error})") from error

from delayssm.hf.cache import DS4DCache
from delayssm.hf.config import DS4DConfig
from delayssm.hf.model import DS4DForCausalLM

__all__ = ["DS4DCache", "DS4DConfig", "DS4DForCausalLM"]

AutoConfig.register(DS4DConfig.model_type, DS4DConfig, exist_ok=True)
AutoModelForCausalLM.register(DS4DConfig, DS4DForCausalLM, exist_ok=True)
