"""The manifest of a library file: what each op takes and which kernels serve it.

docs/library-format.md is the description. The compiler builds these classes and calls `Manifest.to_json`; the runtime
reads them back with `Manifest.from_json`, which checks every field.
"""

from __future__ import annotations

import keyword
from dataclasses import dataclass, field
from typing import Any, Final

from opsgen.errors import error
from opsgen.runtime.dtypes import CLASSES, DTYPES
from opsgen.runtime.schema import Node, SchemaError

FORMAT: Final = 1
"""The manifest format that this opsgen writes, and the newest that it reads."""

Json = dict[str, Any]
Dim = str | int
AttributeValue = bool | int | str


class _Required:
    """Type of `REQUIRED`."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()
"""Default of an argument that has none. (None is a value of its own.)"""

_TENSOR_DTYPES = (*DTYPES, *CLASSES)
_ATTRIBUTE_TYPES: dict[str, type] = {"bool": bool, "int": int, "str": str}


@dataclass(frozen=True)
class TensorParam:
    """A tensor argument. ``dims[0]`` may be ``"..."``; ``dtype`` None means: bound when compiling."""

    name: str
    dims: tuple[Dim, ...]
    dtype: str | None = None
    optional: bool = False
    mutable: bool = False
    keyword: bool = False

    @property
    def leading(self) -> bool:
        """Whether it takes any number of leading dims."""
        return self.dims[:1] == ("...",)

    def to_json(self) -> Json:
        out: Json = {"name": self.name, "role": "tensor", "dims": list(self.dims), "dtype": self.dtype}
        out |= {"optional": self.optional, "mutable": self.mutable}
        return out | ({"keyword": True} if self.keyword else {})


@dataclass(frozen=True)
class ScalarParam:
    """A run-time scalar. ``default`` is `REQUIRED` where the caller must give it."""

    name: str
    default: float | _Required | None = REQUIRED
    keyword: bool = False

    def to_json(self) -> Json:
        out: Json = {"name": self.name, "role": "scalar"}
        return out | _default_and_keyword(self.default, self.keyword)


@dataclass(frozen=True)
class AttributeParam:
    """A value that specialises the kernel. ``type`` is ``"bool"``, ``"int"`` or ``"str"``."""

    name: str
    type: str
    default: AttributeValue | _Required | None = REQUIRED
    choices: tuple[AttributeValue, ...] | None = None
    keyword: bool = False

    def to_json(self) -> Json:
        choices = None if self.choices is None else list(self.choices)
        out: Json = {"name": self.name, "role": "attribute", "type": self.type, "choices": choices}
        return out | _default_and_keyword(self.default, self.keyword)


Param = TensorParam | ScalarParam | AttributeParam


@dataclass(frozen=True)
class Signature:
    """What an op takes, in the order of its Python definition, and the names of its results."""

    params: tuple[Param, ...]
    results: tuple[str, ...] = ("out",)
    doc: str = ""

    @property
    def tensors(self) -> tuple[TensorParam, ...]:
        return tuple(param for param in self.params if isinstance(param, TensorParam))

    @property
    def scalars(self) -> tuple[ScalarParam, ...]:
        return tuple(param for param in self.params if isinstance(param, ScalarParam))

    @property
    def attributes(self) -> tuple[AttributeParam, ...]:
        return tuple(param for param in self.params if isinstance(param, AttributeParam))

    def to_json(self) -> Json:
        results = [{"name": name} for name in self.results]
        return {"params": [param.to_json() for param in self.params], "results": results, "doc": self.doc}


@dataclass(frozen=True)
class PackedLayout:
    """How a kernel takes an input that was packed beforehand (`opsgen.runtime.packed`).

    ``layout`` names the layout exactly; ``bytes`` is the size of the whole packed weight with its header, an
    expression over dims; ``pack`` is the symbol of the launcher that packs.
    """

    layout: str
    bytes: str
    pack: str

    def to_json(self) -> Json:
        return {"layout": self.layout, "bytes": self.bytes, "pack": self.pack}


@dataclass(frozen=True)
class TensorSpec:
    """A tensor as one kernel takes it: dims are names, integers (bound) or, for outputs, expressions."""

    name: str
    dtype: str
    dims: tuple[Dim, ...]
    leading: bool = False
    mutable: bool = False
    index_limit: str | None = None
    packed: PackedLayout | None = None

    def to_json(self) -> Json:
        out: Json = {"name": self.name, "dtype": self.dtype, "dims": list(self.dims), "leading": self.leading}
        out |= {"mutable": self.mutable, "index_limit": self.index_limit}
        return out | ({"packed": self.packed.to_json()} if self.packed is not None else {})


@dataclass(frozen=True)
class ScalarSpec:
    """A run-time scalar as one kernel takes it; it is passed as a double and rounded once to ``dtype``."""

    name: str
    dtype: str

    def to_json(self) -> Json:
        return {"name": self.name, "dtype": self.dtype}


@dataclass(frozen=True)
class Constraint:
    """A condition on dims that every call must meet (E4010), with the sentence that says what is wanted."""

    expr: str
    message: str

    def to_json(self) -> Json:
        return {"expr": self.expr, "message": self.message}


@dataclass(frozen=True)
class Group:
    """Which schedule, in which configuration, runs one group of the op. Information."""

    pattern: str
    schedule: str
    config: Json = field(default_factory=dict)
    launches: Any = 1

    def to_json(self) -> Json:
        return {"pattern": self.pattern, "schedule": self.schedule, "config": self.config, "launches": self.launches}


@dataclass(frozen=True)
class Kernel:
    """One kernel: one op for one combination of dtypes, attributes and given optional tensors on one arch.

    ``inputs``, ``scalars`` and ``outputs`` are in the order of the signature, which is the order of the launcher.
    ``region``, ``workspace``, ``flops`` and ``bytes`` are expressions over dims.
    """

    symbol: str
    op: str
    arch: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    scalars: tuple[ScalarSpec, ...] = ()
    attributes: dict[str, AttributeValue] = field(default_factory=dict)
    absent: tuple[str, ...] = ()
    region: tuple[str, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    workspace: str = "0"
    flops: str = "0"
    bytes: str = "0"
    groups: tuple[Group, ...] = ()
    precision: str = "fp32"
    source_hash: str = ""
    tuning: Any = None

    @property
    def launcher(self) -> str:
        """Name under which the library's module knows the launcher (exported as ``__tvm_ffi_<symbol>``)."""
        return self.symbol

    def to_json(self) -> Json:
        return {
            "symbol": self.symbol,
            "op": self.op,
            "arch": self.arch,
            "attributes": dict(self.attributes),
            "absent": list(self.absent),
            "inputs": [spec.to_json() for spec in self.inputs],
            "scalars": [spec.to_json() for spec in self.scalars],
            "outputs": [spec.to_json() for spec in self.outputs],
            "region": list(self.region),
            "constraints": [constraint.to_json() for constraint in self.constraints],
            "workspace": self.workspace,
            "flops": self.flops,
            "bytes": self.bytes,
            "groups": [group.to_json() for group in self.groups],
            "precision": self.precision,
            "source_hash": self.source_hash,
            "tuning": self.tuning,
        }


@dataclass(frozen=True)
class Manifest:
    """Everything that a library file says about itself. ``created`` is an ISO time in UTC; ``driver``: the version that
    a device's driver must have at least, as the driver counts (of NVIDIA's, that of CUDA)."""

    opsgen: str
    kind: str
    archs: tuple[str, ...]
    ops: dict[str, Signature]
    kernels: tuple[Kernel, ...]
    tools: dict[str, str] = field(default_factory=dict)
    created: str = ""
    driver: str | None = None
    format: int = FORMAT

    def to_json(self) -> Json:
        """A value for `json.dumps`; `from_json` reads it back to an equal Manifest."""
        return {
            "format": self.format,
            "opsgen": self.opsgen,
            "kind": self.kind,
            "archs": list(self.archs),
            "tools": dict(self.tools),
            "created": self.created,
            **({"driver": self.driver} if self.driver is not None else {}),
            "ops": {name: signature.to_json() for name, signature in self.ops.items()},
            "kernels": [kernel.to_json() for kernel in self.kernels],
        }

    @classmethod
    def from_json(cls, data: Any, path: str = "manifest") -> Manifest:
        """Read and check ``data``, the parsed JSON of a manifest found in the file ``path``.

        Raises:
            CallError: E4013, a newer format; E4016, a field breaks the schema (its path is named).
        """
        top = Node(data)
        try:
            number = top.get("format").integer(least=1)
            if number > FORMAT:
                raise error("E4013", path=path, found=number, limit=FORMAT)
            return _manifest(top)
        except SchemaError as problem:
            raise error("E4016", path=path, found=problem) from None


def _default_and_keyword(default: Any, keyword_only: bool) -> Json:
    out: Json = {} if default is REQUIRED else {"default": default}
    return out | ({"keyword": True} if keyword_only else {})


def _manifest(top: Node) -> Manifest:
    ops = {name: _signature(name, node) for name, node in top.get("ops").fields().items()}
    archs = top.get("archs").identifiers()
    if not archs:
        raise top.get("archs").fail("it is empty")
    kernels = top.get("kernels").each(lambda node: _kernel(node, ops, archs))
    symbols: dict[str, int] = {}
    for index, kernel in enumerate(kernels):
        if symbols.setdefault(kernel.symbol, index) != index:
            raise SchemaError(
                f"kernels[{index}].symbol: {kernel.symbol!r} is that of kernels[{symbols[kernel.symbol]}] too"
            )
    manifest = Manifest(
        format=top.get("format").integer(),
        opsgen=top.get("opsgen").text(),
        kind=top.get("kind").identifier(),
        archs=archs,
        tools={name: node.text() for name, node in top.get("tools").fields().items()},
        created=top.get("created").text(),
        driver=top.get("driver").text() if top.has("driver") else None,
        ops=ops,
        kernels=kernels,
    )
    top.done()
    return manifest


def _signature(name: str, node: Node) -> Signature:
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
        raise node.fail(f"{name!r} cannot be the name of an op")
    params = node.get("params").each(_param)
    seen: set[str] = set()
    keyword_only = defaults = False
    for index, param in enumerate(params):
        if param.name in seen:
            raise SchemaError(f"{node.path}.params[{index}].name: {param.name!r} is there twice")
        seen.add(param.name)
        required = param.default is REQUIRED if not isinstance(param, TensorParam) else not param.optional
        if required and defaults and not param.keyword:
            raise SchemaError(f"{node.path}.params[{index}]: it has no default and follows a param that has one")
        defaults = defaults or not required
        if keyword_only and not param.keyword:
            raise SchemaError(f"{node.path}.params[{index}]: a positional param after a keyword-only one")
        keyword_only = param.keyword
    results = node.get("results").each(_result)
    if len(set(results)) != len(results):
        raise node.get("results").fail(f"{list(results)} names something twice")
    signature = Signature(params=params, results=results, doc=node.get("doc").text())
    node.done()
    return signature


def _result(node: Node) -> str:
    name = node.get("name").identifier()
    if keyword.iskeyword(name) or name.startswith("_"):
        raise node.fail(f"{name!r} cannot be the name of a result")
    node.done()
    return name


def _param(node: Node) -> Param:
    name = node.get("name").identifier()
    if keyword.iskeyword(name) or name == "out" or name.startswith("_og_"):
        raise node.fail(f"{name!r} cannot be the name of a param")
    role = node.get("role").choice(("tensor", "scalar", "attribute"), "tensor, scalar or attribute")
    keyword_only = node.get("keyword", False).boolean()
    param: Param
    if role == "tensor":
        param = TensorParam(
            name=name,
            dims=_signature_dims(node.get("dims")),
            dtype=node.get("dtype").optional(lambda item: item.choice(_TENSOR_DTYPES, "a dtype")),
            optional=node.get("optional").boolean(),
            mutable=node.get("mutable").boolean(),
            keyword=keyword_only,
        )
    elif role == "scalar":
        number = node.get("default").optional(Node.number) if node.has("default") else REQUIRED
        param = ScalarParam(name=name, default=number, keyword=keyword_only)
    else:
        kind = node.get("type").choice(tuple(_ATTRIBUTE_TYPES), "bool, int or str")
        param = AttributeParam(
            name=name,
            type=kind,
            default=node.get("default").optional(lambda item: _attribute(item, kind))
            if node.has("default")
            else REQUIRED,
            choices=node.get("choices").optional(lambda item: item.each(lambda one: _attribute(one, kind))),
            keyword=keyword_only,
        )
    node.done()
    return param


def _attribute(node: Node, kind: str) -> AttributeValue:
    if kind == "bool":
        return node.boolean()
    return node.integer() if kind == "int" else node.text()


def _signature_dims(node: Node) -> tuple[Dim, ...]:
    dims: list[Dim] = []
    for index, item in enumerate(node.items()):
        if item.value == "...":
            if index:
                raise item.fail('"..." must come first')
            dims.append("...")
        else:
            dims.append(_dim(item))
    return tuple(dims)


def _dim(node: Node) -> Dim:
    return node.integer(least=0) if isinstance(node.value, int) else node.identifier()


def _kernel(node: Node, ops: dict[str, Signature], archs: tuple[str, ...]) -> Kernel:
    op = node.get("op").choice(ops, "one of the ops")
    signature = ops[op]
    absent = node.get("absent").identifiers()
    optional = [param.name for param in signature.tensors if param.optional]
    for name in absent:
        if name not in optional:
            raise node.get("absent").fail(f"{name!r} is not an optional tensor of {op!r}")
    inputs = _inputs(node.get("inputs"), signature, absent)
    names = _dim_names(node, signature, inputs)
    for item, spec in zip(node.get("inputs").items(), inputs):
        if spec.packed is not None:
            item.get("packed").get("bytes").expression(names)
            if spec.mutable:
                raise item.get("packed").fail("the input is mutable")
    outputs = node.get("outputs").each(lambda item: _tensor(item, names))
    _same_names(node.get("outputs"), [spec.name for spec in outputs], list(signature.results))
    scalars = node.get("scalars").each(_scalar)
    _same_names(node.get("scalars"), [spec.name for spec in scalars], [param.name for param in signature.scalars])
    kernel = Kernel(
        symbol=node.get("symbol").identifier(),
        op=op,
        arch=node.get("arch").choice(archs, "one of the archs"),
        attributes=_attributes(node.get("attributes"), signature),
        absent=absent,
        inputs=inputs,
        scalars=scalars,
        outputs=outputs,
        region=node.get("region").each(lambda item: item.expression(names)),
        constraints=node.get("constraints").each(lambda item: _constraint(item, names)),
        workspace=node.get("workspace").expression(names),
        flops=node.get("flops").expression(names),
        bytes=node.get("bytes").expression(names),
        groups=node.get("groups").each(_group),
        precision=node.get("precision").text(),
        source_hash=node.get("source_hash").text(),
        tuning=node.get("tuning").value,
    )
    node.done()
    return kernel


def _inputs(node: Node, signature: Signature, absent: tuple[str, ...]) -> tuple[TensorSpec, ...]:
    """The inputs, which must be the signature's tensors in its order and of its ranks."""
    given = [param for param in signature.tensors if param.name not in absent]
    specs = node.each(lambda item: _tensor(item, None))
    _same_names(node, [spec.name for spec in specs], [param.name for param in given])
    for index, (spec, param) in enumerate(zip(specs, given, strict=True)):
        where = f"{node.path}[{index}]"
        if len(spec.dims) != len(param.dims) or spec.leading != param.leading:
            raise SchemaError(f"{where}.dims: {list(spec.dims)} are not those of the signature, {list(param.dims)}")
        if spec.mutable != param.mutable:
            raise SchemaError(f"{where}.mutable: the signature says {param.mutable}")
        for mine, declared in list(zip(spec.dims, param.dims, strict=True))[int(param.leading) :]:
            if mine != declared and (isinstance(mine, str) or isinstance(declared, int)):
                raise SchemaError(f"{where}.dims: {mine!r} stands where the signature has {declared!r}")
    return specs


def _dim_names(node: Node, signature: Signature, inputs: tuple[TensorSpec, ...]) -> set[str]:
    """The dims that a kernel's expressions may use: the signature's, and the one that stands for ``...``."""
    named = {dim for param in signature.tensors for dim in param.dims if isinstance(dim, str) and dim != "..."}
    leading = {str(spec.dims[0]) for spec in inputs if spec.leading}
    if len(leading) > 1 or leading & named:
        raise node.get("inputs").fail(f"the leading dims need one name of their own, not {sorted(leading)}")
    return named | leading


def _same_names(node: Node, found: list[str], wanted: list[str]) -> None:
    if found != wanted:
        raise node.fail(f"{found} are not those of the signature, {wanted}, in its order")


def _tensor(node: Node, names: set[str] | None) -> TensorSpec:
    """A tensor of a kernel; ``names`` are the dims known to an output's expressions, None for an input."""
    leading = node.get("leading", False).boolean()
    if names is None:
        dims = node.get("dims").each(_dim)
    else:
        dims = node.get("dims").each(lambda item: _dim(item) if isinstance(item.value, int) else item.expression(names))
    if leading and not (dims and isinstance(dims[0], str)):
        raise node.get("dims").fail("leading needs a name as the first dim")
    limit = node.get("index_limit", None)
    spec = TensorSpec(
        name=node.get("name").identifier(),
        dtype=node.get("dtype").choice(DTYPES, "a dtype"),
        dims=dims,
        leading=leading,
        mutable=node.get("mutable", False).boolean(),
        index_limit=None if limit.value is None else limit.text(),
        packed=_packed(node.get("packed")) if names is None and node.has("packed") else None,
    )
    node.done()
    return spec


def _packed(node: Node) -> PackedLayout:
    layout = PackedLayout(
        layout=node.get("layout").text(), bytes=node.get("bytes").text(), pack=node.get("pack").identifier()
    )
    node.done()
    return layout


def _scalar(node: Node) -> ScalarSpec:
    spec = ScalarSpec(name=node.get("name").identifier(), dtype=node.get("dtype").choice(DTYPES, "a dtype"))
    node.done()
    return spec


def _constraint(node: Node, names: set[str]) -> Constraint:
    constraint = Constraint(expr=node.get("expr").expression(names), message=node.get("message").text())
    node.done()
    return constraint


def _group(node: Node) -> Group:
    config = {name: item.value for name, item in node.get("config").fields().items()}
    group = Group(
        pattern=node.get("pattern").text(),
        schedule=node.get("schedule").text(),
        config=config,
        launches=node.get("launches").value,
    )
    node.done()
    return group


def _attributes(node: Node, signature: Signature) -> dict[str, AttributeValue]:
    declared = {param.name: param for param in signature.attributes}
    fields = node.fields()
    _same_names(node, sorted(fields), sorted(declared))
    values: dict[str, AttributeValue] = {}
    for name, param in declared.items():
        values[name] = _attribute(fields[name], param.type)
        if param.choices is not None and values[name] not in param.choices:
            raise fields[name].fail(f"{values[name]!r} is not one of {list(param.choices)}")
    return values
