"""The door for the transformers library: a folder with a `config.json` in, an untrained model out.

The only file that imports the library. It knows how the library builds and calls its models, and none of them.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from graphpar.capture.capture import Signature
from graphpar.errors import Diagnostic, GraphparError, Note, Span, did_you_mean
from graphpar.language.schema import ModelSpec
from graphpar.sources.call import call_signature
from graphpar.sources.paths import shown
from graphpar.sources.source import Source

INPUTS = ("input_ids", "labels")
EXPERTS = "grouped_mm"  # the library's word


def open_folder(text: str, spec: ModelSpec | None = None) -> Source:
    """The model that a folder's `config.json` describes, with initial values, not those of a checkpoint.

    `args` of the spec replace entries of the configuration. Raises GraphparError if the library is not installed, or
    does not know such a model.
    """
    path = Path(text) / "config.json"
    written = _read(path)
    transformers = _library()
    config = _config(transformers, path, written, spec)
    cls, said = _class(transformers, config, spec.object if spec else None, path)
    said = (*said, *_settings(config), *_experts(cls, config))
    config.use_cache = False
    signature = call_signature(cls, spec) if spec and spec.inputs else _signature(cls, spec)

    def construct() -> nn.Module:
        # A copy for every model: building one writes into its configuration.
        return cls._from_config(copy.deepcopy(config))

    title = Path(text).resolve().name
    return Source(title, cls.__name__, "folder", cls.__name__, (path,), construct, signature, None, said)


def _library() -> Any:
    try:
        import transformers
    except ModuleNotFoundError as error:
        message = "a folder with a config.json needs the transformers library, which is not installed"
        fix = "pip install 'graphpar[hf]'"
        raise GraphparError(Diagnostic("no-transformers", None, message, fix=fix)) from error
    transformers.logging.set_verbosity_error()
    return transformers


def _read(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        message = f"the folder {shown(path.parent)} has no config.json"
        note = Note(
            "a folder stands for a model of the transformers library; a model of your own is FILE.py or FILE.py:NAME"
        )
        raise GraphparError(Diagnostic("no-such-model", None, message, notes=(note,)))
    try:
        written = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        place = Span(shown(path), error.lineno, error.colno) if isinstance(error, json.JSONDecodeError) else None
        raise GraphparError(Diagnostic("bad-config", place, f"{shown(path)} is not JSON: {error}")) from error
    if not isinstance(written, dict) or "model_type" not in written:
        message = f"{shown(path)} has no `model_type`, so it is no configuration of the transformers library"
        raise GraphparError(Diagnostic("bad-config", None, message))
    return written


def _config(transformers: Any, path: Path, written: Mapping[str, Any], spec: ModelSpec | None) -> Any:
    if "auto_map" in written:
        message = f"{shown(path)} asks for code of its own to be run (`auto_map`)"
        fix = "write a Python file with a function that returns the model, and give FILE.py:FUNCTION"
        raise GraphparError(Diagnostic("bad-config", None, message, fix=fix))
    kind = written["model_type"]
    known = transformers.models.auto.configuration_auto.CONFIG_MAPPING_NAMES
    if kind not in known:
        message = f"transformers {transformers.__version__} knows no model type `{kind}`{did_you_mean(kind, known)}"
        raise GraphparError(Diagnostic("bad-config", None, message))
    given = {k: v for k, v in written.items() if k != "model_type"}
    args = dict(spec.args) if spec else {}
    try:
        config = transformers.AutoConfig.for_model(kind, **given)
        unknown = [name for name in args if not hasattr(config, name)]
        if not unknown:
            return transformers.AutoConfig.for_model(kind, **{**given, **args}) if args else config
    except Exception as error:
        message = f"transformers refuses this configuration: {str(error).strip().splitlines()[0]}"
        raise GraphparError(Diagnostic("bad-config", None, message, notes=(Note(shown(path)),))) from error
    where = spec.span if spec else None
    message = f"the configuration has no `{unknown[0]}`{did_you_mean(unknown[0], vars(config))}"
    raise GraphparError(Diagnostic("bad-model-args", where, message))


def _class(transformers: Any, config: Any, wanted: str | None, path: Path) -> tuple[type[Any], tuple[str, ...]]:
    """The class to build, and what was decided without being asked."""
    if wanted is not None:
        cls = getattr(transformers, wanted, None)
        if cls is None:
            message = f"transformers has no class `{wanted}`{did_you_mean(wanted, dir(transformers))}"
            raise GraphparError(Diagnostic("no-such-object", None, message))
        if not (isinstance(cls, type) and issubclass(cls, nn.Module)):
            raise GraphparError(Diagnostic("not-a-module", None, f"`{wanted}` of transformers is no class of models"))
        return cls, ()
    named = next(iter(config.architectures or ()), None)
    own = getattr(transformers, named, None) if named else None
    if own is not None and _takes_labels(own):
        return own, ()
    auto = transformers.AutoModelForCausalLM
    if type(config) not in auto._model_mapping:
        message = f"{shown(path)} describes no language model that is trained on labels"
        kind = config.model_type
        why = f"`architectures` is {named or 'not given'}; transformers has no causal language model for `{kind}`"
        raise GraphparError(Diagnostic("bad-config", None, message, why=(why,)))
    cls: Any = auto._model_mapping[type(config)]
    why = f"{named} takes no labels" if own is not None else "config.json names no class"
    return cls, (f"the model is {cls.__name__}, the causal language model of this configuration: {why}",)


def _takes_labels(cls: type[Any]) -> bool:
    return issubclass(cls, nn.Module) and set(INPUTS) <= set(inspect.signature(cls.forward).parameters)


def _signature(cls: type[Any], spec: ModelSpec | None) -> Signature:
    return Signature(INPUTS, {}, spec.loss if spec else None) if _takes_labels(cls) else call_signature(cls, spec)


def _experts(cls: type[Any], config: Any) -> tuple[str, ...]:
    """Experts by the way that has no loop over the experts that are hit: which those are, no graph says."""
    if not getattr(cls, "_can_set_experts_implementation", lambda: False)():
        return ()
    asked = config._experts_implementation
    if asked is not None and asked != EXPERTS:
        wrong = f"experts by `{asked}` are not followed: config.json asks for them"
        raise GraphparError(Diagnostic("bad-config", None, wrong, fix=f'"experts_implementation": "{EXPERTS}"'))
    config._experts_implementation = EXPERTS
    return () if asked else (f"experts are computed by {EXPERTS}: all of them in one product of groups of rows",)


def _settings(config: Any) -> tuple[str, ...]:
    """What is set for training, and what was left as it is but matters."""
    said = ["use_cache is off: a training step keeps no keys and values"] if getattr(config, "use_cache", False) else []
    if config.dtype is not None and str(config.dtype).removeprefix("torch.") != "float32":
        word = str(config.dtype).removeprefix("torch.")
        said.append(
            f"parameters are {word}, as config.json has it; `model: {{args: {{dtype: float32}}}}` trains in float32"
        )
    return tuple(said)
