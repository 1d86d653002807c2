#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# The protocol core's tests run when the module is inserted, and all pass.
# mode: run
# kernels: uml
# smoke: uml-sanitize
# soak-smoke: uml-sanitize debug cfi
# arm64: arm64-64k
# timeout: 60
set -eu
. "$GUEST_LIB"

dmesg --clear
load_module
log=$(dmesg --notime)
# KTAP: suites are not indented, their cases by four blanks.
suites=$(grep -cE '^ok [0-9]+ ' <<<"$log" || true)
cases=$(grep -cE '^    ok [0-9]+ ' <<<"$log" || true)
if grep -E '^ *not ok ' <<<"$log"; then
	fail "see above"
fi
expect_eq "number of suites planned" "$(grep -c '# Subtest:' <<<"$log" || true)" "$suites"
[ "$suites" -gt 0 ] && [ "$cases" -gt 0 ] || fail "no suite has run"
# A case of ten seconds is one of minutes on an emulated machine, which then reports a hung task.
if grep -E 'should be marked slow \(runtime: [0-9]{2,}\.' <<<"$log"; then
	fail "takes too long, see above"
fi
# Each suite in the sources has run.
wanted=$(grep -rlE 'kunit_tests\(' rust --include='*.rs' | wc -l)
[ "$suites" -ge "$wanted" ] || fail "only $suites suites of $wanted"
echo "$suites suites, $cases cases"
unload_module
