"""Every E1xxx error: the message shows the line of the mistake, what was found, and what would be right."""

import re
from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest

import opsgen as og
from opsgen.compiler.problem import enumerate_problems
from opsgen.errors import ERRORS, CompileError, DefinitionError


@og.op
def scaled(x: og.Tensor["...", "hidden"], weight: og.Tensor["hidden"], *, factor: float = 1.0) -> og.Tensor:
    return x * weight * factor


@og.op
def two_names(a: og.Tensor["rows", "inner"], b: og.Tensor["inner", "columns"]) -> og.Tensor:
    return og.dot(a, b, over="inner")


CASES: list[tuple[Callable[[], object], str, str, str, str]] = []


def case(code: str, line: str, fact: str, remedy: str) -> Callable[[Callable[[], object]], Callable[[], object]]:
    """Registers a function that makes one mistake: the error's code, and parts of its message."""

    def add(make: Callable[[], object]) -> Callable[[], object]:
        CASES.append((make, code, line, fact, remedy))
        return make

    return add


# -- E1001: unknown dim ------------------------------------------------------------------------------------------------
@case("E1001", 'og.index("keys")', "unknown dim 'keys'; the dims here are ['a', 'b']", "Use one of them")
def index_of_an_unknown_dim() -> None:
    @og.op
    def f(x: og.Tensor["a", "b"]) -> og.Tensor:
        return x + og.index("keys")


@case("E1001", 'og.size("keys")', "unknown dim 'keys'", "Use one of them")
def size_of_an_unknown_dim() -> None:
    @og.op
    def f(x: og.Tensor["a"]) -> og.Tensor:
        return x / og.size("keys")


@case("E1001", "x.at(keys=0)", "unknown dim 'keys'; the dims here are ['a']", "Use one of them")
def read_along_a_dim_that_is_not_there() -> None:
    @og.op
    def f(x: og.Tensor["a"], y: og.Tensor["keys"]) -> og.Tensor:
        return x.at(keys=0) + og.sum(y, over="keys")


@case("E1001", 'x.rename(b="c")', "unknown dim 'b'", "Use one of them")
def rename_of_a_dim_of_another_tensor() -> None:
    @og.op
    def f(x: og.Tensor["a"], y: og.Tensor["b"]) -> og.Tensor:
        return x.rename(b="c") * y


@case("E1001", 'x.split("b", c=2, d=None)', "unknown dim 'b'", "Use one of them")
def split_of_a_dim_of_another_tensor() -> None:
    @og.op
    def f(x: og.Tensor["a"], y: og.Tensor["b"]) -> og.Tensor:
        return x.split("b", c=2, d=None)


@case("E1001", 'x.merge("a", into="c")', "unknown dim ['a']", "Use one of them")
def merge_of_one_dim() -> None:
    @og.op
    def f(x: og.Tensor["a", "b"]) -> og.Tensor:
        return x.merge("a", into="c")


@case("E1001", 'og.require("heads % 2 == 0", "even")', "unknown dim 'heads'", "Use one of them")
def condition_on_an_unknown_dim() -> None:
    @og.op
    def f(x: og.Tensor["a"]) -> og.Tensor:
        og.require("heads % 2 == 0", "even")
        return x


# -- E1002: reduction over an absent dim -------------------------------------------------------------------------------
@case(
    "E1002",
    'og.sum(x, over="hiden")',
    "sum over 'hiden', but the operand has dims ['rows', 'hidden']",
    "one of its dims",
)
def sum_over_a_misspelt_dim() -> None:
    @og.op
    def f(x: og.Tensor["...", "hidden"]) -> og.Tensor:
        return og.sum(x, over="hiden")


@case("E1002", 'og.mean(y, over="a")', "mean over 'a', but the operand has dims ['b']", "one of its dims")
def mean_over_a_dim_of_another_tensor() -> None:
    @og.op
    def f(x: og.Tensor["a"], y: og.Tensor["b"]) -> og.Tensor:
        return x * og.mean(y, over="a")


@case("E1002", 'og.dot(x, y, over="b")', "dot over 'b', but the operand has dims ['a']", "one of its dims")
def dot_over_a_dim_of_one_side() -> None:
    @og.op
    def f(x: og.Tensor["a"], y: og.Tensor["b"]) -> og.Tensor:
        return og.dot(x, y, over="b")


@case("E1002", 'og.max(x, over=("a", "a"))', "max over ('a', 'a')", "one of its dims")
def a_dim_twice() -> None:
    @og.op
    def f(x: og.Tensor["a"]) -> og.Tensor:
        return og.max(x, over=("a", "a"))


@case("E1002", 'og.sum(1.0, over="a")', "sum over 'a', but the operand has dims []", "one of its dims")
def sum_of_a_number() -> None:
    @og.op
    def f(x: og.Tensor["a"]) -> og.Tensor:
        return x * og.sum(1.0, over="a")


# -- E1003: types ------------------------------------------------------------------------------------------------------
@case("E1003", "return x + mask", "add cannot take bool; it takes numbers", "og.where(b, 1.0, 0.0)")
def arithmetic_with_a_bool() -> None:
    @og.op
    def f(x: og.Tensor["a"], mask: og.Tensor["a", og.bool_]) -> og.Tensor:
        return x + mask


@case("E1003", "return og.where(x, x, 0.0)", "a condition of type float32", "a bool condition")
def a_condition_of_floats() -> None:
    @og.op
    def f(x: og.Tensor["a"]) -> og.Tensor:
        return og.where(x, x, 0.0)


@case("E1003", "og.where(mask, mask, x)", "bool and float32", "both numbers or both bool")
def branches_of_two_kinds() -> None:
    @og.op
    def f(x: og.Tensor["a"], mask: og.Tensor["a", og.bool_]) -> og.Tensor:
        return og.where(mask, mask, x)


@case("E1003", "return x & mask", "float32", "such as a comparison gives")
def logic_on_floats() -> None:
    @og.op
    def f(x: og.Tensor["a"], mask: og.Tensor["a", og.bool_]) -> og.Tensor:
        return x & mask


@case("E1003", "return x == mask", "float32 and bool", "two numbers or two bools")
def comparison_of_two_kinds() -> None:
    @og.op
    def f(x: og.Tensor["a"], mask: og.Tensor["a", og.bool_]) -> og.Tensor:
        return x == mask


@case("E1003", "table.at(vocab=x)", "a position of type float32", "integer positions")
def a_position_of_floats() -> None:
    @og.op
    def f(x: og.Tensor["a"], table: og.Tensor["vocab"]) -> og.Tensor:
        return table.at(vocab=x)


@case("E1003", 'og.cast(x, "float8")', "dtype 'float8'", "float16")
def cast_to_an_unknown_type() -> None:
    @og.op
    def f(x: og.Tensor["a"]) -> og.Tensor:
        return og.cast(x, "float8")


@case("E1003", 'og.sum(mask, over="a")', "sum cannot take bool", "og.cast(x, dtype)")
def sum_of_bools() -> None:
    @og.op
    def f(mask: og.Tensor["a", og.bool_]) -> og.Tensor:
        return og.sum(mask, over="a")


@case("E1003", "return x * [1.0]", "a list", "tensor expressions and Python numbers")
def a_list_as_operand() -> None:
    @og.op
    def f(x: og.Tensor["a"]) -> og.Tensor:
        return x * [1.0]


@case("E1010", "return x + np.ones(3)", "an operand is an array (numpy.ndarray)", "make it a parameter")
def a_numpy_array_as_operand() -> None:
    @og.op
    def f(x: og.Tensor["a"]) -> og.Tensor:
        return x + np.ones(3)


@case("E1003", 'return x + "1"', "a str", "tensor expressions and Python numbers")
def a_string_as_operand() -> None:
    @og.op
    def f(x: og.Tensor["a"]) -> og.Tensor:
        return x + "1"


@case("E1003", 'og.rename(1.0, a="b")', "a float", "a tensor")
def a_view_of_a_number() -> None:
    @og.op
    def f(x: og.Tensor["a"]) -> og.Tensor:
        return x + og.rename(1.0, a="b")


@case("E1003", "return x & ids", "float32", "or integers alone")
def bits_of_a_float() -> None:
    @og.op
    def f(x: og.Tensor["a"], ids: og.Tensor["a", og.int64]) -> og.Tensor:
        return x & ids


@case("E1003", "return mask ^ ids", "bool and int64", "two bools or two integers")
def exclusive_or_of_two_kinds() -> None:
    @og.op
    def f(mask: og.Tensor["a", og.bool_], ids: og.Tensor["a", og.int64]) -> og.Tensor:
        return mask ^ ids


@case("E1003", "return ids << x", "shift_left cannot take float32", "integers")
def a_shift_by_floats() -> None:
    @og.op
    def f(ids: og.Tensor["a", og.int64], x: og.Tensor["a"]) -> og.Tensor:
        return ids << x


@case("E1003", "return og.wide_product(ids, 0.5)", "wide_product cannot take float32", "integers")
def a_wide_product_of_a_float() -> None:
    @og.op
    def f(ids: og.Tensor["a", og.int64]) -> og.Tensor:
        return og.wide_product(ids, 0.5)


@case("E1010", "return ids >> 32", "a shift of int32 by 32", "Shift by 0 to 31")
def a_shift_out_of_the_width() -> None:
    @og.op
    def f(ids: og.Tensor["a", og.int32]) -> og.Tensor:
        return ids >> 32


@case("E1011", "return ids & 0xFFFFFFFF", "the constant 4294967295 does not fit int32", "Use a smaller constant")
def a_mask_out_of_the_width() -> None:
    @og.op
    def f(ids: og.Tensor["a", og.int32]) -> og.Tensor:
        return ids & 0xFFFFFFFF


@case("E1003", "return og.bitcast(x, og.int64)", "float32 as int64", "two types of 32 bits, or two of 64")
def bits_of_another_width() -> None:
    @og.op
    def f(x: og.Tensor["a", og.float32]) -> og.Tensor:
        return og.bitcast(x, og.int64)


@case("E1003", 'return og.bitcast(x, "word")', "dtype 'word'", "int32")
def bits_of_no_type() -> None:
    @og.op
    def f(x: og.Tensor["a", og.float32]) -> og.Tensor:
        return og.bitcast(x, "word")


@case("E1003", "return og.random_bits(x, seed, 0)", "float32 as position", "integers")
def random_bits_at_a_float() -> None:
    @og.op
    def f(x: og.Tensor["a"], seed: og.Tensor[og.int64]) -> og.Tensor:
        return og.random_bits(x, seed, 0)


# -- E1004: Python control flow on values ------------------------------------------------------------------------------
@case("E1004", "if x > 0:", "a Python if/and/or/not/while needs the value", "og.where(condition, a, b)")
def an_if() -> None:
    @og.op
    def f(x: og.Tensor["a"]) -> og.Tensor:
        if x > 0:
            return x
        return -x


@case("E1004", "0.0 < x < 1.0", "a Python if/and/or/not/while", "og.where")
def a_chained_comparison() -> None:
    @og.op
    def f(x: og.Tensor["a"]) -> og.Tensor:
        return og.where(0.0 < x < 1.0, x, 0.0)


@case("E1004", "for element in x:", "a Python loop or unpacking", "og.where")
def a_loop() -> None:
    @og.op
    def f(x: og.Tensor["a"]) -> og.Tensor:
        for element in x:
            return element
        return x


@case("E1004", "return x * len(x)", "a Python len()", "attribute of the op")
def a_len() -> None:
    @og.op
    def f(x: og.Tensor["a"]) -> og.Tensor:
        return x * len(x)


@case("E1004", "return x * float(x)", "a Python float()", "attribute of the op")
def a_float() -> None:
    @og.op
    def f(x: og.Tensor["a"]) -> og.Tensor:
        return x * float(x)


@case("E1004", "range(n)", "a Python integer use", "attribute of the op")
def a_range() -> None:
    @og.op
    def f(x: og.Tensor["a"], n: og.Tensor[og.int64]) -> og.Tensor:
        return x * len(range(n))


# -- E1005: parameters -------------------------------------------------------------------------------------------------
@case("E1005", "@og.op", "parameter 'x': it has no annotation", 'og.Tensor["...", "hidden"]')
def no_annotation() -> None:
    @og.op
    def f(x):  # type: ignore[no-untyped-def]
        return x


@case("E1005", "@og.op", "parameter 'mode': the annotation <class 'str'>", "Literal[...] or an enum")
def an_annotation_without_meaning() -> None:
    @og.op
    def f(x: og.Tensor["a"], *, mode: str = "fast") -> og.Tensor:
        return x


@case("E1005", "@og.op", "Missing", "Import what it names")
def an_annotation_that_cannot_be_read() -> None:
    @og.op
    def f(x: "Missing[0]") -> og.Tensor:
        return x


@case("E1005", 'x: og.Tensor["a b"]', "'a b' is no dim name", 'identifiers or "..."')
def a_dim_that_is_no_name() -> None:
    @og.op
    def f(x: og.Tensor["a b"]) -> og.Tensor:
        return x


@case("E1005", "@og.op", "*args and **kwargs have no dims", "Name each parameter")
def any_number_of_tensors() -> None:
    @og.op
    def f(*tensors: og.Tensor["a"]) -> og.Tensor:
        return tensors[0]


@case("E1005", "@og.op", "the name 'out' is taken", "Choose another name")
def a_parameter_called_out() -> None:
    @og.op
    def f(out: og.Tensor["a"]) -> og.Tensor:
        return out


@case("E1005", "@og.op", "a tensor with default None", "| None")
def a_default_without_none_in_the_type() -> None:
    @og.op
    def f(x: og.Tensor["a"] = None) -> og.Tensor:
        return x


@case("E1005", "@og.op", "a Mut tensor that may be None", "required parameter")
def an_optional_mut() -> None:
    @og.op
    def f(x: og.Tensor["a"], state: og.Mut["a"] | None = None) -> og.Tensor:
        return x


@case("E1005", "@og.op", "a float with default True", "Give a number")
def a_float_with_a_bool_default() -> None:
    @og.op
    def f(x: og.Tensor["a"], *, eps: float = True) -> og.Tensor:
        return x + eps


@case("E1005", "@og.op", "its default is 'slow'; wanted one of ['fast', 'exact']", "Change the default")
def a_default_that_is_no_choice() -> None:
    @og.op
    def f(x: og.Tensor["a"], *, mode: Literal["fast", "exact"] = "slow") -> og.Tensor:
        return x


# -- E1006, E1007: dims ------------------------------------------------------------------------------------------------
@case("E1006", 'x: og.Tensor["hidden", "..."]', "['hidden', '...']", "Write it first")
def leading_dims_last() -> None:
    @og.op
    def f(x: og.Tensor["hidden", "..."]) -> og.Tensor:
        return x


@case("E1001", 'og.index("...")', "unknown dim '...'", "the dims here are ['a']")
def the_index_of_leading_dims_that_are_not_there() -> None:
    @og.op
    def f(x: og.Tensor["a"]) -> og.Tensor:
        return x + og.index("...")


@case("E1007", 'x: og.Tensor["a", "a"]', "dim 'a' is there twice", "Rename one")
def a_dim_twice_in_a_parameter() -> None:
    @og.op
    def f(x: og.Tensor["a", "a"]) -> og.Tensor:
        return x


@case("E1007", "@og.op", "dim 'rows' is there twice", "Rename one")
def a_dim_called_rows_beside_leading_dims() -> None:
    @og.op
    def f(x: og.Tensor["...", "a"], y: og.Tensor["rows"]) -> og.Tensor:
        return x


@case("E1007", 'x.rename(a="b")', "dim 'b' is there twice in this op, with extents b and a", "Rename one")
def a_name_for_two_extents() -> None:
    @og.op
    def f(x: og.Tensor["a"], y: og.Tensor["b"]) -> og.Tensor:
        return x.rename(a="b") + y


# -- E1008: calls of ops -----------------------------------------------------------------------------------------------
@case("E1008", "return scaled(x)", "argument 'weight' is missing", "scaled(x, weight, *, factor=1.0)")
def a_missing_argument() -> None:
    @og.op
    def f(x: og.Tensor["a", "b"]) -> og.Tensor:
        return scaled(x)


@case("E1008", "return scaled(x, w, bias=w)", "argument 'bias' is not known", "The call is scaled(")
def an_unknown_argument() -> None:
    @og.op
    def f(x: og.Tensor["a", "b"], w: og.Tensor["b"]) -> og.Tensor:
        return scaled(x, w, bias=w)


@case("E1008", "return scaled(x, w, x=x)", "argument 'x' is given twice", "The call is scaled(")
def an_argument_twice() -> None:
    @og.op
    def f(x: og.Tensor["a", "b"], w: og.Tensor["b"]) -> og.Tensor:
        return scaled(x, w, x=x)


@case("E1008", "return scaled(x, w, 1.0)", "3 positional arguments", "The call is scaled(")
def a_keyword_argument_by_position() -> None:
    @og.op
    def f(x: og.Tensor["a", "b"], w: og.Tensor["b"]) -> og.Tensor:
        return scaled(x, w, 1.0)


@case("E1008", "return scaled(x, w, factor=w)", "argument 'factor' is <Input float32[b]>", "It takes a number")
def a_tensor_for_a_number() -> None:
    @og.op
    def f(x: og.Tensor["a", "b"], w: og.Tensor["b"]) -> og.Tensor:
        return scaled(x, w, factor=w)


@case("E1008", "return scaled(x, 2.0)", "argument 'weight' is 2.0", "Pass a tensor expression")
def a_number_for_a_tensor() -> None:
    @og.op
    def f(x: og.Tensor["a", "b"]) -> og.Tensor:
        return scaled(x, 2.0)


@case("E1008", "return scaled(x, x)", "argument 'weight' has dims ['a', 'b']", "It takes ['hidden']")
def too_many_dims() -> None:
    @og.op
    def f(x: og.Tensor["a", "b"]) -> og.Tensor:
        return scaled(x, x)


@case("E1008", "return scaled(x, mask)", "argument 'weight' is bool", "float32")
def a_type_that_the_called_op_does_not_take() -> None:
    @og.op
    def f(x: og.Tensor["a", "b"], mask: og.Tensor["b", og.bool_]) -> og.Tensor:
        return scaled(x, mask)


@case("E1008", "return two_names(x, y)", "its dim 'inner' is 'b' for one argument and 'c' for 'b'", "b.rename(c='b')")
def dims_that_disagree() -> None:
    @og.op
    def f(x: og.Tensor["a", "b"], y: og.Tensor["c", "d"]) -> og.Tensor:
        return two_names(x, y)


@case("E1008", "scaled(1.0, 2.0)", "it was called outside of an op's definition", "lib = og.compile([scaled])")
def a_call_outside_of_a_definition() -> None:
    scaled(1.0, 2.0)


# -- E1009: what an op returns -----------------------------------------------------------------------------------------
@case("E1009", "@og.op", "returned a NoneType", "og.results(name=tensor, ...)")
def no_result() -> None:
    @og.op
    def f(x: og.Tensor["a"]) -> None:
        x + 1


@case("E1009", "@og.op", "returned a tuple", "og.results(name=tensor, ...)")
def a_tuple_of_results() -> None:
    @og.op
    def f(x: og.Tensor["a"]) -> tuple[og.Tensor, og.Tensor]:
        return x, x


@case("E1009", "@og.op", "returned no results", "og.results(name=tensor, ...)")
def results_without_any() -> None:
    @og.op
    def f(x: og.Tensor["a"]) -> og.Results:
        return og.results()


@case("E1009", "@og.op", "returned y=str", "og.results(name=tensor, ...)")
def a_result_that_is_no_tensor() -> None:
    @og.op
    def f(x: og.Tensor["a"]) -> og.Results:
        return og.results(y="x")


# -- E1010: use of a function ------------------------------------------------------------------------------------------
@case("E1010", "return y + bias", "an operand is None", "`is None`")
def an_absent_tensor_as_operand() -> None:
    @og.op
    def f(x: og.Tensor["a"], bias: og.Tensor["a"] | None = None) -> og.Tensor:
        y = x * 2.0
        return y + bias


@case("E1010", "return x.sum()", "a tensor of a definition has no 'sum'", "It is a function: og.sum(x, ...)")
def an_unknown_method() -> None:
    @og.op
    def f(x: og.Tensor["a"]) -> og.Tensor:
        return x.sum()


@case("E1010", 'return bias.rename(a="b")', "'NoneType' object has no attribute 'rename'", "`is None`")
def a_method_of_an_absent_tensor() -> None:
    @og.op
    def f(x: og.Tensor["a"], bias: og.Tensor["a"] | None = None) -> og.Tensor:
        return bias.rename(a="b")


@case("E1010", "return np.exp(x)", "np.exp: numpy computes arrays", "Use og.exp")
def a_numpy_function() -> None:
    @og.op
    def f(x: og.Tensor["a"]) -> og.Tensor:
        return np.exp(x)


@case("E1010", "og.dot(x, x)", "missing 1 required positional argument: 'over'", "Correct it")
def a_dot_over_nothing() -> None:
    @og.op
    def f(x: og.Tensor["a"]) -> og.Tensor:
        return og.dot(x, x)


@case("E1010", "return x[0]", "not indexed by position", "x.at(dim=position)")
def a_subscript() -> None:
    @og.op
    def f(x: og.Tensor["a"]) -> og.Tensor:
        return x[0]


@case("E1010", "return og.max(x)", "neither or both", "og.max(x, over='dim')")
def a_maximum_of_what() -> None:
    @og.op
    def f(x: og.Tensor["a"]) -> og.Tensor:
        return og.max(x)


@case("E1010", 'og.argmax(x, over=("a", "b"))', "2 dims to search", "x.merge('a', 'b', into='ab')")
def argmax_over_two_dims() -> None:
    @og.op
    def f(x: og.Tensor["a", "b"]) -> og.Tensor:
        return og.argmax(x, over=("a", "b"))


@case("E1010", 'og.split(x, "a", b=None, c=None)', "extents {'b': None, 'c': None}", "at most one of them None")
def a_split_into_unknowns() -> None:
    @og.op
    def f(x: og.Tensor["a"]) -> og.Tensor:
        return og.split(x, "a", b=None, c=None)


@case("E1010", 'og.split(x, "a", b=0, c=None)', "the extent of 'b' is 0", "positive int, og.size('dim') or None")
def a_split_into_nothing() -> None:
    @og.op
    def f(x: og.Tensor["a"]) -> og.Tensor:
        return og.split(x, "a", b=0, c=None)


@case("E1010", 'og.concat(x, y, dim="a", into="c")', "joined along ['a', 'a']", "all their other dims must agree")
def a_concat_of_other_dims() -> None:
    @og.op
    def f(x: og.Tensor["a"], y: og.Tensor["a", "b"]) -> og.Tensor:
        return og.concat(x, y, dim="a", into="c")


@case("E1010", 'og.require("a %% 2", "even")', "is no expression", "heads % kv_heads == 0")
def a_condition_that_is_no_expression() -> None:
    @og.op
    def f(x: og.Tensor["a"]) -> og.Tensor:
        og.require("a %% 2", "even")
        return x


@case("E1010", 'og.require("a / 2 == 1.5", "half")', "cannot stand in a condition", "heads % kv_heads == 0")
def a_condition_beyond_integers() -> None:
    @og.op
    def f(x: og.Tensor["a"]) -> og.Tensor:
        og.require("a / 2 == 1.5", "half")
        return x


@case("E1010", "@og.op", "the Mut parameter 'state' is never updated", "og.results(state=...)")
def a_mut_that_stays() -> None:
    @og.op
    def f(x: og.Tensor["a"], state: og.Mut["a"]) -> og.Tensor:
        return x + state


@case("E1010", "@og.op", "the new value of 'state' has dims ['a', 'b'], the parameter ['a']", "must be the parameter's")
def a_mut_that_grows() -> None:
    @og.op
    def f(x: og.Tensor["a", "b"], state: og.Mut["a"]) -> og.Results:
        return og.results(state=x + state)


@case("E1010", 'og.index("a")', "outside an op's definition", "@og.op")
def a_position_outside_of_a_definition() -> None:
    og.index("a")


@case("E1010", 'og.sum(1.0, over="a")', "outside an op's definition", "@og.op")
def a_sum_outside_of_a_definition() -> None:
    og.sum(1.0, over="a")


# -- E1011: constants --------------------------------------------------------------------------------------------------
@case("E1011", "og.cast(65536.0, og.float16)", "65536.0 does not fit float16, whose largest value is 65504", "smaller")
def a_constant_cast_to_float16() -> None:
    @og.op
    def f(x: og.Tensor["a"]) -> og.Tensor:
        return x + og.cast(65536.0, og.float16)


@case("E1011", "return x * 1e39", "1e+39 does not fit float32", "Use a smaller constant")
def a_constant_beyond_the_compute_type() -> None:
    @og.op
    def f(x: og.Tensor["a"]) -> og.Tensor:
        return x * 1e39


@case("E1011", "return x + 200", "200 does not fit int8, whose largest value is 127", "Use a smaller constant")
def a_constant_beside_small_integers() -> None:
    @og.op
    def f(x: og.Tensor["a", og.int8]) -> og.Tensor:
        return x + 200


@case("E1011", "x + 2**70", "does not fit int64", "Use a smaller constant")
def an_integer_beyond_int64() -> None:
    @og.op
    def f(x: og.Tensor["a", og.int64]) -> og.Tensor:
        return x + 2**70


# -- E1013: order of dims ----------------------------------------------------------------------------------------------
@case("E1013", 'og.transpose(x, "b")', "['b'] of a result cannot be put in an order", "og.transpose(x, 'a', 'b', ...)")
def an_order_of_some_dims() -> None:
    @og.op
    def f(x: og.Tensor["a", "b"]) -> og.Tensor:
        return og.transpose(x, "b")


@pytest.mark.parametrize(("make", "code", "line", "fact", "remedy"), CASES, ids=[c[0].__name__ for c in CASES])
def test_message(make: Callable[[], object], code: str, line: str, fact: str, remedy: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        make()
    message = str(caught.value)
    assert caught.value.code == code, message
    where = re.match(rf"{code}: (test_definition_errors\.py:\d+ \(`.*?`\)): ", message)
    assert where is not None, message
    number = int(re.search(r":(\d+) ", where[1])[1])
    first = make.__code__.co_firstlineno
    assert first < number <= first + 10, f"line {number} is not in {make.__name__}, which starts at {first}"
    assert line in where[1], message
    assert fact in message, message
    assert remedy in message, message


def test_every_code_is_tested() -> None:
    codes = {code for code in ERRORS if code.startswith("E1")}
    assert codes == {code for _, code, *_ in CASES}


@pytest.mark.parametrize(("first", "line"), [("", 3), ("from __future__ import annotations", 2)])
def test_annotation_errors_in_code_without_a_file(first: str, line: int) -> None:
    """Where annotations are strings, an error in one shows the line on which the op starts."""
    with pytest.raises(DefinitionError, match=rf"E1006: <string>:{line}: dims \['a', '...'\]"):
        exec(f"{first}\n@og.op\ndef f(x: og.Tensor['a', '...']): return x", {"og": og})


def test_an_op_made_by_exec() -> None:
    with pytest.raises(DefinitionError, match=r"E1002: <string>:3: sum over 'b'"):
        exec("@og.op\ndef f(x: og.Tensor['a']):\n    return og.sum(x, over='b')", {"og": og})


def test_an_error_in_a_called_op_shows_the_line_in_that_op() -> None:
    @og.op
    def inner(x: og.Tensor["a"], *, exact: bool) -> og.Tensor:
        return x.missing

    with pytest.raises(DefinitionError, match=r"`return x\.missing`"):

        @og.op
        def outer(x: og.Tensor["a"]) -> og.Tensor:
            return inner(x, exact=True)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_half_type_takes_constants_of_float32(dtype: str) -> None:
    """Half types compute in float32: 1e5 is beyond float16, and x * 1e5 * 1e-5 is right."""

    @og.op
    def f(x: og.Tensor["a"]) -> og.Tensor:
        return x * 1e5 * 1e-5

    graph = f.trace(getattr(og, dtype))
    assert graph.results[0].dtype.name == dtype
    x = np.arange(4, dtype=np.float32).astype(dtype if dtype == "float16" else np.float32)
    assert np.array_equal(f.evaluate(x), x)


def test_float8_constants_and_parameters() -> None:
    with pytest.raises(DefinitionError, match=r"E1011.*500\.0.*float8_e4m3fn.*448"):

        @og.op
        def f(x: og.Tensor["a"]) -> og.Tensor:
            return x + og.cast(500.0, og.float8_e4m3fn)

    @og.op
    def g(x: og.Tensor["a", og.float8], y: og.Tensor["a"]) -> og.Tensor:
        return og.cast(x, og.float32) + y

    assert [d.name for d in (g.trace().inputs[0].dtype, g.trace(dtypes_of={"x": og.float8_e5m2}).inputs[0].dtype)] == [
        "float8_e4m3fn",
        "float8_e5m2",
    ]
    with pytest.raises(CompileError, match=r"E3002.*x.*float16.*float8_e4m3fn"):
        g.trace(dtypes_of={"x": og.float16})
    with pytest.raises(CompileError, match=r"E3002.*float8_e5m2.*float32.*float16.*bfloat16"):
        enumerate_problems([g], ["float8_e5m2"], {})
