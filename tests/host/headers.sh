#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# Kernel headers as distributions ship them, with less than a build directory has: the module
# can be built with them, or it is said what is missing. make soak builds it.
# timeout: 300 1200
set -eu -o pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
kdir=$work/kdir

fail() {
	echo "FAIL: $*" >&2
	exit 1
}

# What Arch, CachyOS and Armbian ship of rust/: what was compiled, and nothing else.
reduced() {
	rm -rf "$kdir"
	mkdir -p "$kdir/rust"
	ln -s "$KDIR"/.config "$KDIR"/* "$kdir/" 2>/dev/null || true
	ln -s "$KDIR"/rust/*.rmeta "$KDIR"/rust/*.so "$kdir/rust/"
}

# accepted RUSTC: check-kdir says nothing, and finds this compiler.
accepted() {
	local said

	said=$(scripts/check-kdir "$kdir" 2>&1) || fail "refused: $said"
	[ -z "$said" ] || fail "said: $said"
	said=$(scripts/check-kdir --rustc "$kdir") || fail "no compiler"
	[ "$said" = "$1" ] || fail "the compiler is $said, not $1"
}

# refused TEXT: check-kdir says this, in its first line.
refused() {
	local said

	if said=$(scripts/check-kdir "$kdir" 2>&1); then
		fail "accepted, but: $1"
	fi
	said=${said%%$'\n'*}
	[[ $said == error:*"$1"* ]] || fail "told '$said', not '$1'"
}

reduced
[ ! -e "$kdir/rust/Makefile" ] && [ ! -e "$kdir/rust/bindings" ] || fail "this is not reduced"
accepted rustc

# Each of these files is needed, those that only some kernels have as well.
for file in "$kdir"/rust/*; do
	name=${file##*/lib}
	mv "$file" "$work/away"
	refused "lacks the metadata of the kernel's Rust crates (of ${name%.*}: "
	mv "$work/away" "$file"
done
# In Ubuntu rust/ leads to a package of its own, which may not be installed.
rm -r "$kdir/rust"
ln -s "$work/none" "$kdir/rust"
refused "lacks the metadata"
said=$(scripts/check-kdir "$kdir" 2>&1) || true
[[ $said == *"linux-lib-rust-$(cat "$KDIR/include/config/kernel.release")"* ]] ||
	fail "the package is not named: $said"

# What the crates were made with counts, whatever there was when the kernel was configured.
reduced
series=$(rustc --version | sed 's/^rustc \([0-9]*\.[0-9]*\).*/\1/')
rm "$kdir/.config"
sed 's/^CONFIG_RUSTC_VERSION_TEXT=.*/CONFIG_RUSTC_VERSION_TEXT="rustc 1.2.3 (other)"/' \
	"$KDIR/.config" >"$kdir/.config"
accepted rustc
reduced
rm "$kdir/rust/libcore.rmeta"
LC_ALL=C sed "s/rustc ${series//./\\.}/rustc 9.99/" "$KDIR/rust/libcore.rmeta" \
	>"$kdir/rust/libcore.rmeta"
refused "is not the compiler"

# A compiler with the version in its name, beside another one or alone.
reduced
mkdir "$work/bin"
ln -s "$(command -v rustc)" "$work/bin/rustc-$series"
printf '#!/bin/sh\necho rustc 1.2.3\n' >"$work/bin/rustc"
chmod +x "$work/bin/rustc"
path=$PATH
PATH=$work/bin:$PATH
accepted "rustc-$series"
# The build has the same.
rm "$kdir/Makefile"
printf 'modules:\n\t@echo with $(RUSTC)\n' >"$kdir/Makefile"
said=$(make -s KDIR="$kdir") || fail "make: $said"
[[ $said == *"with rustc-$series"* ]] || fail "make builds $said"
printf '#!/bin/sh\nexit 127\n' >"$work/bin/rustc"
accepted "rustc-$series"
RUSTC=rustc refused "there is no rustc"
RUSTC=gcc refused "gcc is not the compiler"
RUSTC=rustc-$series accepted "rustc-$series"
rm "$work/bin/rustc-$series"
refused "there is no rustc, and no rustc-$series"
PATH=$path

# Without what bindgen made of the kernel's headers the bindings are the same.
target=$(grep -o -- '--target=[^ ]*' "$MODULE_DIR/rust/.rpcrdma_main.o.cmd" | sort -u)
compiler="rustc $target --sysroot=/dev/null"
command=$(sed -n 's/^savedcmd[^:]*:= //p' "$MODULE_DIR/rust/sys/.bindings_generated.rs.cmd")
eval "set -- ${command#*bindgen.sh }"
bindgen=$1 parameters=$3 header=$4
shift 5
flags=()
for flag; do
	# It would write there.
	[[ $flag == -Wp,-MMD,* ]] || flags+=("$flag")
done
bindings() {
	(
		cd "$MODULE_DIR"
		RUSTC_COMMAND=$1 sh "$OLDPWD/rust/sys/bindgen.sh" "$bindgen" "$work/none" "$parameters" \
			"$header" "$work/bindings.rs" "${flags[@]}"
	)
}
bindings "$compiler -L $KDIR/rust" || fail "no bindings without those of the kernel"
cmp "$work/bindings.rs" "$MODULE_DIR/rust/sys/bindings_generated.rs" ||
	fail "the bindings are others without those of the kernel"
# A crate that cannot be read is not one that has no types.
! said=$(bindings "$compiler -L $work" 2>&1) || fail "bindings without a crate"
[[ $said == *"can't find crate"* ]] || fail "no reason why there are no bindings: $said"

# Nor do flags reach libclang then that it knows nothing of.
skipped() {
	sed -n "/$1 := -m/,/[^\\\\]\$/p" "$2" | tr -s '\\ \t' '\n' | grep '^-' | sort -u
}
[ "$(skipped rpcrdma_skip_c_flags Kbuild | wc -l)" -gt 30 ] || fail "Kbuild has no flags to skip"
more=$(comm -13 <(skipped rpcrdma_skip_c_flags Kbuild) \
	<(skipped bindgen_skip_c_flags "$KDIR/source/rust/Makefile") | paste -s -d ' ')
[ -z "$more" ] || fail "the kernel skips flags that Kbuild does not: $more"

# All of it in one directory, as such a package has it, and without a compiler named rustc.
[ "${SOAK:-0}" = 1 ] || exit 0
tree=$work/tree
mkdir -p "$tree/rust" "$work/module"
cp -rs "$KDIR"/source/{Makefile,Kbuild,include,arch,scripts,tools} "$tree/"
# A kernel without objtool has no tools.
for part in .config Module.symvers include arch scripts tools; do
	[ ! -e "$KDIR/$part" ] || cp -rsf "$KDIR/$part" "$tree/"
done
ln -s "$KDIR"/rust/*.rmeta "$KDIR"/rust/*.so "$tree/rust/"
cp -r Kbuild Makefile include rust scripts "$work/module/"
ln -s "$(command -v rustc)" "$work/bin/rustc-$series"
PATH=$work/bin:$PATH make -C "$work/module" KDIR="$tree" -j"$(nproc)" modules || fail "no build"
vermagic=$(modinfo -F vermagic "$MODULE_DIR/rpcrdma.ko")
[ "$(modinfo -F vermagic "$work/module/rpcrdma.ko")" = "$vermagic" ] ||
	fail "it is a module of another kernel"
cmp "$work/module/rust/sys/bindings_generated.rs" "$MODULE_DIR/rust/sys/bindings_generated.rs" ||
	fail "it has other bindings"
