#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Generates the bindings of the headers that the kernel's own bindings do not
# cover.
#
# usage: bindgen.sh BINDGEN KERNEL_BINDINGS PARAMETERS HEADER OUTPUT C_FLAGS...
#
# If there is no KERNEL_BINDINGS, as in the headers of some distributions, the
# compiled crate is asked; $RUSTC_COMMAND is a compiler with all flags for that.
#
# A C type must have one Rust type only. What KERNEL_BINDINGS (the generated
# part of `kernel::bindings`) defines is therefore blocked here and imported
# from there. There are types, though, which the kernel's bindings only mention,
# as opaque forward declarations: those that the headers here define in full are
# bound here, the rest is again imported. Which ones these are is known only
# after a first run.
#
# The layout tests are part of the output: they would show a type that became
# opaque although its size matters.
set -e

bindgen=$1
kernel_bindings=$2
parameters=$3
header=$4
output=$5
shift 5

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# All types of a file of bindings, one per line; " opaque" follows the names of
# those without contents. Does not depend on how the file is laid out.
types_of() {
	tr -s '[:space:]' ' ' <"$1" |
		grep -oE 'pub (struct|union|type) [A-Za-z0-9_]+( \{ _unused)?' |
		sed -e 's/^pub [a-z]* //' -e 's/ { _unused$/ opaque/' |
		grep -vE '^(_bindgen_ty|__Bindgen|__Incomplete)' |
		LC_ALL=C sort -u
}

# Options that block the types listed on standard input. One option per type
# would be slow, one for all of them longer than an argument may be.
block() {
	awk '
		{ group = group (group == "" ? "" : "|") $1 }
		NR % 400 == 0 { print "--blocklist-type " group; group = "" }
		END { if (group != "") print "--blocklist-type " group }'
}

# run BLOCKED OUTPUT C_FLAGS...: one run of bindgen. No option contains a blank,
# but some contain `*`.
run() {
	blocked=$1
	result=$2
	shift 2
	set -f
	# shellcheck disable=SC2046
	"$bindgen" "$header" $(cat "$blocked") \
		$(grep -Ev '^#|^$' "$parameters") \
		--rust-target 1.85 --use-core --ctypes-prefix ffi --no-debug '.*' \
		--enable-function-attribute-detection -o "$result" -- "$@"
	set +f
}

# Which of the types of a file of bindings the crate of the kernel has, in the same
# form. The compiler tells it by its errors: a line of the first program has one if
# there is no such type, a line of the second if the type has a private field of the
# name that bindgen gives to what it knows nothing of.
types_in_crate() {
	types_of "$1" | sed 's/ opaque$//' >"$work/names"
	sed 's/.*/type T_& = bindings::&;/' "$work/names" >"$work/exists.rs"
	errors_in exists >"$work/absent"
	awk 'FILENAME == ARGV[1] { absent[$1] = 1; next } !(FNR in absent)' \
		"$work/absent" "$work/names" >"$work/present"
	sed 's/.*/const _: usize = core::mem::offset_of!(bindings::&, _unused);/' \
		"$work/present" >"$work/opaque.rs"
	errors_in opaque >"$work/errors"
	awk 'FILENAME == ARGV[1] { if ($2 == "E0616") opaque[$1] = 1; next }
		{ print $0 (FNR in opaque ? " opaque" : "") }' "$work/errors" "$work/present"
}

# The lines of a program that have errors, and which.
errors_in() {
	# shellcheck disable=SC2086
	RUSTC_BOOTSTRAP=1 $RUSTC_COMMAND --extern bindings --crate-type rlib --crate-name probe \
		-Zcrate-attr=no_std -Awarnings --emit=metadata --error-format=short \
		-o "$work/probe.rmeta" "$work/$1.rs" 2>"$work/said" || true
	sed -n "s/^.*[/]$1\.rs:\([0-9]*\):[0-9]*: error\[\(E[0-9]*\)\]: .*/\1 \2/p" "$work/said"
	# What is wrong with the compiler or the crate is not of a line.
	! grep '^error' "$work/said" | grep -v '^error: aborting due to' >&2
}

if [ -e "$kernel_bindings" ]; then
	types_of "$kernel_bindings" >"$work/kernel"
else
	: >"$work/blocked"
	run "$work/blocked" "$work/all.rs" "$@"
	types_in_crate "$work/all.rs" >"$work/kernel"
fi
grep -v ' opaque$' "$work/kernel" | block >"$work/blocked"
run "$work/blocked" "$work/first.rs" "$@"

types_of "$work/first.rs" | grep ' opaque$' >"$work/ours" || true
{
	grep -v ' opaque$' "$work/kernel"
	LC_ALL=C comm -12 "$work/kernel" "$work/ours"
} | block >"$work/blocked"
run "$work/blocked" "$work/second.rs" "$@"

# A helper carries the name of what it wraps.
sed -E 's/pub fn rpcrdma_helper_([a-zA-Z0-9_]*)/#[link_name = "rpcrdma_helper_\1"]\n    pub fn \1/g' \
	"$work/second.rs" >"$output"
