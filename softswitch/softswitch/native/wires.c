/* Real interfaces in C: AF_PACKET with a receive ring shared with the kernel, and threads that know no interpreter.
 *
 * softswitch/realtime/packet_socket.py opens sockets and says what the words of a slot are; dataplane.py looks after
 * interfaces and controllers. Here is what happens for each packet. A thread receives at the interfaces of its group;
 * any thread serves what is due, and sends what there is to send at a port at which no other one does.
 */

#include "tm.c"
#include "wires.h"
#include "core.c"

#define RETRY_NS 250000
#define NEWS_NS 1000000

enum { USER = 1 << 0, COPY = 1 << 1, VLAN_VALID = 1 << 4, VLAN_TPID_VALID = 1 << 6 };
enum { STATUS, LENGTH, CAPTURED, OFFSETS, VLAN = 6 };
enum { SLOT_OVERHEAD_BYTES = 128, RECEIVED_AT_ONCE = 128, SENT_AT_ONCE = 128, MUTEX_BYTES = 128 };
enum { DONTWAIT = 0x40, POLL_IN = 1, POLL_ERROR = 8, MONOTONIC = 1, TIMER_SLACK = 29 };
enum { NO_ENTRY = 2, NO_DEVICE = 6, TRY_AGAIN = 11, NO_MEMORY = 12, NO_SUCH_DEVICE = 19, NOT_A_SOCKET = 88,
       NETWORK_DOWN = 100, NO_BUFFERS = 105, REFUSED = 111, INTERRUPTED = 4 };

struct timespec {
    long seconds, nanoseconds;
};

struct piece {
    void *data;
    size_type length;
};

struct message {
    void *name;
    uint32_t name_length;
    struct piece *pieces;
    size_type piece_count;
    void *control;
    size_type control_length;
    int flags;
    uint32_t padding, sent, more;
};

struct batch_arguments {
    struct message message[SENT_AT_ONCE];
    struct piece piece[SENT_AT_ONCE];
};

struct poll_request {
    int fd;
    short events, occurred;
};

int *__errno_location(void);
int clock_gettime(int clock, struct timespec *now);
int ppoll(struct poll_request *requests, unsigned long count, const struct timespec *timeout, const void *signals);
int prctl(int option, unsigned long value, ...);
int pthread_mutex_init(void *mutex, const void *attributes);
int pthread_mutex_lock(void *mutex);
int pthread_mutex_unlock(void *mutex);
long read(int fd, void *data, size_type bytes);
long write(int fd, const void *data, size_type bytes);
long recv(int fd, void *data, size_type bytes, int flags);
int sched_yield(void);
int sendmmsg(int fd, struct message *messages, uint32_t count, int flags);

/* The kernel changes states and this process's threads change these words between one look and the next. */
#if defined(__TINYC__)
#define LOOK(word) (*(volatile uint32_t *)&(word))
#define SET(word, value) (*(volatile uint32_t *)&(word) = (value))
#else
#define LOOK(word) __atomic_load_n(&(word), __ATOMIC_ACQUIRE)
#define SET(word, value) __atomic_store_n(&(word), (value), __ATOMIC_RELEASE)
#endif

struct wires {
    core core;
    /* Who wants the lock waits with the turn, so that a thread which takes it again at once has to queue. */
    uint8_t mutex[MUTEX_BYTES], turn[MUTEX_BYTES];
    int64_t epoch_ns, news_ns;
    uint32_t groups, stopping, trouble;
    int32_t news_fd, wake_fd[GROUPS];
    void (*enter)(void), (*leave)(void);
};

static int64_t clock_ns(const wires *w) {
    struct timespec now;
    clock_gettime(MONOTONIC, &now);
    return now.seconds * 1000000000ll + now.nanoseconds - w->epoch_ns;
}

static void signal_fd(int fd) {
    uint64_t one = 1;
    write(fd, &one, sizeof one);
}

void wires_lock(wires *w) {
    pthread_mutex_lock(w->turn);
    pthread_mutex_lock(w->mutex);
    pthread_mutex_unlock(w->turn);
}

void wires_unlock(wires *w) {
    core_let_go(&w->core);
    pthread_mutex_unlock(w->mutex);
}

core *core_of(wires *w) {
    return &w->core;
}

/* -- before it starts, and after it ends -----------------------------------------------------------------------------
 * */

wires *wires_new(
    uint32_t queues, uint32_t groups, int64_t epoch_ns, tm_port *nowhere, const int32_t *wake_fds, int32_t news_fd) {
    wires *w = calloc(1, sizeof *w);
    if (!w) return NULL;
    pthread_mutex_init(w->mutex, NULL);
    pthread_mutex_init(w->turn, NULL);
    w->core.queues = queues;
    w->core.nowhere.port = -1;
    w->core.nowhere.queues = nowhere;
    w->core.nowhere.due_ns = -1;
    w->core.nowhere.up = 1;
    w->epoch_ns = epoch_ns;
    w->groups = groups;
    w->news_fd = news_fd;
    memcpy(w->wake_fd, wake_fds, groups * sizeof *wake_fds);
    return w;
}

static void free_outlet(core_outlet *outlet) {
    free(outlet->filling);
    free(outlet->sending);
    free(outlet->messages);
    free(outlet);
}

void wires_free(wires *w) {
    uint32_t at;
    for (at = 0; at < w->core.outlets; at++) {
        core_outlet *outlet = w->core.outlet[w->core.number[at]];
        free_outlet(outlet);
    }
    free(w);
}

core_outlet *wires_add(wires *w, uint32_t port, tm_port *queues, uint32_t group, uint32_t is_interface) {
    core_outlet *outlet = calloc(1, sizeof *outlet);
    struct batch_arguments *arguments;
    if (!outlet) return NULL;
    outlet->filling = calloc(1, sizeof *outlet->filling);
    outlet->sending = calloc(1, sizeof *outlet->sending);
    outlet->messages = arguments = calloc(1, sizeof *arguments);
    if (!outlet->filling || !outlet->sending || !arguments) {
        free_outlet(outlet);
        return NULL;
    }
    for (uint32_t at = 0; at < SENT_AT_ONCE; at++) {
        arguments->message[at].pieces = &arguments->piece[at];
        arguments->message[at].piece_count = 1;
    }
    outlet->queues = queues;
    outlet->port = port;
    outlet->group = group;
    outlet->fd = -1;
    outlet->is_interface = is_interface;
    outlet->up = !is_interface;
    core_plan(&w->core, outlet, 0);
    w->core.outlet[port] = outlet;
    w->core.number[w->core.outlets++] = port;
    return outlet;
}

/* -- interfaces ------------------------------------------------------------------------------------------------------
 * */

void wires_open(wires *w, core_outlet *outlet, int32_t fd, uint8_t *ring, uint32_t slot_bytes, uint32_t slots) {
    wires_lock(w);
    outlet->ring = ring;
    outlet->slot_bytes = slot_bytes;
    outlet->slots = slots;
    outlet->next = 0;
    outlet->fd = fd;
    core_set_up(&w->core, outlet, 1, clock_ns(w));
    wires_unlock(w);
    wires_wake(w);
}

void wires_close(wires *w, core_outlet *outlet) {
    wires_lock(w);
    while (outlet->is_flushed) {
        wires_unlock(w);
        sched_yield();
        wires_lock(w);
    }
    outlet->fd = -1;
    core_set_up(&w->core, outlet, 0, clock_ns(w));
    wires_unlock(w);
    wires_wake(w);
}

void wires_wake(wires *w) {
    uint32_t group;
    for (group = 0; group < w->groups; group++) signal_fd(w->wake_fd[group]);
}

static void in_trouble(wires *w) {
    SET(w->trouble, 1);
    signal_fd(w->news_fd);
}

uint32_t wires_trouble(wires *w) {
    uint32_t trouble = LOOK(w->trouble);
    SET(w->trouble, 0);
    return trouble;
}

void wires_run_program(wires *w, core_program *program, void (*enter)(void), void (*leave)(void)) {
    wires_lock(w);
    w->core.program = program;
    w->enter = enter;
    w->leave = leave;
    wires_unlock(w);
}

void wires_stop(wires *w) {
    SET(w->stopping, 1);
    wires_wake(w);
}

/* Process a frame whose slot does not hold it as it was on the wire. */
static void receive_special(
    wires *w, core_outlet *outlet, uint32_t state, const uint32_t *words, const uint8_t *frame, uint32_t length,
    int64_t now_ns) {
    static const uint32_t most = MOST_FRAME_BYTES;
    uint8_t *whole = calloc(1, most + 4);
    if (!whole) {
        outlet->lost++;
        return;
    }
    if (state & COPY) {
        long received = recv(outlet->fd, whole + 4, most, DONTWAIT);
        length = received > 0 ? received : 0;
    } else if (length < words[LENGTH] || length > most) {
        length = 0; /* there was no room for the rest of it */
    } else {
        memcpy(whole + 4, frame, length);
    }
    frame = whole + 4;
    if (length >= 12 && state & VLAN_VALID) {
        uint32_t tag = words[VLAN] & 0xffff, protocol = state & VLAN_TPID_VALID ? words[VLAN] >> 16 : 0x8100;
        memmove(whole, whole + 4, 12);
        whole[12] = protocol >> 8;
        whole[13] = protocol;
        whole[14] = tag >> 8;
        whole[15] = tag;
        frame = whole;
        length += 4;
    }
    if (length)
        core_receive(&w->core, outlet->port, frame, length, now_ns);
    else
        outlet->lost++;
    free(whole);
}

/* Process what has arrived at an interface; return whether anything has. */
static int receive(wires *w, core_outlet *outlet, int64_t now_ns) {
    uint32_t turn;
    for (turn = 0; turn < RECEIVED_AT_ONCE && outlet->fd >= 0; turn++) {
        uint8_t *slot = outlet->ring + (size_type)outlet->next * outlet->slot_bytes;
        uint32_t *words = (uint32_t *)slot;
        uint32_t state = LOOK(words[STATUS]), at = words[OFFSETS] & 0xffff, length = words[CAPTURED];
        if (!(state & USER)) break;
        if (at > outlet->slot_bytes || length > outlet->slot_bytes - at)
            outlet->lost++;
        else if (state & (COPY | VLAN_VALID) || length < words[LENGTH])
            receive_special(w, outlet, state, words, slot + at, length, now_ns);
        else
            core_receive(&w->core, outlet->port, slot + at, length, now_ns);
        SET(words[STATUS], 0);
        outlet->next = outlet->next + 1 == outlet->slots ? 0 : outlet->next + 1;
    }
    return turn != 0;
}

static uint32_t obstacle_of(int number) {
    switch (number) {
    case TRY_AGAIN: case NO_BUFFERS: case NO_MEMORY: return OBSTACLE_FULL;
    case NETWORK_DOWN: case NO_DEVICE: case NO_SUCH_DEVICE: return OBSTACLE_DOWN;
    case NO_ENTRY: case REFUSED: case NOT_A_SOCKET: return OBSTACLE_NO_PEER;
    default: return OBSTACLE_REFUSED;
    }
}

/* Return the ports to be flushed by this thread, each with its packets set apart. */
static core_outlet *set_apart(wires *w) {
    core_outlet *flushed = NULL;
    uint32_t at;
    for (at = 0; at < w->core.outlets; at++) {
        core_outlet *outlet = w->core.outlet[w->core.number[at]];
        if (outlet->fd < 0 || outlet->blocked || outlet->is_flushed) continue;
        if (!unsent(outlet->sending)) {
            core_batch *filled = outlet->filling;
            if (!unsent(filled)) continue;
            outlet->filling = outlet->sending;
            outlet->sending = filled;
        }
        outlet->is_flushed = 1;
        outlet->next_flushed = flushed;
        flushed = outlet;
    }
    return flushed;
}

/* Send what is set apart at a port, without the lock. */
static uint32_t flush(core_outlet *outlet) {
    struct batch_arguments *arguments = outlet->messages;
    core_batch *batch = outlet->sending;
    uint32_t sent = batch->first;
    outlet->obstacle = OBSTACLE_NONE;
    while (sent < batch->count) {
        uint32_t count = batch->count - sent, at;
        int taken;
        if (count > SENT_AT_ONCE) count = SENT_AT_ONCE;
        for (at = 0; at < count; at++) {
            arguments->piece[at].data = batch->data + batch->start[sent + at];
            arguments->piece[at].length = batch->length[sent + at];
        }
        taken = sendmmsg(outlet->fd, arguments->message, count, DONTWAIT);
        if (taken < 0) {
            if (*__errno_location() == INTERRUPTED) continue;
            outlet->obstacle = obstacle_of(*__errno_location());
            break;
        }
        sent += taken;
    }
    return sent - batch->first;
}

/* Send all that there is to send, without the lock. */
static void flush_all(wires *w, core_outlet *flushed) {
    core_outlet *outlet;
    while (flushed) {
        for (outlet = flushed; outlet; outlet = outlet->next_flushed) outlet->taken = flush(outlet);
        wires_lock(w);
        for (outlet = flushed; outlet; outlet = outlet->next_flushed) {
            int64_t now_ns = clock_ns(w);
            core_sent(outlet, outlet->sending, outlet->taken);
            outlet->is_flushed = 0;
            if (outlet->obstacle == OBSTACLE_NONE) continue;
            core_refused(&w->core, outlet, outlet->obstacle, now_ns);
            outlet->retry_ns = now_ns + RETRY_NS;
            if (outlet->obstacle == OBSTACLE_DOWN) {
                outlet->fd = -1;
                in_trouble(w);
            }
        }
        flushed = set_apart(w);
        wires_unlock(w);
    }
}

/* Offer their packets again to the ports that pushed back; return when to do so next, -1 if to none. */
static int64_t retry(wires *w, int64_t now_ns) {
    int64_t next_ns = -1;
    uint32_t at;
    for (at = 0; at < w->core.outlets; at++) {
        core_outlet *outlet = w->core.outlet[w->core.number[at]];
        if (!outlet->blocked || outlet->fd < 0) continue;
        if (outlet->retry_ns <= now_ns)
            core_unblock(&w->core, outlet, now_ns);
        else if (next_ns < 0 || outlet->retry_ns < next_ns)
            next_ns = outlet->retry_ns;
    }
    return next_ns;
}

/* Whether there are events or packets for controllers. */
static int has_news(const core *c) {
    uint32_t at;
    if (c->program && c->program->events && *c->program->events) return 1;
    for (at = 0; at < c->outlets; at++) {
        const core_outlet *outlet = c->outlet[c->number[at]];
        if (!outlet->is_interface && unsent(outlet->filling)) return 1;
    }
    return 0;
}

/* -- threads ---------------------------------------------------------------------------------------------------------
 * */

static int sleep_until(wires *w, uint32_t group, int64_t wake_ns) {
    struct poll_request requests[PORTS + 1];
    struct timespec timeout = {0, 0};
    uint32_t count = 1, at;
    uint64_t woken;
    requests[0].fd = w->wake_fd[group];
    requests[0].events = POLL_IN;
    wires_lock(w);
    for (at = 0; at < w->core.outlets; at++) {
        const core_outlet *outlet = w->core.outlet[w->core.number[at]];
        if (outlet->group != group || outlet->fd < 0) continue;
        requests[count].fd = outlet->fd;
        requests[count++].events = POLL_IN;
    }
    wires_unlock(w);
    if (wake_ns >= 0) {
        int64_t pause_ns = wake_ns - clock_ns(w);
        if (pause_ns < 0) pause_ns = 0;
        timeout.seconds = pause_ns / 1000000000;
        timeout.nanoseconds = pause_ns % 1000000000;
    }
    if (ppoll(requests, count, wake_ns < 0 ? NULL : &timeout, NULL) < 0)
        return *__errno_location() == INTERRUPTED ? 0 : *__errno_location();
    if (requests[0].occurred) read(w->wake_fd[group], &woken, sizeof woken);
    for (at = 1; at < count; at++)
        if (requests[at].occurred & POLL_ERROR) in_trouble(w);
    return 0;
}

int wires_run(wires *w, uint32_t group) {
    int error = 0;
    prctl(TIMER_SLACK, 1);
    while (!error && !LOOK(w->stopping)) {
        core_outlet *flushed;
        int64_t now_ns, due_ns, retry_ns;
        void (*enter)(void), (*leave)(void);
        uint32_t at;
        int busy = 0;
        wires_lock(w);
        enter = w->enter;
        leave = w->leave;
        if (enter) {
            wires_unlock(w);
            enter();
            wires_lock(w);
            if (w->enter != enter) {
                wires_unlock(w);
                leave();
                continue;
            }
        }
        for (at = 0; at < w->core.outlets; at++) {
            core_outlet *outlet = w->core.outlet[w->core.number[at]];
            if (outlet->group == group && outlet->fd >= 0) busy |= receive(w, outlet, clock_ns(w));
        }
        now_ns = clock_ns(w);
        retry_ns = retry(w, now_ns);
        due_ns = core_serve_due(&w->core, now_ns);
        flushed = set_apart(w);
        if ((!busy || w->news_ns <= now_ns) && has_news(&w->core)) {
            w->news_ns = now_ns + NEWS_NS;
            signal_fd(w->news_fd);
        }
        wires_unlock(w);
        if (enter) leave();
        if (flushed)
            flush_all(w, flushed);
        else if (busy)
            sched_yield();
        if (busy || flushed || (due_ns >= 0 && due_ns <= now_ns)) continue;
        if (due_ns < 0 || (retry_ns >= 0 && retry_ns < due_ns)) due_ns = retry_ns;
        error = sleep_until(w, group, due_ns);
    }
    return error;
}

/* -- controllers -----------------------------------------------------------------------------------------------------
 * */

void wires_inject(wires *w, uint32_t port, const uint8_t *data, uint32_t length) {
    core_outlet *flushed;
    wires_lock(w);
    core_receive(&w->core, port, data, length, clock_ns(w));
    flushed = set_apart(w);
    wires_unlock(w);
    flush_all(w, flushed);
    wires_wake(w);
}

core_batch *wires_take(wires *w, core_outlet *outlet) {
    core_batch *taken;
    wires_lock(w);
    clear(outlet->sending);
    taken = outlet->filling;
    outlet->filling = outlet->sending;
    outlet->sending = taken;
    outlet->packets_out += taken->count;
    for (uint32_t at = 0; at < taken->count; at++) outlet->bytes_out += taken->length[at];
    if (taken->count) core_plan(&w->core, outlet, clock_ns(w));
    wires_unlock(w);
    return taken->count ? taken : NULL;
}
