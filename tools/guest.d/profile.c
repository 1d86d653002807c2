// SPDX-License-Identifier: GPL-2.0
/*
 * A plugin for QEMU: counts the instructions that a guest executes, by address.
 *
 *	-plugin file=profile.so,out=FILE
 *
 * A program in the guest says between which two points they count, by two
 * instructions that do nothing: NOPs with a long displacement that no compiler
 * makes, MARK_BEGIN and MARK_END. At the second one FILE.0, at the next time
 * FILE.1 and so on is written, with lines "ADDRESS COUNT": 16 octets of the
 * kernel's text in hex, or "user", and how many instructions of it were executed.
 *
 * For one CPU. The interface is version 4 of that of QEMU's plugins, as QEMU 10.0
 * has it; its header is not in the packages of the distribution, so what is used of
 * it is declared here.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_scoreboard;
struct qemu_info;

/* A counter of each CPU: at an offset of its element of a scoreboard. */
struct counter {
	struct qemu_plugin_scoreboard *score;
	size_t offset;
};

enum { INLINE_ADD_U64 = 0 };
enum { CB_NO_REGS = 0 };

void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id,
		void (*cb)(uint64_t id, struct qemu_plugin_tb *tb));
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb,
						 size_t index);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *dest,
			     size_t len);
void qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(
		struct qemu_plugin_insn *insn, int op, struct counter entry,
		uint64_t imm);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn,
		void (*cb)(unsigned int vcpu, void *data), int flags, void *data);
struct qemu_plugin_scoreboard *qemu_plugin_scoreboard_new(size_t element_size);
void *qemu_plugin_scoreboard_find(struct qemu_plugin_scoreboard *score,
				  unsigned int vcpu);

EXPORT int qemu_plugin_version = 4;

/* nopl DISPLACEMENT(%rax) */
static const uint8_t mark_code[3] = { 0x0f, 0x1f, 0x80 };

#define MARK_BEGIN	0x5d1a600du
#define MARK_END	0x5d1a600eu
#define MARK_SIZE	7

/* Lines of kernel text that can be told apart: 8 MiB of it. */
#define SLOTS		(1u << 19)
#define LINE_SHIFT	4
/* What is not the kernel's; and what found no room, which is reported. */
#define SLOT_USER	0
#define SLOT_LOST	1
#define SLOT_FIRST	2

static struct qemu_plugin_scoreboard *counts;
/* Which line a slot is for; 0: none yet. */
static uint64_t lines[SLOTS];
static char *out;
static unsigned int written;

static unsigned int slot_of(uint64_t address)
{
	uint64_t line = address >> LINE_SHIFT;
	unsigned int at, i;

	if (!(address >> 63))
		return SLOT_USER;
	at = (line * 0x9e3779b97f4a7c15u) >> 45;
	for (i = 0; i < SLOTS; i++, at = (at + 1) % SLOTS) {
		if (at < SLOT_FIRST)
			continue;
		if (!lines[at])
			lines[at] = line;
		if (lines[at] == line)
			return at;
	}
	return SLOT_LOST;
}

static void begin(unsigned int vcpu, void *data)
{
	memset(qemu_plugin_scoreboard_find(counts, vcpu), 0,
	       SLOTS * sizeof(uint64_t));
}

static void end(unsigned int vcpu, void *data)
{
	const uint64_t *count = qemu_plugin_scoreboard_find(counts, vcpu);
	size_t size = strlen(out) + 32;
	char name[size], unfinished[size];
	unsigned int i;
	FILE *f;

	snprintf(name, size, "%s.%u", out, written++);
	snprintf(unfinished, size, "%s.tmp", out);
	f = fopen(unfinished, "w");
	if (!f) {
		perror(unfinished);
		return;
	}
	fprintf(f, "user %lu\nlost %lu\n", count[SLOT_USER], count[SLOT_LOST]);
	for (i = SLOT_FIRST; i < SLOTS; i++) {
		if (count[i])
			fprintf(f, "%lx %lu\n", lines[i] << LINE_SHIFT, count[i]);
	}
	if (fclose(f) || rename(unfinished, name))
		perror(name);
}

/* Which callback an instruction is to have, if it is a mark. */
static void (*mark(const struct qemu_plugin_insn *insn))(unsigned int, void *)
{
	uint8_t code[MARK_SIZE];
	uint32_t displacement;

	if (qemu_plugin_insn_data(insn, code, sizeof(code)) != sizeof(code) ||
	    memcmp(code, mark_code, sizeof(mark_code)))
		return NULL;
	memcpy(&displacement, code + sizeof(mark_code), sizeof(displacement));
	return displacement == MARK_BEGIN ? begin :
	       displacement == MARK_END ? end : NULL;
}

/*
 * One addition for each line that a block goes through. Where a block is left in
 * its middle, by a fault, the rest of that line is counted all the same.
 */
static void translated(uint64_t id, struct qemu_plugin_tb *tb)
{
	size_t n = qemu_plugin_tb_n_insns(tb), i, next;

	for (i = 0; i < n; i = next) {
		struct qemu_plugin_insn *first = qemu_plugin_tb_get_insn(tb, i);
		unsigned int slot = slot_of(qemu_plugin_insn_vaddr(first));
		struct counter counter = { counts, slot * sizeof(uint64_t) };

		for (next = i; next < n; next++) {
			struct qemu_plugin_insn *each = qemu_plugin_tb_get_insn(tb, next);
			void (*callback)(unsigned int, void *) = mark(each);

			if (slot_of(qemu_plugin_insn_vaddr(each)) != slot)
				break;
			if (callback)
				qemu_plugin_register_vcpu_insn_exec_cb(each, callback,
								       CB_NO_REGS, NULL);
		}
		qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(first,
				INLINE_ADD_U64, counter, next - i);
	}
}

EXPORT int qemu_plugin_install(uint64_t id, const struct qemu_info *info,
			       int argc, char **argv)
{
	if (argc != 1 || strncmp(argv[0], "out=", 4)) {
		fprintf(stderr, "profile: out=FILE is missing\n");
		return -1;
	}
	out = strdup(argv[0] + 4);
	counts = qemu_plugin_scoreboard_new(SLOTS * sizeof(uint64_t));
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
