#!/usr/bin/env python3
"""Checks that C++ files include the standard headers they use, themselves or through headers of this project.

Release builds read the standard headers once a target (cmake/precompiled_headers.cmake), so that a missing one shows only in
builds without: the sanitizers', another compiler's, a user's of a public header.

usage: check_includes.py [ROOT]
"""

import pathlib
import re
import sys

ALGORITHMS = """adjacent_find all_of any_of binary_search clamp copy copy_backward copy_if copy_n count count_if equal equal_range
    fill fill_n find find_if find_if_not for_each generate includes is_permutation is_sorted lexicographical_compare lower_bound max
    max_element merge min min_element minmax_element mismatch next_permutation none_of nth_element partition remove remove_if
    replace replace_if reverse rotate sample search set_difference set_intersection set_union shuffle sort stable_partition
    stable_sort swap_ranges transform unique upper_bound"""
MATH = """atan2 cbrt ceil cos erf exp exp2 expm1 fabs floor fma fmod frexp hypot isfinite isinf isnan ldexp llround log log1p log2
    lround nextafter pow round sin sqrt tanh trunc"""


def calls(names):
    return rf"std::(?:ranges::)?(?:{'|'.join(names.split())})\("


USES = {
    "algorithm": calls(ALGORITHMS),
    "array": r"std::array<",
    "bit": r"std::(?:bit_cast|bit_ceil|bit_width|countl_zero|countr_zero|has_single_bit|popcount)\b",
    "chrono": r"std::chrono\b",
    "cmath": calls(MATH),
    "cstdint": r"std::u?int(?:8|16|32|64|max|ptr)_t\b",
    "cstring": r"std::(?:memcmp|memcpy|memset|strcmp|strlen)\(",
    "functional": r"std::function<",
    "limits": r"std::numeric_limits<",
    "map": r"std::(?:multi)?map<",
    "memory": r"std::(?:make_shared|make_unique|shared_ptr|unique_ptr)\b",
    "mutex": r"std::(?:lock_guard|mutex|scoped_lock|unique_lock)\b",
    "numeric": calls("accumulate exclusive_scan gcd inner_product iota lcm partial_sum"),
    "optional": r"std::optional<",
    "set": r"std::(?:multi)?set<",
    "span": r"std::span<",
    "sstream": r"std::[io]?stringstream\b",
    "string_view": r"std::string_view\b",
    "tuple": r"std::(?:get<\d|tie\(|tuple<)",
    "unordered_map": r"std::unordered_map<",
    "unordered_set": r"std::unordered_set<",
    "variant": r"std::(?:variant<|visit\()",
}
FOLDERS = ("src", "include", "tests", "python/bindings", "examples", "fuzz", "bench")
INCLUDE = re.compile(r'^\s*#include [<"]([^>"]+)[>"]', re.MULTILINE)
COMMENT = re.compile(r"//.*")


def standard_headers(root, path, seen):
    """Names of all headers from elsewhere that `path` includes, directly or through this project's headers."""
    if path in seen:
        return set()
    seen.add(path)
    found = set()
    for name in INCLUDE.findall(path.read_text()):
        ours = [folder / name for folder in (path.parent, root / "src", root / "include", root / "tests")]
        ours = [file.resolve() for file in ours if file.is_file()]
        found |= standard_headers(root, ours[0], seen) if ours else {name}
    return found


def missing(root):
    """Pairs of a file and a header it uses and does not get."""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in {".h", ".cpp"}:
                continue
            text = COMMENT.sub("", path.read_text())
            have = standard_headers(root, path.resolve(), set())
            for header, use in USES.items():
                if header not in have and re.search(use, text):
                    yield path, header


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    found = [f"{path.relative_to(root)}: uses <{header}> and does not include it" for path, header in missing(root)]
    print("\n".join(found) if found else "files include the standard headers they use")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
