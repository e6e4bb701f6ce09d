/* One thread uses a host: the one of the loop in Python, which waits in datagrams_wait. Numbers of the kernel's
   interface are those of Linux on all processors that it runs on with 64 bits. */

typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef short int16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef long long int64_t;
typedef __SIZE_TYPE__ size_type;

#define NULL ((void *)0)

struct timespec { int64_t seconds; int64_t nanoseconds; };
struct piece { void *data; size_type length; };
struct message {
    void *name; uint32_t name_length; struct piece *pieces; size_type piece_count; void *control;
    size_type control_length; int flags; uint32_t padding, done_bytes, more;
};
struct address { uint16_t family; uint8_t port[2], ipv4[4], padding[8]; };

void *calloc(size_type count, size_type size);
void *realloc(void *memory, size_type bytes);
void *malloc(size_type bytes);
void free(void *memory);
void *memcpy(void *to, const void *from, size_type bytes);
int clock_gettime(int clock, struct timespec *time);
int ppoll(void *requests, unsigned long count, const struct timespec *timeout, const void *mask);
long sendto(int fd, const void *data, size_type length, int flags, const void *to, uint32_t to_length);
int setsockopt(int fd, int level, int option, const void *value, uint32_t length);
int recvmmsg(int fd, struct message *messages, uint32_t count, int flags, struct timespec *timeout);
int *__errno_location(void);

#include "datagrams.h"

enum { MONOTONIC = 1, DONTWAIT = 0x40, INET = 2, INTERRUPTED = 4, TRY_AGAIN = 11 };
enum { ETHERNET = 14, HEADERS = 42, BATCH = 32, MOST_FRAME = 1 << 16 };
enum { NO_MEMORY = 12, POLL_IN = 1, IP = 0, TYPE_OF_SERVICE = 1 };
#define NS_PER_S 1000000000ll

typedef struct {
    int64_t time_ns;
    uint64_t number, value; /* the number orders calls of one time */
    void (*function)(void *, uint64_t);
    void *what;
} call;

typedef struct waiting {
    struct waiting *next;
    uint32_t length; /* the frame lies behind it */
} waiting;

struct datagrams {
    int64_t now_ns, free_ns, rate_bps;
    int32_t incoming_fd, error;
    uint16_t port;
    int32_t sender[1 << 16]; /* by source port; 0: none */
    uint8_t service[1 << 16]; /* the byte of code point and ECN that each has */
    int (*receive)(void *, int64_t, const uint8_t *, uint32_t);
    void *receiver;
    call *calls; /* a heap */
    uint64_t calls_count, calls_room, scheduled;
    waiting *first, *last;
    datagrams_news *news;
    uint32_t news_count, news_room;
    uint32_t got, taken; /* frames of the batch, and how many of them were looked at */
    struct message message[BATCH];
    struct piece piece[BATCH];
    uint8_t frame[BATCH][MOST_FRAME];
};

static uint32_t number_at(const uint8_t *at) {
    return at[0] << 8 | at[1];
}

static void put(uint8_t *at, uint32_t number) {
    at[0] = number >> 8;
    at[1] = number;
}

void datagrams_look(datagrams *d) {
    struct timespec now;
    clock_gettime(MONOTONIC, &now);
    d->now_ns = now.seconds * NS_PER_S + now.nanoseconds;
}

int64_t *datagrams_now(datagrams *d) {
    return &d->now_ns;
}

/* -- calls ----------------------------------------------------------------------------------------------------------
 * */

static int before(const call *a, const call *b) {
    return a->time_ns < b->time_ns || (a->time_ns == b->time_ns && a->number < b->number);
}

void datagrams_call(void *at, int64_t time_ns, void (*function)(void *, uint64_t), void *what, uint64_t value) {
    datagrams *d = at;
    call made = {time_ns, ++d->scheduled, value, function, what};
    uint64_t place = d->calls_count;
    if (place == d->calls_room) {
        uint64_t room = place ? 2 * place : 64;
        call *more = realloc(d->calls, room * sizeof *more);
        if (!more) {
            d->error = NO_MEMORY;
            return;
        }
        d->calls = more;
        d->calls_room = room;
    }
    d->calls_count++;
    while (place && before(&made, &d->calls[(place - 1) / 2])) {
        d->calls[place] = d->calls[(place - 1) / 2];
        place = (place - 1) / 2;
    }
    d->calls[place] = made;
}

static call next_call(datagrams *d) {
    call first = d->calls[0], last = d->calls[--d->calls_count];
    uint64_t at = 0, child;
    while ((child = 2 * at + 1) < d->calls_count) {
        if (child + 1 < d->calls_count && before(&d->calls[child + 1], &d->calls[child])) child++;
        if (!before(&d->calls[child], &last)) break;
        d->calls[at] = d->calls[child];
        at = child;
    }
    d->calls[at] = last;
    return first;
}

/* -- what is told ---------------------------------------------------------------------------------------------------
 * */

void datagrams_tell(void *at, uint64_t number) {
    datagrams *d = at;
    if (d->news_count == d->news_room) {
        uint32_t room = d->news_room ? 2 * d->news_room : 16;
        datagrams_news *more = realloc(d->news, room * sizeof *more);
        if (!more) {
            d->error = NO_MEMORY;
            return;
        }
        d->news = more;
        d->news_room = room;
    }
    d->news[d->news_count].number = number;
    d->news[d->news_count++].time_ns = d->now_ns;
}

uint32_t datagrams_told(datagrams *d, const datagrams_news **news) {
    uint32_t count = d->news_count;
    d->news_count = 0;
    *news = d->news;
    return count;
}

/* -- sending --------------------------------------------------------------------------------------------------------
 * */

static void transmit(datagrams *d, const uint8_t *frame, uint32_t length) {
    struct address to = {INET, {0, 0}, {0, 0, 0, 0}, {0}};
    uint32_t source_port = number_at(frame + 34);
    int32_t fd = d->sender[source_port], service = frame[15];
    if (service != d->service[source_port]) {
        setsockopt(fd, IP, TYPE_OF_SERVICE, &service, sizeof service);
        d->service[source_port] = service;
    }
    put(to.port, d->port);
    memcpy(to.ipv4, frame + 30, 4);
    while (sendto(fd, frame + HEADERS, length - HEADERS, 0, &to, sizeof to) < 0) {
        if (*__errno_location() == INTERRUPTED) continue;
        d->error = *__errno_location();
        return;
    }
}

static int64_t time_of(const datagrams *d, uint32_t length) {
    return (length * 8 * NS_PER_S + d->rate_bps - 1) / d->rate_bps;
}

/* Send what waited. A call may come late: packets that wait then catch up, in the order in which they came. */
static void resume(void *at, uint64_t value) {
    datagrams *d = at;
    (void)value;
    while (d->first && d->free_ns <= d->now_ns) {
        waiting *one = d->first;
        d->first = one->next;
        d->free_ns += time_of(d, one->length);
        transmit(d, (uint8_t *)(one + 1), one->length);
        free(one);
    }
    if (d->first) datagrams_call(d, d->free_ns, resume, d, 0);
}

void datagrams_send(void *at, const uint8_t *frame, uint32_t length, uint64_t urgency) {
    datagrams *d = at;
    waiting *one;
    (void)urgency; /* real hosts send packet by packet */
    if (!d->first && d->free_ns <= d->now_ns) {
        d->free_ns = d->now_ns + time_of(d, length);
        transmit(d, frame, length);
        return;
    }
    one = malloc(sizeof *one + length);
    if (!one) {
        d->error = NO_MEMORY;
        return;
    }
    one->next = NULL;
    one->length = length;
    memcpy(one + 1, frame, length);
    if (d->first) {
        d->last->next = one;
    } else {
        d->first = one;
        datagrams_call(d, d->free_ns, resume, d, 0);
    }
    d->last = one;
}

uint32_t datagrams_waits(const void *d, uint64_t urgency) {
    (void)d;
    (void)urgency;
    return 0;
}

/* -- receiving ------------------------------------------------------------------------------------------------------
 * */

static uint32_t length_of(const datagrams *d, uint32_t at) {
    return d->message[at].done_bytes + HEADERS;
}

static int deliver(datagrams *d, uint32_t at) {
    put(d->frame[at] + ETHERNET + 2, length_of(d, at) - ETHERNET);
    return d->receive(d->receiver, d->now_ns, d->frame[at], length_of(d, at));
}

const uint8_t *datagrams_unexpected(const datagrams *d, uint32_t *length) {
    *length = length_of(d, d->taken);
    return d->frame[d->taken];
}

void datagrams_again(datagrams *d) {
    deliver(d, d->taken++);
}

static void do_what_is_due(datagrams *d) {
    datagrams_look(d);
    /* Only what is due now: calls that become due meanwhile could go on for ever, and nothing would be read. */
    int64_t now_ns = d->now_ns;
    while (d->calls_count && d->calls[0].time_ns <= now_ns && !d->error) {
        call due = next_call(d);
        due.function(due.what, due.value);
        datagrams_look(d);
    }
}

/* Do what is due, and take what has arrived. */
static uint32_t work(datagrams *d) {
    do_what_is_due(d);
    for (; d->taken < d->got && !d->error; d->taken++) {
        datagrams_look(d);
        if (!deliver(d, d->taken)) return WAIT_UNEXPECTED;
    }
    d->taken = d->got = 0;
    if (!d->error) {
        int got = recvmmsg(d->incoming_fd, d->message, BATCH, DONTWAIT, NULL);
        if (got > 0)
            d->got = got;
        else if (got < 0 && *__errno_location() != INTERRUPTED && *__errno_location() != TRY_AGAIN)
            d->error = *__errno_location();
    }
    return d->error ? WAIT_FAILED : WAIT_DONE;
}

uint32_t datagrams_wait(datagrams *d, int64_t until_ns, datagrams_request *requests, uint32_t count) {
    requests[0].fd = d->incoming_fd;
    requests[0].events = POLL_IN;
    for (;;) {
        int64_t pause_ns = until_ns;
        struct timespec timeout;
        uint32_t came = work(d);
        int ready;
        if (came != WAIT_DONE || d->news_count) return came;
        datagrams_look(d);
        if (d->now_ns >= until_ns) return WAIT_DONE;
        if (d->calls_count && d->calls[0].time_ns < pause_ns) pause_ns = d->calls[0].time_ns;
        pause_ns = d->got || pause_ns < d->now_ns ? 0 : pause_ns - d->now_ns;
        timeout.seconds = pause_ns / NS_PER_S;
        timeout.nanoseconds = pause_ns % NS_PER_S;
        ready = ppoll(requests, count, &timeout, NULL);
        if (ready < 0 && *__errno_location() != INTERRUPTED) {
            d->error = *__errno_location();
            return WAIT_FAILED;
        }
        /* Others are ready, or a signal waits for Python. */
        if (ready < 0 || ready > (requests[0].occurred != 0)) return WAIT_DONE;
    }
}

/* -- building -------------------------------------------------------------------------------------------------------
 * */

datagrams *datagrams_new(int32_t incoming_fd, int64_t rate_bps, uint16_t port) {
    datagrams *d = calloc(1, sizeof *d);
    uint32_t at;
    if (!d) return NULL;
    d->incoming_fd = incoming_fd;
    d->rate_bps = rate_bps;
    d->port = port;
    for (at = 0; at < BATCH; at++) {
        /* What shim.c looks at in the headers, which the kernel has taken off. */
        put(d->frame[at] + 12, 0x0800);
        d->frame[at][ETHERNET] = 0x45;
        d->frame[at][23] = 17;
        put(d->frame[at] + 36, port);
        d->piece[at].data = d->frame[at] + HEADERS;
        d->piece[at].length = MOST_FRAME - HEADERS;
        d->message[at].pieces = &d->piece[at];
        d->message[at].piece_count = 1;
    }
    datagrams_look(d);
    return d;
}

void datagrams_open(datagrams *d, uint16_t source_port, int32_t fd) {
    d->sender[source_port] = fd;
}

void datagrams_receive_with(
    datagrams *d, int (*receive)(void *, int64_t, const uint8_t *, uint32_t), void *receiver) {
    d->receive = receive;
    d->receiver = receiver;
}

int datagrams_error(const datagrams *d) {
    return d->error;
}

void datagrams_free(datagrams *d) {
    while (d->first) {
        waiting *one = d->first;
        d->first = one->next;
        free(one);
    }
    free(d->calls);
    free(d->news);
    free(d);
}
