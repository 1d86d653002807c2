// SPDX-License-Identifier: GPL-2.0
/*
 * A plugin for QEMU: counts the instructions that a guest executes, by address.
 *
 *	-plugin file=profile.so,out=FILE[,writes=on]
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
 * With writes=on it also counts writes to memory of the kernel, by the line of a
 * cache that they go to, as "KIND PLACE INSTRUCTION LINE COUNT CPUS": who writes and
 * by which instruction, the number of the line, how often, and which CPUs have
 * written, all but COUNT in hex. The KIND "atomic" is for instructions that take the
 * line for themselves (with a lock prefix, or an exchange), "store" for the others of
 * functions that are watched as "own", unless they go to the stack or to a variable of
 * the CPU. Who writes is the instruction itself, but in a function that is watched as
 * "through" it is the call by which that was entered from elsewhere. Barriers are
 * written as an atomic addition of nothing to the stack, and do not count.
 *
 * CPUs have to take turns in one thread, as with -icount. Then QEMU tells a plugin
 * the CPU for which it has translated the instructions first, whichever executes
 * them, since it takes one thread for one CPU. So CPUs are told apart by where their
 * variables are, which a register has, and are numbered as they appear.
 *
 * The interface is version 4 of that of QEMU's plugins, as QEMU 10.0 has it; its
 * header is not in the packages of the distribution, nor is that of its library, so
 * what is used of them is declared here.
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
struct qemu_plugin_register;
struct array {
	void *data;
	unsigned int length;
};
struct qemu_plugin_register_descriptor {
	struct qemu_plugin_register *handle;
	const char *name, *feature;
};

struct array *g_byte_array_new(void);
struct array *g_byte_array_set_size(struct array *array, unsigned int length);

enum { CB_NO_REGS = 0, CB_READS_REGS = 1 };
enum { MEM_WRITES = 2 };
typedef uint32_t qemu_plugin_meminfo_t;

void qemu_plugin_register_vcpu_init_cb(uint64_t id,
		void (*cb)(uint64_t id, unsigned int vcpu));
struct array *qemu_plugin_get_registers(void);
int qemu_plugin_read_register(struct qemu_plugin_register *handle, struct array *to);
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
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn,
		void (*cb)(unsigned int vcpu, qemu_plugin_meminfo_t info,
			   uint64_t vaddr, void *data),
		int flags, int which, void *data);

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
#define WATCHED		4096
#define CALLS		(1u << 14)
/* Who writes to which line by which instruction. */
#define WRITES		(1u << 19)
/* A line of a cache, in which whoever writes has to have all of it. */
#define CACHE_SHIFT	6
/* How far a stack reaches from anywhere in it. */
#define STACK_SIZE	(16u << 10)

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

/*
 * A function that is watched, and by which call each CPU has entered it last; or,
 * for those that are passed through, where that call is.
 */
struct watched {
	uint64_t first, end;
	bool leaf, through, own;
	struct call *latest[CPUS];
	uint64_t user[CPUS];
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

/* An instruction that writes, or may. */
struct writer {
	uint64_t address;
	const struct block *block;
	/* It is atomic; it puts something on the stack. */
	bool atomic, pushes;
};

/* How often an instruction has written to a line, for whom, and which CPUs did. */
struct write {
	uint64_t place, instruction, line, count;
	uint32_t cpus;
	bool atomic;
};

static struct watched watched[WATCHED];
static unsigned int watched_count, generation;
static struct call calls[CPUS][CALLS];
static bool calls_lost;
static struct block *blocks;
/* What each CPU has executed last. */
static const struct block *previous[CPUS];
/* Whether writes are counted at all, and at the moment. */
static bool with_writes, counting;
/* Which CPU executes, and how many have appeared: where the variables of each are. */
static unsigned int running, appeared;
static uint64_t variables[CPUS];
/* The registers that tell: one is the kernel's, and one that of the program. */
static struct qemu_plugin_register *bases[2];
static struct array *read_base;
static struct write writes[WRITES];
static bool writes_lost;
/* Where each CPU has pushed something last. */
static uint64_t stack[CPUS];

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
		each->through = !strcmp(kind, "through");
		each->own = !strcmp(kind, "own");
		watched_count++;
	}
	/* There may be more of them. */
	calls_lost |= watched_count == WATCHED;
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

/* The first CPU is there. */
static void find_registers(uint64_t id, unsigned int vcpu)
{
	const struct qemu_plugin_register_descriptor *each;
	const struct array *all;

	if (bases[0])
		return;
	all = qemu_plugin_get_registers();
	for (each = all->data; each < (typeof(each))all->data + all->length; each++) {
		if (!strcmp(each->name, "gs_base"))
			bases[0] = each->handle;
		if (!strcmp(each->name, "k_gs_base"))
			bases[1] = each->handle;
	}
	read_base = g_byte_array_new();
}

/* Finds out which CPU executes. */
static void find_running(void)
{
	uint64_t base = 0;
	unsigned int i;

	/* Programs have their addresses in the lower half, and none mostly. */
	for (i = 0; i < 2 && !(base >> 63); i++) {
		g_byte_array_set_size(read_base, 0);
		if (qemu_plugin_read_register(bases[i], read_base) == sizeof(base))
			memcpy(&base, read_base->data, sizeof(base));
	}
	if (running < appeared && variables[running] == base)
		return;
	for (running = 0; running < appeared && variables[running] != base; running++)
		;
	if (running < appeared)
		return;
	if (appeared == CPUS) {
		calls_lost = true;
		running = 0;
		return;
	}
	variables[appeared++] = base;
}

/* A block is about to be executed. */
static void executed(unsigned int vcpu, void *data)
{
	const struct block *before;
	struct block *block = data;
	struct watched *function, *caller;
	struct call *call;
	unsigned int cpu;

	if (!counting)
		return;
	find_running();
	cpu = running;
	before = previous[cpu];
	previous[cpu] = block;
	block->begun[cpu]++;
	if (block->generation != generation) {
		block->watched = find_watched(block->first);
		block->generation = generation;
	}
	function = block->watched;
	if (!function || function->own)
		return;
	call = function->latest[cpu];
	caller = before && before->generation == generation ? before->watched : NULL;
	if (function->through) {
		if (block->first == function->first && before && caller != function)
			function->user[cpu] = caller && caller->through ?
					      caller->user[cpu] : before->last;
		return;
	}
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

static struct write *find_write(uint64_t place, const struct writer *writer, uint64_t line)
{
	uint64_t key = place ^ writer->address << 16 ^ line << 32;
	unsigned int at = (key * 0x9e3779b97f4a7c15u) >> 45, i;
	struct write *write;

	for (i = 0; i < WRITES; i++, at = (at + 1) % WRITES) {
		write = &writes[at];
		if (!write->place) {
			write->place = place;
			write->instruction = writer->address;
			write->line = line;
			write->atomic = writer->atomic;
		}
		if (write->place == place && write->instruction == writer->address &&
		    write->line == line)
			return write;
	}
	return NULL;
}

/* An instruction has written. */
static void written_to(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address,
		       void *data)
{
	const struct writer *writer = data;
	const struct watched *function;
	unsigned int cpu = running;
	uint64_t place = writer->address;
	struct write *write;

	if (!counting || !(address >> 63))
		return;
	if (writer->pushes) {
		stack[cpu] = address;
		return;
	}
	function = writer->block->generation == generation ? writer->block->watched : NULL;
	if (function && function->through && function->user[cpu]) {
		place = function->user[cpu];
		function = writer->atomic ? NULL : find_watched(place);
	}
	if (!writer->atomic && (!function || !function->own ||
				address - stack[cpu] + STACK_SIZE < 2 * STACK_SIZE))
		return;
	write = find_write(place, writer, address >> CACHE_SHIFT);
	if (!write) {
		writes_lost = true;
		return;
	}
	write->count++;
	write->cpus |= 1u << cpu;
}

static void begin(unsigned int vcpu, void *data)
{
	struct block *block;

	for (block = blocks; block; block = block->next)
		memset(block->begun, 0, sizeof(block->begun));
	memset(previous, 0, sizeof(previous));
	memset(calls, 0, sizeof(calls));
	calls_lost = false;
	memset(writes, 0, sizeof(writes));
	writes_lost = false;
	appeared = 0;
	read_watched();
	counting = true;
}

static void write_cpu(FILE *f, unsigned int cpu)
{
	const struct block *block;
	const struct call *call;
	unsigned int i;

	memset(counts, 0, sizeof(counts));
	for (block = blocks; block; block = block->next) {
		for (i = 0; i < block->lines && block->begun[cpu]; i++)
			counts[slot_of(block->first + (i << LINE_SHIFT))] +=
				block->begun[cpu] * block->in_line[i];
	}
	fprintf(f, "cpu %u\nuser %lu\nlost %lu\n", cpu, counts[SLOT_USER], counts[SLOT_LOST]);
	for (i = SLOT_FIRST; i < SLOTS; i++) {
		if (counts[i])
			fprintf(f, "%lx %lu\n", lines[i] << LINE_SHIFT, counts[i]);
	}
	for (call = calls[cpu]; call < calls[cpu] + CALLS; call++) {
		if (call->from)
			fprintf(f, "call %lx %lx %lu %lu\n", call->from, call->function,
				call->calls, call->instructions);
	}
}

static void end(unsigned int vcpu, void *data)
{
	size_t size = strlen(out) + 32;
	char name[size], unfinished[size];
	const struct write *write;
	unsigned int each;
	FILE *f;

	counting = false;
	snprintf(name, size, "%s.%u", out, written++);
	snprintf(unfinished, size, "%s.tmp", out);
	f = fopen(unfinished, "w");
	if (!f) {
		perror(unfinished);
		return;
	}
	for (each = 0; each < appeared; each++)
		write_cpu(f, each);
	for (write = writes; write < writes + WRITES; write++) {
		if (write->place)
			fprintf(f, "%s %lx %lx %lx %lu %x\n", write->atomic ? "atomic" : "store",
				write->place, write->instruction, write->line,
				write->count, write->cpus);
	}
	if (calls_lost || writes_lost)
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

/* What is to be known of an instruction that may write; false if nothing is. */
static bool may_count(const struct qemu_plugin_insn *insn, struct writer *writer)
{
	static const uint8_t prefixes[] = { 0x26, 0x2e, 0x36, 0x3e, 0x64, 0x65, 0x66, 0x67,
					    0xf0, 0xf2, 0xf3 };
	uint8_t code[16] = { 0 }, *at = code, modrm;
	bool locked = false, of_cpu = false;

	qemu_plugin_insn_data(insn, code, sizeof(code) - 1);
	for (; memchr(prefixes, *at, sizeof(prefixes)) && at < code + 8; at++) {
		locked |= *at == 0xf0;
		of_cpu |= *at == 0x65;
	}
	/* A prefix that tells of registers. */
	if (*at >> 4 == 4)
		at++;
	modrm = at[1];
	/* An addition of nothing to what is at the stack pointer, or near it. */
	if (locked && at[0] == 0x83 && (modrm & 0xbf) == 0x04 && at[2] == 0x24 &&
	    !at[modrm == 0x44 ? 4 : 3])
		return false;
	/* An exchange with memory needs no prefix. */
	writer->atomic = locked || ((at[0] == 0x86 || at[0] == 0x87) && modrm >> 6 != 3);
	writer->pushes = at[0] >> 3 == 0x50 >> 3 || at[0] == 0xe8 || at[0] == 0x68 || at[0] == 0x6a ||
			 (at[0] == 0xff && ((modrm >> 3 & 7) == 2 || (modrm >> 3 & 7) == 6));
	return writer->atomic || !of_cpu;
}

static void watch_writes(struct qemu_plugin_insn *insn, const struct block *block)
{
	struct writer found = { .address = qemu_plugin_insn_vaddr(insn), .block = block }, *writer;

	if (!(found.address >> 63) || !may_count(insn, &found))
		return;
	writer = malloc(sizeof(*writer));
	*writer = found;
	qemu_plugin_register_vcpu_mem_cb(insn, written_to, CB_NO_REGS, MEM_WRITES, writer);
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
		if (with_writes)
			watch_writes(each, block);
	}
	qemu_plugin_register_vcpu_tb_exec_cb(tb, executed, CB_READS_REGS, block);
}

EXPORT int qemu_plugin_install(uint64_t id, const struct qemu_info *info,
			       int argc, char **argv)
{
	if (!argc || strncmp(argv[0], "out=", 4)) {
		fprintf(stderr, "profile: out=FILE is missing\n");
		return -1;
	}
	out = strdup(argv[0] + 4);
	with_writes = argc > 1 && !strcmp(argv[1], "writes=on");
	qemu_plugin_register_vcpu_init_cb(id, find_registers);
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return 0;
}
