// SPDX-License-Identifier: GPL-2.0
/*
 * A plugin for QEMU: counts the instructions that a guest executes, by address.
 *
 *	-plugin file=profile.so,out=FILE
 *
 * A program in the guest says between which two points they count, by two
 * instructions that do nothing: NOPs with a long displacement that no compiler
 * makes, MARK_BEGIN and MARK_END. At the second one FILE.0, at the next time
 * FILE.1 and so on is written. For each CPU that has a line "cpu NUMBER", and then
 * lines "ADDRESS COUNT": 16 octets of the kernel's text in hex, or "user", and how
 * many instructions of it were executed.
 *
 * FILE.watch, if the guest has written it, names functions that are watched, by
 * lines "FIRST END KIND" with addresses in hex; it is read at the first mark. Who
 * calls them is written as "call CALLER FUNCTION CALLS INSTRUCTIONS": where the
 * call is, which function, how often. Instructions are counted for those of the
 * KIND "leaf" only, which call nothing but each other: they are given to the call
 * by which the first of them was entered. After an interrupt such a function goes
 * on for whoever has called it last.
 *
 * CPUs have to take turns in one thread, as with -icount. The interface is version 4
 * of that of QEMU's plugins, as QEMU 10.0 has it; its header is not in the packages
 * of the distribution, so what is used of it is declared here.
 */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_info;

enum { CB_NO_REGS = 0 };

int qemu_plugin_num_vcpus(void);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb,
		void (*cb)(unsigned int vcpu, void *data), int flags, void *data);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id,
		void (*cb)(uint64_t id, struct qemu_plugin_tb *tb));
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb,
						 size_t index);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *insn, void *dest,
			     size_t len);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn,
		void (*cb)(unsigned int vcpu, void *data), int flags, void *data);

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
/* CPUs that are told apart, functions that can be watched, and calls of them. */
#define CPUS		16
#define WATCHED		1024
#define CALLS		(1u << 14)

/* Which line a slot is for; 0: none yet. And what one CPU has executed of it. */
static uint64_t lines[SLOTS], counts[SLOTS];
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

/* A function that is watched, and by which call each CPU has entered it last. */
struct watched {
	uint64_t first, end;
	bool leaf;
	struct call *latest[CPUS];
};

/* From where a function was called, how often, and what it executed. */
struct call {
	uint64_t from, function, calls, instructions;
};

/*
 * Instructions that are executed one after the other, and how often each CPU has
 * begun with them. Where it has left them in the middle, for a fault or a device,
 * the rest counts all the same.
 */
struct block {
	uint64_t first, last, instructions, begun[CPUS];
	/* Which function it is in, as long as the generation is that of the list. */
	struct watched *watched;
	unsigned int generation;
	struct block *next;
	/* How many of them are in the line of the first one, and in those behind it. */
	unsigned int lines;
	unsigned char in_line[];
};

static struct watched watched[WATCHED];
static unsigned int watched_count, generation;
static struct call calls[CPUS][CALLS];
static bool calls_lost;
static struct block *blocks;
/* What each CPU has executed last. */
static const struct block *previous[CPUS];

static int compare(const void *a, const void *b)
{
	const struct watched *one = a, *other = b;

	return one->first < other->first ? -1 : one->first > other->first;
}

/* Reads which functions are watched from now on. */
static void read_watched(void)
{
	size_t size = strlen(out) + 32;
	char name[size], kind[16];
	struct watched *each;
	FILE *f;

	watched_count = 0;
	generation++;
	snprintf(name, size, "%s.watch", out);
	f = fopen(name, "r");
	if (!f)
		return;
	while (watched_count < WATCHED) {
		each = &watched[watched_count];
		memset(each, 0, sizeof(*each));
		if (fscanf(f, "%lx %lx %15s", &each->first, &each->end, kind) != 3)
			break;
		each->leaf = !strcmp(kind, "leaf");
		watched_count++;
	}
	fclose(f);
	qsort(watched, watched_count, sizeof(*watched), compare);
}

/* The function that an address is in, if it is watched. */
static struct watched *find_watched(uint64_t address)
{
	unsigned int low = 0, high = watched_count, middle;

	while (low < high) {
		middle = (low + high) / 2;
		if (watched[middle].first > address)
			high = middle;
		else if (watched[middle].end <= address)
			low = middle + 1;
		else
			return &watched[middle];
	}
	return NULL;
}

static struct call *find_call(unsigned int cpu, uint64_t from, uint64_t function)
{
	unsigned int at = ((from ^ function << 1) * 0x9e3779b97f4a7c15u) >> 50, i;
	struct call *call;

	for (i = 0; i < CALLS; i++, at = (at + 1) % CALLS) {
		call = &calls[cpu][at];
		if (!call->from) {
			call->from = from;
			call->function = function;
		}
		if (call->from == from && call->function == function)
			return call;
	}
	calls_lost = true;
	return NULL;
}

/* A block is about to be executed. */
static void executed(unsigned int vcpu, void *data)
{
	unsigned int cpu = vcpu % CPUS;
	const struct block *before = previous[cpu];
	struct block *block = data;
	struct watched *function, *caller;
	struct call *call;

	previous[cpu] = block;
	block->begun[cpu]++;
	if (block->generation != generation) {
		block->watched = find_watched(block->first);
		block->generation = generation;
	}
	function = block->watched;
	if (!function)
		return;
	call = function->latest[cpu];
	caller = before && before->generation == generation ? before->watched : NULL;
	if (block->first == function->first && before && caller != function) {
		if (function->leaf && caller && caller->leaf)
			call = caller->latest[cpu];
		else if ((call = find_call(cpu, before->last, function->first)))
			call->calls++;
		function->latest[cpu] = call;
	}
	if (function->leaf && call)
		call->instructions += block->instructions;
}

static void begin(unsigned int vcpu, void *data)
{
	struct block *block;

	for (block = blocks; block; block = block->next)
		memset(block->begun, 0, sizeof(block->begun));
	memset(calls, 0, sizeof(calls));
	calls_lost = false;
	read_watched();
}

static void write_cpu(FILE *f, int cpu)
{
	const struct block *block;
	const struct call *call;
	unsigned int i;

	memset(counts, 0, sizeof(counts));
	for (block = blocks; block; block = block->next) {
		for (i = 0; i < block->lines && block->begun[cpu % CPUS]; i++)
			counts[slot_of(block->first + (i << LINE_SHIFT))] +=
				block->begun[cpu % CPUS] * block->in_line[i];
	}
	fprintf(f, "cpu %d\nuser %lu\nlost %lu\n", cpu, counts[SLOT_USER], counts[SLOT_LOST]);
	for (i = SLOT_FIRST; i < SLOTS; i++) {
		if (counts[i])
			fprintf(f, "%lx %lu\n", lines[i] << LINE_SHIFT, counts[i]);
	}
	for (call = calls[cpu % CPUS]; call < calls[cpu % CPUS] + CALLS; call++) {
		if (call->from)
			fprintf(f, "call %lx %lx %lu %lu\n", call->from, call->function,
				call->calls, call->instructions);
	}
}

static void end(unsigned int vcpu, void *data)
{
	size_t size = strlen(out) + 32;
	char name[size], unfinished[size];
	int each;
	FILE *f;

	snprintf(name, size, "%s.%u", out, written++);
	snprintf(unfinished, size, "%s.tmp", out);
	f = fopen(unfinished, "w");
	if (!f) {
		perror(unfinished);
		return;
	}
	for (each = 0; each < qemu_plugin_num_vcpus(); each++)
		write_cpu(f, each);
	if (calls_lost)
		fprintf(f, "lost 1\n");
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

/* The block stays, as what was translated may: the memory is not much. */
static void translated(uint64_t id, struct qemu_plugin_tb *tb)
{
	size_t n = qemu_plugin_tb_n_insns(tb), i;
	uint64_t first = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, 0));
	uint64_t last = qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(tb, n - 1));
	unsigned int count = (last >> LINE_SHIFT) - (first >> LINE_SHIFT) + 1;
	struct block *block = calloc(1, sizeof(*block) + count);

	block->first = first;
	block->last = last;
	block->instructions = n;
	block->lines = count;
	block->next = blocks;
	blocks = block;
	for (i = 0; i < n; i++) {
		struct qemu_plugin_insn *each = qemu_plugin_tb_get_insn(tb, i);
		void (*callback)(unsigned int, void *) = mark(each);

		block->in_line[(qemu_plugin_insn_vaddr(each) >> LINE_SHIFT) -
			       (first >> LINE_SHIFT)]++;
		if (callback)
			qemu_plugin_register_vcpu_insn_exec_cb(each, callback, CB_NO_REGS, NULL);
	}
	qemu_plugin_register_vcpu_tb_exec_cb(tb, executed, CB_NO_REGS, block);
}

EXPORT int qemu_plugin_install(uint64_t id, const struct qemu_info *info,
			       int argc, char **argv)
{
	if (argc != 1 || strncmp(argv[0], "out=", 4)) {
		fprintf(stderr, "profile: out=FILE is missing\n");
		return -1;
	}
	out = strdup(argv[0] + 4);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
