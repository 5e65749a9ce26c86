/* Threads of a block as fibers: barriers, collectives of a warp, and a check of every access to memory. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { THREADS = 1024, WARP = 32, STACK = 256 * 1024 };
enum state { READY, AT_BARRIER, AT_COLLECTIVE, DONE };
enum operation { BARRIER, COUNT, ALL_OF, ANY_OF, SHUFFLE, VOTE, MATCH, SYNC_WARP };
enum failure { NONE, DEADLOCK, BOUNDS, ALIGNMENT, READ_ONLY, FOREIGN_LANE, ABSENT_LANE };

/* What a thread waits for. */
struct thread {
    int32_t state, operation, mode, line;
    uint32_t mask;
    int32_t by, clamp;
    uint64_t value, result;
};

struct range { uint64_t begin, end; int32_t writable, shared; };

struct report { int32_t failure, thread, line, written; uint64_t address, bytes; };

static struct thread threads[THREADS];
static struct report report;
static struct range *ranges;
static int range_count, hot, count, current;
static uint64_t stack_begin, stack_end;
static void (*body)(void);
static int32_t *tid_x, *tid_y, *tid_z, *lane;
static ucontext_t contexts[THREADS];
static jmp_buf fibers[THREADS], scheduler;
static char started[THREADS], *stacks;

struct thread *emu_threads(void) { return threads; }
struct report *emu_report(void) { return &report; }

void emu_setup(int32_t *x, int32_t *y, int32_t *z, int32_t *l, void (*b)(void), struct range *r, int32_t n)
{
    tid_x = x, tid_y = y, tid_z = z, lane = l, body = b, ranges = r, range_count = n, hot = 0;
}

static void leave(void) { _longjmp(scheduler, 1); }

static void fail(int failure, int line)
{
    report.failure = failure, report.thread = current, report.line = line;
    leave();
}

void emu_access(uint64_t address, uint64_t bytes, int32_t align, int32_t written, int32_t line)
{
    if (address >= stack_begin && address + bytes <= stack_end)
        return;
    report.address = address, report.bytes = bytes, report.written = written;
    for (int k = 0; k < range_count; k++) {
        struct range *r = &ranges[(hot + k) % range_count];
        if (address < r->begin || address + bytes > r->end)
            continue;
        hot = (hot + k) % range_count;
        if (written && !r->writable)
            fail(READ_ONLY, line);
        if (address % align)
            fail(ALIGNMENT, line);
        return;
    }
    fail(BOUNDS, line);
}

static void park(int state, int operation, int line)
{
    int me = current;
    threads[me].state = state, threads[me].operation = operation, threads[me].line = line;
    if (_setjmp(fibers[me]) == 0)
        leave();
}

int32_t emu_barrier(int32_t operation, int32_t value, int32_t line)
{
    threads[current].value = value;
    park(AT_BARRIER, operation, line);
    return (int32_t)threads[current].result;
}

uint64_t emu_collective(int32_t operation, int32_t mode, uint32_t mask, uint64_t value, int32_t by, int32_t clamp,
                        int32_t line)
{
    struct thread *t = &threads[current];
    t->mode = mode, t->mask = mask, t->value = value, t->by = by, t->clamp = clamp;
    if (!(mask >> current % WARP & 1))
        fail(FOREIGN_LANE, line);
    park(AT_COLLECTIVE, operation, line);
    return threads[current].result;
}

static uint64_t shuffled(struct thread *warp, int own, uint32_t mask)
{
    struct thread *t = &warp[own];
    int source = t->mode == 0 ? t->by & 31 : t->mode == 1 ? own - t->by : t->mode == 2 ? own + t->by : own ^ t->by;
    if (source < 0 || source > 31)
        source = own;
    if (!(mask >> source & 1)) {
        current = t - threads;
        fail(ABSENT_LANE, t->line);
    }
    return warp[source].value & 0xFFFFFFFF;
}

/* Let go the lanes that are all at one collective. */
static int meet(struct thread *warp, int lanes, int own)
{
    uint32_t mask = warp[own].mask, ballot = 0;
    for (int k = 0; k < WARP; k++) {
        if (!(mask >> k & 1) || k >= lanes) {
            mask &= ~(1u << k);
            continue;
        }
        struct thread *t = &warp[k], *o = &warp[own];
        if (t->state != AT_COLLECTIVE || t->operation != o->operation || t->mode != o->mode || t->mask != o->mask ||
            t->line != o->line)
            return 0;
        ballot |= (uint32_t)(t->value & 1) << k;
    }
    for (int k = 0; k < WARP; k++) {
        if (!(mask >> k & 1))
            continue;
        struct thread *t = &warp[k];
        uint32_t same = 0;
        for (int j = 0; j < WARP; j++)
            if (mask >> j & 1 && warp[j].value == t->value)
                same |= 1u << j;
        if (t->operation == SHUFFLE)
            t->result = shuffled(warp, k, mask);
        else if (t->operation == VOTE) /* the second word: the vote of all, of any, that all agree */
            t->result = t->mode == 3 ? ballot
                                     : (uint64_t)(t->mode == 0   ? ballot == mask
                                                  : t->mode == 1 ? ballot != 0
                                                                 : ballot == 0 || ballot == mask)
                                           << 32;
        else
            t->result = same;
    }
    for (int k = 0; k < WARP; k++)
        if (mask >> k & 1)
            warp[k].state = READY;
    return 1;
}

/* Let go a block of which every thread is at one barrier. */
static int pass_barrier(void)
{
    int holds = 0;
    for (int t = 0; t < count; t++) {
        if (threads[t].state != AT_BARRIER || threads[t].operation != threads[0].operation ||
            threads[t].line != threads[0].line)
            return 0;
        holds += threads[t].value != 0;
    }
    int operation = threads[0].operation;
    for (int t = 0; t < count; t++) {
        threads[t].result = operation == COUNT ? holds : operation == ALL_OF ? holds == count : holds > 0;
        threads[t].state = READY;
    }
    return 1;
}

static void start(void)
{
    body();
    threads[current].state = DONE;
    leave();
}

static __attribute__((noinline)) void resume(int t)
{
    if (_setjmp(scheduler))
        return;
    if (started[t])
        _longjmp(fibers[t], 1);
    started[t] = 1;
    setcontext(&contexts[t]);
}

static void place(int t, int bx, int by)
{
    current = t;
    *tid_x = t % bx, *tid_y = t / bx % by, *tid_z = t / (bx * by), *lane = t % WARP;
}

static void begin_block(int n)
{
    count = n;
    memset(&report, 0, sizeof report);
    for (int k = 0; k < range_count; k++)
        if (ranges[k].shared) /* NaN, -1: nobody may count on what was there */
            memset((void *)ranges[k].begin, 0xFF, ranges[k].end - ranges[k].begin);
}

static void shuffle_order(int *order, uint32_t *random)
{
    for (int i = count - 1; i > 0; i--) {
        *random ^= *random << 13, *random ^= *random >> 17, *random ^= *random << 5;
        int j = *random % (i + 1), kept = order[i];
        order[i] = order[j], order[j] = kept;
    }
}

/* A block whose threads never wait: one after the other, on the stack of the caller. */
int emu_run_in_turn(int bx, int by, int bz, uint32_t seed)
{
    static int order[THREADS], i;
    begin_block(bx * by * bz);
    stack_begin = (uint64_t)&seed - 4 * 1024 * 1024, stack_end = (uint64_t)&seed + 4096;
    for (i = 0; i < count; i++)
        order[i] = i;
    if (seed)
        shuffle_order(order, &seed);
    if (_setjmp(scheduler))
        return report.failure;
    for (i = 0; i < count; i++) {
        place(order[i], bx, by);
        body();
    }
    return NONE;
}

static __attribute__((noinline)) int let_go(void)
{
    volatile int moved = 0;
    if (_setjmp(scheduler)) /* a shuffle that reads from a lane that is not there */
        return 0;
    for (int t = 0; t < count; t++)
        if (threads[t].state == AT_COLLECTIVE) {
            int warp = t / WARP * WARP, lanes = count - warp;
            moved |= meet(&threads[warp], lanes < WARP ? lanes : WARP, t - warp);
        }
    return moved | pass_barrier();
}

/* A block of fibers: each runs until it waits, in the order 0, 1, ... or, with a seed, in a new one every time. */
int emu_run_fibers(int bx, int by, int bz, uint32_t seed)
{
    int order[THREADS], done = 0;
    if (!stacks) {
        stacks = mmap(0, (size_t)THREADS * STACK, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stacks == MAP_FAILED)
            abort();
    }
    stack_begin = (uint64_t)stacks, stack_end = stack_begin + (uint64_t)THREADS * STACK;
    begin_block(bx * by * bz);
    for (int t = 0; t < count; t++) {
        getcontext(&contexts[t]);
        contexts[t].uc_stack.ss_sp = stacks + (size_t)t * STACK;
        contexts[t].uc_stack.ss_size = STACK;
        contexts[t].uc_link = 0;
        makecontext(&contexts[t], start, 0);
        threads[t].state = READY, started[t] = 0, order[t] = t;
    }
    while (done < count) {
        int moved = 0;
        if (seed)
            shuffle_order(order, &seed);
        for (int i = 0; i < count; i++) {
            if (threads[order[i]].state != READY)
                continue;
            place(order[i], bx, by);
            resume(order[i]);
            if (report.failure)
                return report.failure;
            moved = 1, done += threads[order[i]].state == DONE;
        }
        moved |= let_go();
        if (report.failure)
            return report.failure;
        if (!moved)
            return report.failure = DEADLOCK;
    }
    return NONE;
}
