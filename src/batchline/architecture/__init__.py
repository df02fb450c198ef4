"""Architectures: from a Hugging Face config.json to parameters, bytes and FLOPs, exactly.

    arch = Architecture.load("llama-3.1-70b")         # a catalogue name, an alias, a Hugging Face id,
    arch = Architecture.load("path/to/config.json")   # a file, a folder, a GGUF file or a parsed dict
    arch.active_params, arch.kv_bytes_per_token("fp8"), arch.read_bytes(32768), arch.weight_bytes()

Three answers for each model: parameters (total, active, by part), bytes stored for a sequence of n tokens, and bytes
read to decode its next token; with FLOPs of attention beside them. All are plain functions of n, one number or an
array. Vision and audio towers and multi-token-prediction layers are not counted. A family that is not known is
refused; docs/models.md says how to add one.

    _sources                              where a model is read from
    _catalogue                            the models that come with the package
    _config                               a config.json by key
    _families                             which builder reads a family, with its defaults
    _decoders, _gemma, _hybrids, _latent  the builders
    _shapes, _layers                      what builders share; layers of every kind
    _recipe                               the number format of each matrix
    _records, _counts                     weights and caches of a layer; of all layers, equal ones counted
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from batchline import precision
from batchline.architecture import _catalogue, _sources
from batchline.architecture._config import Config
from batchline.architecture._counts import counted_caches, counted_weights
from batchline.architecture._families import BUILDERS, family, language_model
from batchline.architecture._recipe import plain_format, read_recipe
from batchline.architecture._records import Cache, Weight

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from batchline.checkpoint import Checkpoint

    Floats: TypeAlias = float | NDArray[np.float64]

__all__ = ["Architecture", "Cache", "HeaderBytes", "Weight", "catalogue", "config", "names"]

_LOOK_UPS = ("position", "layer_embedding")
_OUTSIDE = ("embedding", "layer_embedding", "head", "position")


@dataclass(frozen=True)
class HeaderBytes:
    """Exact bytes of a checkpoint by use, from the headers of its files; towers of other modalities are not in them.

    Parameters
    ----------
    embedding, look_up : int
        Input embedding, and other tables that are only looked up [B].
    routed, shared : int
        Routed experts, and all that every token reads [B].
    """

    embedding: int
    look_up: int
    routed: int
    shared: int

    @property
    def total(self) -> int:
        """All of them [B]."""
        return self.embedding + self.look_up + self.routed + self.shared


@dataclass(frozen=True)
class Architecture:
    """A model: its sizes, its weights by kind and what each layer keeps of a sequence.

    Make one with `load` or `from_config`.

    Parameters
    ----------
    name : str
        Catalogue name, or where the config came from.
    model_type : str
        Family, as config.json has it.
    source, date : str
        Where the config was read from, and when it was seen.
    hidden_size, vocab_size : int
        Widths [-].
    layers, moe_layers : int
        Layers, and those with routed experts [layer].
    max_context : int or None
        Longest context that the model was made for [token].
    experts, experts_per_token : int
        Routed experts of a layer and those that one token uses; 0 for a dense model [expert].
    q_heads, kv_heads, head_dim : int
        Of attention. `kv_heads` are the fewest of a layer; 1 for latent attention [-].
    tied_embeddings : bool
        Whether the head is the embedding table.
    weights : tuple of Weight
        All weights, equal ones counted.
    caches : tuple of Cache
        What the layers keep of a sequence, equal ones counted.
    plain : str
        Number format of what the checkpoint does not quantise.
    checkpoint_kv : str or None
        KV-cache format that a quantised checkpoint asks for; engines take it unless told otherwise.
    header_bytes : HeaderBytes or None
        Exact bytes from the headers of the checkpoint, where it was read from disk or fetched.

    Examples
    --------
    >>> arch = Architecture.load("llama-3.1-70b")
    >>> arch.total_params, arch.kv_bytes_per_token("bf16"), arch.stored_bytes(32768)
    (70553706496, 327680.0, 10737418240.0)
    """

    name: str
    model_type: str
    source: str
    date: str
    hidden_size: int
    vocab_size: int
    layers: int
    moe_layers: int
    max_context: int | None
    experts: int
    experts_per_token: int
    q_heads: int
    kv_heads: int
    head_dim: int
    tied_embeddings: bool
    weights: tuple[Weight, ...]
    caches: tuple[Cache, ...]
    plain: str = "bf16"
    checkpoint_kv: str | None = None
    header_bytes: HeaderBytes | None = None

    @classmethod
    def load(cls, given: str | Path | Mapping[str, Any], *, fetch: bool = False) -> Architecture:
        """Find a model in the catalogue, or read one from a file, a folder or a parsed config.json.

        Parameters
        ----------
        given : str, path or mapping
            Catalogue name, alias or Hugging Face id; path of a config.json, of a GGUF file, or of a folder that holds
            a config.json (with hf_quant_config.json and safetensors files, if they are there); a parsed config.json.
        fetch : bool
            Fetch a Hugging Face id that the catalogue does not hold; needs batchline[hub].

        Returns
        -------
        Architecture
            The model.

        Raises
        ------
        UnknownNameError
            If it is neither in the catalogue nor a path.
        ConfigError
            If the file is no config.json, or a key that decides a size is missing or impossible.
        UnsupportedArchitectureError
            If the family, or a key of it that may change a size, is not known.

        Examples
        --------
        >>> Architecture.load("meta-llama/Llama-3.1-8B").name
        'llama-3.1-8b'
        """
        if not isinstance(given, str | Path):
            return cls.from_config(given)
        found = _sources.find(given, fetch=fetch)
        made = cls.from_config(
            found.config, found.hf_quant_config, name=found.name, source=found.source, date=found.date
        )
        return made if found.checkpoint is None else _with_headers(made, found.checkpoint, found.linear_format)

    @classmethod
    def from_config(
        cls,
        config: Mapping[str, Any],
        hf_quant_config: Mapping[str, Any] | None = None,
        *,
        name: str = "config.json",
        source: str = "given",
        date: str = "",
    ) -> Architecture:
        """Read a parsed config.json.

        Parameters
        ----------
        config : mapping
            The parsed config.json.
        hf_quant_config : mapping or None
            The parsed hf_quant_config.json that ModelOpt writes beside it.
        name, source, date : str
            Kept in the result.

        Returns
        -------
        Architecture
            The model.

        Raises
        ------
        ConfigError
            If a key that decides a size is missing or impossible.
        UnsupportedArchitectureError
            If the family, or a key of it that may change a size, is not known.

        Examples
        --------
        >>> Architecture.from_config({"model_type": "llama"})
        Traceback (most recent call last):
            ...
        batchline.errors.ConfigError: The llama config has no hidden_size. It decides a size, so it is not guessed. \
Add it to the config.json.
        """
        inner, model_type = language_model(config)
        recipe = read_recipe(
            inner.get("quantization_config") or config.get("quantization_config"),
            hf_quant_config,
            plain_format({**config, **{k: v for k, v in inner.items() if v is not None}}),
        )
        kind = family(model_type)
        reader = Config(inner, family=model_type, defaults=kind.defaults, names=kind.names)
        model = BUILDERS[kind.builder](reader, kind.options)
        reader.require(kind.fixed)
        reader.refuse_unread()
        return cls(
            name=name,
            model_type=model_type,
            source=source,
            date=date,
            hidden_size=model.hidden_size,
            vocab_size=model.vocab_size,
            layers=len(model.layers),
            moe_layers=sum(layer.has_experts for layer in model.layers),
            max_context=model.max_context,
            experts=model.experts,
            experts_per_token=model.experts_per_token,
            q_heads=model.heads,
            kv_heads=model.kv_heads,
            head_dim=model.head_dim,
            tied_embeddings=model.tied_embeddings,
            weights=counted_weights(model, recipe),
            caches=counted_caches(model.layers),
            plain=recipe.plain,
            checkpoint_kv=recipe.kv,
        )

    @functools.cached_property
    def total_params(self) -> int:
        """All parameters, without vision towers and multi-token-prediction layers [parameter]."""
        return sum(weight.params for weight in self.weights)

    @functools.cached_property
    def active_params(self) -> float:
        """Parameters that multiply for one token; the input embedding is a look-up and not among them [parameter]."""
        return _whole(sum(weight.active_params for weight in self.weights))

    @property
    def active_params_with_embedding(self) -> float:
        """Active parameters and the input embedding, as model cards often count them [parameter]."""
        return self.active_params + (0 if self.tied_embeddings else self.embedding_params)

    @property
    def embedding_params(self) -> int:
        """Parameters of the input embedding [parameter]."""
        return sum(weight.params for weight in self.weights if weight.role == "embedding")

    @property
    def is_mla(self) -> bool:
        """Whether some layer keeps latents, which tensor parallelism copies instead of splitting."""
        return any(cache.kind == "latent" for cache in self.caches)

    def parts(self) -> dict[str, int]:
        """Parameters by role.

        Returns
        -------
        dict
            Role to parameters [parameter]; the values add up to `total_params`.

        Examples
        --------
        >>> Architecture.load("mixtral-8x7b").parts()["expert"]
        45097156608
        """
        parts: dict[str, int] = {}
        for weight in self.weights:
            parts[weight.role] = parts.get(weight.role, 0) + weight.params
        return parts

    def kv_bytes_per_token(self, kv: str = "bf16") -> float:
        """Bytes that one more token of context adds to a sequence, once every window is full.

        Parameters
        ----------
        kv : str
            KV-cache format.

        Returns
        -------
        float
            Bytes per token [B/token]; 0 if all layers have windows or states.

        Examples
        --------
        >>> Architecture.load("deepseek-v3").kv_bytes_per_token()
        70272.0
        """
        kv_format = precision.load_kv(kv)
        growing = [cache for cache in self.caches if cache.window is None and cache.stored]
        return float(sum(cache.entry_bytes(kv_format) * cache.layers / cache.stride for cache in growing))

    def stored_bytes(self, n: Floats, kv: str = "bf16") -> Floats:
        """Bytes kept for a sequence of n tokens: KV cache, index keys and states.

        Parameters
        ----------
        n : float or array
            Tokens of the sequence [token].
        kv : str
            KV-cache format.

        Returns
        -------
        float or array
            Bytes [B].

        Examples
        --------
        >>> Architecture.load("gpt-oss-120b").stored_bytes(32768)
        1212678144.0
        """
        kv_format = precision.load_kv(kv)
        total = sum(
            cache.layers * (cache.entry_bytes(kv_format) * cache.entries(n) + cache.state_bytes)
            for cache in self.caches
            if cache.stored
        )
        return _plain_number(total, n)

    def read_bytes(self, n: Floats, kv: str = "bf16") -> Floats:
        """Bytes moved to decode one token at context n: what is read of the cache, and states read and written.

        Parameters
        ----------
        n : float or array
            Tokens of context [token].
        kv : str
            KV-cache format.

        Returns
        -------
        float or array
            Bytes [B]; below `stored_bytes` where attention is sparse, above it where states are written back.

        Examples
        --------
        >>> arch = Architecture.load("deepseek-v3")
        >>> arch.read_bytes(32768) == arch.stored_bytes(32768)
        True
        """
        kv_format = precision.load_kv(kv)
        total = sum(cache.layers * cache.bytes_read(n, kv_format) for cache in self.caches)
        return _plain_number(total, n)

    def attention_flops(self, n: Floats) -> Floats:
        """FLOPs of attention for one decoded token at context n; those of the weights are not among them.

        Parameters
        ----------
        n : float or array
            Tokens of context [token].

        Returns
        -------
        float or array
            Operations, a multiply and an add being two [FLOP].

        Examples
        --------
        >>> Architecture.load("llama-3.1-70b").attention_flops(1000) == 80 * 4 * 64 * 128 * 1000
        True
        """
        total = sum(
            cache.layers * (cache.decode_flops * cache.entries_read(n) + cache.token_flops) for cache in self.caches
        )
        return _plain_number(total, n)

    def prefill_attention_flops(self, s: Floats) -> Floats:
        """FLOPs of causal attention for a prompt of s tokens; windows and top-k choices are respected.

        Parameters
        ----------
        s : float or array
            Tokens of the prompt [token].

        Returns
        -------
        float or array
            Operations [FLOP].

        Examples
        --------
        >>> Architecture.load("llama-3.1-70b").prefill_attention_flops(2) == 80 * 4 * 64 * 128 * 3
        True
        """
        total = sum(
            cache.layers * (cache.prefill_flops * cache.prefill_entries(s) + cache.token_flops * s)
            for cache in self.caches
        )
        return _plain_number(total, s)

    def weight_bytes(self, weights: str | None = None) -> float:
        """Bytes of all weights, the input embedding too, with scales and zero points.

        Parameters
        ----------
        weights : str or None
            Number format to convert the linear layers to; None is the checkpoint's own. Embedding, head, router and
            norms stay as they are, but GGUF formats convert embedding and head as well ("q4_k_m" and the like mix).

        Returns
        -------
        float
            Bytes [B].

        Examples
        --------
        >>> Architecture.load("llama-3.1-8b").weight_bytes() == 2 * 8030261248
        True
        """
        if self.header_bytes and (weights is None or self._keeps(weights)):
            return self.header_bytes.total
        return _whole(sum(weight.bytes_in(self.format_of(weight, weights)) for weight in self.weights))

    def step_weight_bytes(self, weights: str | None = None) -> tuple[float, float]:
        """Bytes of weights that a step reads: those that every token needs, and all routed experts.

        Parameters
        ----------
        weights : str or None
            As in `weight_bytes`.

        Returns
        -------
        shared, routed : float
            Bytes [B]. The input embedding is a look-up and in neither; a tied one is read as the head. Of the routed
            bytes a small batch reads only the share of experts that it touches.

        Examples
        --------
        >>> shared, routed = Architecture.load("gpt-oss-120b").step_weight_bytes()
        >>> round(shared / 1e9, 2), round(routed / 1e9, 2)
        (3.1, 60.99)
        """
        if self.header_bytes and (weights is None or self._keeps(weights)):
            tied = self.header_bytes.embedding if self.tied_embeddings else 0
            return float(self.header_bytes.shared + tied), float(self.header_bytes.routed)
        shared = routed = 0.0
        for weight in self.weights:
            if weight.role in _LOOK_UPS or (weight.role == "embedding" and not self.tied_embeddings):
                continue
            size = weight.bytes_in(self.format_of(weight, weights))
            if weight.role == "expert":
                routed += size
            else:
                shared += size
        return shared, routed

    def math_format(self, weights: str | None = None) -> str:
        """Rate at which most of the weights multiply: "bf16", "fp8", "int8" or "fp4".

        Parameters
        ----------
        weights : str or None
            As in `weight_bytes`.

        Returns
        -------
        str
            Weight-only formats multiply in "bf16".

        Examples
        --------
        >>> arch = Architecture.load("llama-3.1-70b")
        >>> arch.math_format(), arch.math_format("fp8"), arch.math_format("awq")
        ('bf16', 'fp8', 'bf16')
        """
        rates: dict[str, float] = {}
        for weight in self.weights:
            rate = self.format_of(weight, weights).math
            rates[rate] = rates.get(rate, 0.0) + weight.active_params
        return max(rates, key=rates.__getitem__)

    @functools.cached_property
    def weight_format(self) -> str:
        """Number format in which the checkpoint keeps most of its weights."""
        sizes: dict[str, int] = {}
        for weight in self.weights:
            sizes[weight.number_format] = sizes.get(weight.number_format, 0) + weight.params
        return max(sizes, key=sizes.__getitem__)

    def format_of(self, weight: Weight, weights: str | None = None) -> precision.NumberFormat:
        """Number format of one kind of weight when the model is served in a given format.

        Parameters
        ----------
        weight : Weight
            One of `self.weights`.
        weights : str or None
            As in `weight_bytes`; a checkpoint that is already of that kind keeps its own layout ("fp8" leaves
            an fp8-block checkpoint as it is).

        Returns
        -------
        NumberFormat
            The format.
        """
        if weights is None:
            return precision.load(weight.number_format)
        if recipe := precision.gguf_recipe(weights):
            return self._in_gguf(weight, recipe)
        wanted = precision.load(weights)
        if self._keeps(wanted.name):
            return precision.load(weight.number_format)
        if not weight.linear:
            return precision.load(self.plain)
        if wanted.scope == "linear" and weight.role in _OUTSIDE:
            return precision.load(self.plain)
        return wanted

    def _keeps(self, wanted: str) -> bool:
        """Whether the checkpoint is already of a kind of format."""
        return self.weight_format == wanted or self.weight_format.startswith(f"{wanted}-")

    def _in_gguf(self, weight: Weight, recipe: precision.GgufRecipe) -> precision.NumberFormat:
        if not weight.linear:
            return precision.load(self.plain)
        if weight.role == "head" or (weight.role == "embedding" and self.tied_embeddings):
            return precision.load(recipe.head)
        if weight.role == "expert" and recipe.experts != recipe.default:
            return precision.load(recipe.experts)
        if weight.module.endswith("v_proj"):
            return recipe.mixed(recipe.value, recipe.value_layers, self.layers)
        if weight.module.endswith(("down_proj", ".w2")):
            return recipe.mixed(recipe.down, recipe.down_layers, self.layers)
        return precision.load(recipe.default)


def names() -> list[str]:
    """Names of the catalogue.

    Returns
    -------
    list of str
        Sorted.

    Examples
    --------
    >>> "llama-3.1-70b" in names()
    True
    """
    return sorted(row.name for row in _catalogue.rows())


def catalogue() -> list[dict[str, Any]]:
    """The catalogue, without configs.

    Returns
    -------
    list of dict
        Keys `name, hf_id, aliases, family, source, date`.

    Examples
    --------
    >>> next(row for row in catalogue() if row["name"] == "llama-3.1-70b")["hf_id"]
    'meta-llama/Meta-Llama-3.1-70B'
    """
    return [
        {
            "name": row.name,
            "hf_id": row.hf_id,
            "aliases": list(row.aliases),
            "family": row.family,
            "source": row.source,
            "date": row.date,
        }
        for row in sorted(_catalogue.rows(), key=lambda row: row.name)
    ]


def config(name: str) -> dict[str, Any]:
    """Config of a model of the catalogue, to change and give to `Architecture.from_config`.

    Parameters
    ----------
    name : str
        A name, an alias or a Hugging Face id.

    Returns
    -------
    dict
        The keys of its config.json that decide sizes.

    Raises
    ------
    UnknownNameError
        No such model.

    Examples
    --------
    >>> half = config("llama-3.1-8b") | {"num_hidden_layers": 16}
    >>> Architecture.from_config(half).layers
    16
    """
    return dict(_catalogue.find(name).config)


def _whole(value: float) -> float:
    return int(value) if float(value).is_integer() else value


def _plain_number(total: Any, like: Floats) -> Floats:
    if np.ndim(like) == 0:
        return float(total)
    return np.broadcast_to(np.asarray(total, dtype=float), np.shape(like)).copy()


def _with_headers(made: Architecture, read: Checkpoint, linear_format: str | None) -> Architecture:
    """The same model with the exact bytes of its files, and the format of its linear layers if they told it."""
    sizes = read.split(made.layers)
    del sizes["left_out"]
    weights = made.weights
    if linear_format is not None:
        weights = tuple(
            dataclasses.replace(weight, number_format=linear_format) if weight.linear else weight for weight in weights
        )
    return dataclasses.replace(made, weights=weights, header_bytes=HeaderBytes(**sizes))
