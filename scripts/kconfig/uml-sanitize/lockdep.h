/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Included in front of lockdep. LLVM's linker puts most of what User Mode Linux has in .bss behind
 * the symbols that should enclose it, so lockdep would take the locks there for objects that are
 * not static, and turn itself off at boot. The image of the kernel ends where its memory begins.
 */
#include <asm/sections.h>
#include <as-layout.h>

#define is_kernel_core_data(addr) \
	((addr) >= (unsigned long)_sdata && (addr) < uml_reserved)
