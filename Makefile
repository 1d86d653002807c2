# SPDX-License-Identifier: GPL-2.0
#
# The module for your kernel:           make KDIR=/path/to/build
# The demonstration and the tests:      make demo, make check
#
# Kbuild has what the kernel's build system reads.

KDIR ?= /lib/modules/$(shell uname -r)/build
M := $(CURDIR)

# Configuration of the build directory that affects flags.
config_has = $(shell grep -qs '^$(1)=y' $(KDIR)/.config && echo y)
KFLAGS := $(if $(call config_has,CONFIG_CC_IS_CLANG),LLVM=1) \
	$(if $(call config_has,CONFIG_UML),ARCH=um)

.DEFAULT_GOAL := modules
.PHONY: modules modules_install check-kdir clean help setup demo demo-pair check soak soak-fairness bench
.PHONY: htmldocs guest check-interop check-oldest check-unstable check-arm64 bench-two bench-instructions deb

# The oldest kernel that the module is for.
OLDEST := 7.2.12

modules: check-kdir
	+$(MAKE) -C $(KDIR) M=$(M) $(KFLAGS) RUSTC="$$(scripts/check-kdir --rustc $(KDIR))" modules

# In updates/, where depmod prefers it to the stock module of the same name.
# The kernel's build runs depmod if there is a System.map.
modules_install: $(KDIR)/.config
	+$(MAKE) -C $(KDIR) M=$(M) $(KFLAGS) INSTALL_MOD_DIR=updates modules_install

# Also without the kernel the objects were built for.
clean:
	@if [ -e $(KDIR)/.config ]; then \
		$(MAKE) --no-print-directory -C $(KDIR) M=$(M) $(KFLAGS) clean; \
	fi
	@find Kbuild rust include -name target -prune -o \
		\( -name '*.o' -o -name '*.ko' -o -name '*.mod' -o -name '*.mod.c' \
		-o -name '.*.cmd' -o -name '*.o.d' -o -name '*_generated.rs' -o -name '*_generated.h' \) \
		-type f -exec rm -f {} +
	@rm -rf htmldocs rpcrdma.o rpcrdma.ko rpcrdma.mod rpcrdma.mod.c rpcrdma.mod.o .*.cmd \
		.module-common.o Module.symvers modules.order .tmp_versions

# Reports missing requirements before a compiler fails.
check-kdir $(KDIR)/.config:
	@scripts/check-kdir $(KDIR)

# Packages for Debian, in deb/.
deb:
	@scripts/deb

setup:
	@tools/check --set-up

demo:
	@tools/demo

demo-pair:
	@tools/demo pair

check:
	@tools/check

# Clients and servers of this module with each other, and with the stock ones.
check-interop:
	@tools/check --interop

# A smoke test, with another kernel and module in the cache.
check-oldest:
	@RPCRDMA_KERNEL=$(OLDEST) tools/check 'uml/kunit*' 'uml/workload/rxe/*' 'uml/workload/siw/*' \
		'uml/fault-disconnect/*'

# The compilers of Debian unstable, and a kernel that was built with them.
check-unstable:
	@RPCRDMA_SUITE=unstable tools/check 'uml/kunit*' 'uml/workload/rxe/*' 'debian/workload/*'

# On emulated machines, whose kernels have pages of 4, 16 and 64 KiB.
check-arm64:
	@tools/check --arm64

# At the end the strict device must notice modules that were broken on purpose.
soak:
	@tools/check --soak
	@$(MAKE) --no-print-directory check-interop
	@$(MAKE) --no-print-directory check-oldest
	@$(MAKE) --no-print-directory check-unstable
	@$(MAKE) --no-print-directory check-arm64
	@tools/sabotage

# Fairness of the server, compared with the previous commit, or with BASE.
soak-fairness:
	@tools/fairness $(if $(BASE),--base $(BASE))

# Times, then instructions.
bench:
	@tools/bench
	@tools/bench --instructions --rounds 2

bench-two:
	@tools/bench --only operations

bench-instructions:
	@tools/bench --instructions

guest:
	@tools/guest shell

# In htmldocs/, with the tools of the root `docs`.
htmldocs:
	@scripts/setup docs
	@scripts/run --root docs sphinx-build -q -E -W --keep-going -b html Documentation htmldocs
	@echo htmldocs/index.html

help:
	@echo 'Module, with the kernel build directory KDIR (default: the running kernel):'
	@echo '  make [KDIR=DIR]                  build rpcrdma.ko'
	@echo '  make [KDIR=DIR] modules_install  install it under updates/ (and INSTALL_MOD_PATH)'
	@echo '  make clean                       remove the build products in this directory'
	@echo
	@echo 'In guests, with kernels built for them; as root on Debian 12 or 13, x86-64. The'
	@echo 'set-up is done once, in the directory $$RPCRDMA_CACHE (default ~/.cache/rpcrdma):'
	@echo '  make demo       a mount over Version Two in one guest, with this module at both ends:'
	@echo '                  write, read, compare'
	@echo '  make demo-pair  the same in two guests, through this module from a stock NFS server'
	@echo '  make check      the tests, with small counts (tools/check PATTERN runs some of them)'
	@echo '  make check-interop'
	@echo '                  client and server of this module with each other and with the stock ones'
	@echo '  make check-oldest'
	@echo '                  the workload with the oldest supported kernel ($(OLDEST))'
	@echo '  make check-unstable'
	@echo '                  the workload with the compilers and the kernel of Debian unstable'
	@echo '  make check-arm64'
	@echo '                  on emulated arm64 machines with pages of 4, 16 and 64 KiB'
	@echo '  make soak       make check with full counts, and the tests that are too long for it;'
	@echo '                  then check-interop, check-oldest, check-unstable and'
	@echo '                  check-arm64; takes hours'
	@echo '  make soak-fairness [BASE=COMMIT]'
	@echo '                  fairness of the server to its clients, compared with another commit'
	@echo '  make bench      compare with the stock module, as client and as server, and in Version Two:'
	@echo '                  throughput, latency, work requests, instructions'
	@echo '  make bench-two  the latency of single operations only'
	@echo '  make bench-instructions'
	@echo '                  count instructions only, attributed to modules'
	@echo '  make guest      a shell in a guest with an RDMA device, next to a guest with an NFS server'
	@echo '  make deb        the packages rpcrdma-dkms and rpcrdma-tools for Debian, in deb/'
	@echo '  make htmldocs   build Documentation/ with Sphinx, into htmldocs/'
	@echo '  make setup      build the set-up for make check without running it'
