/* Names and comments of transport.py, shim.py and agreement.py explain this file. */

#include "basics.h"
#include "network.h"
#include "shim.h"
#include "ranks.h"

enum { ETHERNET = 14, SHIM_AT = 42, HEADER_BYTES = 62, MOST_FRAME = 1 << 16, NS_PER_US = 1000 };
#define MOST_AGE_US 0xffffffffll
#define NS_PER_S 1e9

typedef struct {
    int64_t remaining, length_bytes;
    uint32_t last, alone, prompt, resent;
} segment;

/* A part of a flow that arrived ahead of something missing. */
typedef struct {
    int64_t start, end;
} part;

/* The bytes that a host has sent of a group in its newest iteration. */
typedef struct {
    uint8_t epoch;
    int64_t bytes;
} sent_bytes;

/* The urgency of a flow in one iteration. */
typedef struct urgency {
    struct urgency *next; /* of all of the host */
    shim_order order;
    sent_bytes *sent;
    int64_t start_ns, left_bytes;
    uint16_t job;
    uint8_t epoch;
} urgency;

typedef struct stream stream;

typedef struct {
    shim_flow *flow;
    urgency *urgency; /* NULL: packet by packet */
    stream *stream;   /* whose window it shares; NULL: it has one of its own */
    int64_t size_bytes, count, last_bytes, open, next, acked, recover, backoff, deadline_ns;
    uint64_t generation; /* of the iteration; older deadlines do nothing */
    uint64_t told; /* when all of it has been acknowledged; 0: nobody is */
    uint32_t draining, timeouts, is_sending;
    uint8_t epoch;
    /* The pacer. */
    segment *waiting;
    uint32_t first, held, room;
    uint32_t is_limited;
    double rate_Bps, debt_bytes;
    int64_t at_ns;
    uint64_t timer;
} sending;

typedef struct arriving arriving;

typedef struct {
    shim_flow *flow;
    arriving *stream; /* NULL: its flow has a window of its own */
    int64_t size_bytes, missing_bytes, window_bytes, every, unanswered, prompt_to, furthest;
    uint64_t told; /* 0: told already */
    uint32_t is_ranked;
    uint8_t epoch;
    part *ahead;
    uint32_t aheads, room;
} receiving;

/* The flows of a job from one host to another that are under way and share a window, in order of start. */
struct stream {
    sending **flow;
    uint32_t flows, room;
    int64_t window, open; /* packets that may be in flight in the end, and by now */
};

/* The same at their destination: the flow that has packets without an answer. */
struct arriving {
    receiving *unanswered;
};

/* What a host knows of a job's newest iteration, and when it began to send for the job itself. */
typedef struct {
    int64_t begin_ns, begun_ns;
    uint32_t is_known, has_begun;
    uint16_t job, memory;
    uint8_t epoch, begun_epoch;
} knowledge;

/* Ends of flows, by job and flow, or what is sent, by group; a hash table of a power of two. */
typedef struct {
    void **ends;
    uint32_t *keys;
    uint32_t count, room;
} table;

/* A flow that its host ranks. */
typedef struct {
    struct rank_rule rule;
    struct rank_stream stream;
    struct rank_state *state;
} ranked;

struct shim_host {
    shim_run *run;
    void *nic;
    shim_host *next;
    int (*receive)(void *, int64_t, const uint8_t *, uint32_t); /* takes frames without a shim; NULL: nothing does */
    void *receiver;
    uint32_t closed, number, jobs, room;
    table sending, receiving, streams, arriving, sent, ranks, states;
    knowledge *known;
    urgency *urgencies;
};

struct shim_run {
    network_in_c network;
    shim_constants constants;
    shim_host *hosts;
    uint32_t numbered;
    uint64_t told_of_failure, generation;
    const shim_flow *failed;
    uint32_t marks;
    uint8_t acknowledgements; /* their code point, if it marks */
    uint8_t frame[MOST_FRAME];
};

static int64_t now_of(const shim_host *host) {
    return *host->run->network.now_ns;
}

/* -- ends of flows --------------------------------------------------------------------------------------------------
 * */

static void **place_of(const table *of, uint32_t key) {
    uint32_t at = key * 2654435769u;
    if (!of->room) return NULL;
    for (at &= of->room - 1; of->ends[at] && of->keys[at] != key; at = (at + 1) & (of->room - 1)) {
    }
    return &of->ends[at];
}

static void *find(const table *of, uint32_t key) {
    void **place = place_of(of, key);
    return place ? *place : NULL;
}

/* Return the end of a flow, which is made if there is none; NULL: there is no memory. */
static void *find_or_make(table *of, uint32_t key, size_type bytes) {
    void *end = find(of, key), **place;
    if (end) return end;
    if (2 * of->count >= of->room) {
        table more = {NULL, NULL, of->count, of->room ? 2 * of->room : 16};
        uint32_t at;
        more.ends = calloc(more.room, sizeof *more.ends);
        more.keys = calloc(more.room, sizeof *more.keys);
        if (!more.ends || !more.keys) {
            free(more.ends);
            free(more.keys);
            return NULL;
        }
        for (at = 0; at < of->room; at++) {
            if (!of->ends[at]) continue;
            place = place_of(&more, of->keys[at]);
            *place = of->ends[at];
            more.keys[place - more.ends] = of->keys[at];
        }
        free(of->ends);
        free(of->keys);
        *of = more;
    }
    end = calloc(1, bytes);
    if (!end) return NULL;
    place = place_of(of, key);
    *place = end;
    of->keys[place - of->ends] = key;
    of->count++;
    return end;
}

static uint32_t key_of(const shim_flow *flow) {
    return (uint32_t)flow->job << 16 | flow->flow;
}

/* The key of a flow's stream at one of its ends, where the other is `peer`. */
static uint32_t stream_key_of(const shim_flow *flow, const shim_host *peer) {
    return (uint32_t)flow->job << 16 | peer->number;
}

/* -- agreement ------------------------------------------------------------------------------------------------------
 * */

/* Return what a host knows of a job; NULL: there is no memory. */
static knowledge *known_of(shim_host *host, uint16_t job) {
    uint32_t at;
    for (at = 0; at < host->jobs; at++)
        if (host->known[at].job == job) return &host->known[at];
    if (host->jobs == host->room) {
        uint32_t room = host->room ? 2 * host->room : 4;
        knowledge *more = realloc(host->known, room * sizeof *more);
        if (!more) return NULL;
        host->known = more;
        host->room = room;
    }
    memset(&host->known[host->jobs], 0, sizeof *host->known);
    host->known[host->jobs].job = job;
    return &host->known[host->jobs++];
}

static void begin(shim_host *host, uint8_t epoch, uint16_t job) {
    knowledge *known = known_of(host, job);
    if (!known || (known->has_begun && known->begun_epoch == epoch)) return;
    known->has_begun = 1;
    known->begun_epoch = epoch;
    known->begun_ns = now_of(host);
}

static void hear(shim_host *host, uint8_t epoch, uint16_t job, const uint8_t *stamp) {
    int64_t age_us = number_at(stamp, 4), begin_ns;
    uint16_t memory = number_at(stamp + 4, 2);
    knowledge *known;
    if (!age_us) return;
    begin_ns = now_of(host) - age_us * NS_PER_US;
    known = known_of(host, job);
    if (!known) return;
    if (known->is_known && epoch == known->epoch) {
        known->begin_ns = least(known->begin_ns, begin_ns);
        known->memory = most(known->memory, memory);
        return;
    }
    if (known->is_known && ((epoch - known->epoch) & 0xff) >= host->run->constants.straggler_from) return;
    known->is_known = 1;
    known->epoch = epoch;
    known->begin_ns = begin_ns;
    known->memory = memory;
}

static void put_stamp(shim_host *host, uint8_t epoch, uint16_t job, uint8_t *stamp) {
    const knowledge *known = known_of(host, job);
    memset(stamp, 0, 8);
    if (!known || !known->is_known || known->epoch != epoch) return;
    put(stamp, least(most(1, (now_of(host) - known->begin_ns) / NS_PER_US), MOST_AGE_US), 4);
    put(stamp + 4, known->memory, 2);
}

/* -- urgencies ------------------------------------------------------------------------------------------------------
 * */

enum { OF_ACKNOWLEDGEMENTS = 1 };

/* Give a flow an urgency for an iteration. Return 0, or 1 if there is no memory. */
static int give_urgency(sending *s, const shim_flow *flow, uint8_t epoch, const shim_order *order) {
    shim_host *host = flow->source;
    urgency *u = s->urgency;
    if (!order) {
        s->urgency = NULL;
        return 0;
    }
    /* Packets of the last iteration that still wait have the urgency of then. */
    if (!u || host->run->network.waits(host->nic, (size_type)u)) {
        u = calloc(1, sizeof *u);
        if (!u) return 1;
        u->next = host->urgencies;
        host->urgencies = u;
    }
    u->order = *order;
    u->epoch = epoch;
    u->job = flow->job;
    u->start_ns = now_of(host);
    u->left_bytes = flow->size_bytes;
    u->sent = order->group ? find_or_make(&host->sent, order->group, sizeof *u->sent) : NULL;
    s->urgency = u;
    begin(host, epoch, flow->job);
    return order->group && !u->sent;
}

static double urgency_of(shim_host *host, int64_t now_ns, const urgency *u) {
    const shim_order *order = &u->order;
    const knowledge *known = known_of(host, u->job);
    int64_t begin_ns = known->begun_ns;
    double memory = 0.0, age_s, of;
    uint32_t low = 0, high = order->steps;
    if (known->is_known) {
        if (known->epoch == u->epoch) begin_ns = least(begin_ns, known->begin_ns);
        memory = known->memory / host->run->constants.memory_unit;
    }
    age_s = (double)(now_ns - begin_ns) / NS_PER_S;
    /* As `echelon.planning.rankings.base.Overdue`, a form of `deadline_rank` of the module `deadline` beside it. */
    if (order->kind == ORDER_OVERDUE)
        return (age_s - order->due_s - order->left_s * (double)u->left_bytes) / order->unit_s + memory -
               order->head_start;
    if (order->kind == ORDER_STEPS_OF_AGE)
        of = age_s - order->due_s;
    else
        of = u->sent && u->sent->epoch == u->epoch ? (double)u->sent->bytes : 0.0;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (of < order->thresholds[middle])
            high = middle;
        else
            low = middle + 1;
    }
    return order->values[low];
}

/* Return whether a flow goes before another. Flows that are as urgent go in order of start. */
static int goes_before(const urgency *u, double value, const urgency *other, double other_value) {
    if (u->order.highest != other->order.highest) return u->order.highest > other->order.highest;
    if (value != other_value) return value > other_value;
    return u->start_ns < other->start_ns;
}

uint32_t shim_choose(void *at, int64_t now_ns, const shim_ranked *ranked, uint32_t count) {
    shim_host *host = at;
    const urgency *best = NULL;
    double best_value = 0.0;
    uint32_t chosen = 0, one;
    for (one = 0; one < count; one++) {
        const urgency *u = (const urgency *)(size_type)ranked[one].urgency;
        double value;
        if (ranked[one].urgency == OF_ACKNOWLEDGEMENTS) return one;
        if (best && u->order.highest < best->order.highest) continue;
        value = urgency_of(host, now_ns, u);
        if (best && !goes_before(u, value, best, best_value)) continue;
        best = u;
        best_value = value;
        chosen = one;
    }
    return chosen;
}

/* -- ranks ----------------------------------------------------------------------------------------------------------
 * */

enum { CLASS_SHIFT = 3 };

int shim_rank(shim_host *host, uint16_t job, uint16_t flow, uint32_t echelonflow, const void *rule) {
    ranked *one = find_or_make(&host->ranks, (uint32_t)job << 16 | flow, sizeof *one);
    if (!one) return 1;
    memcpy(&one->rule, rule, sizeof one->rule);
    one->state = find_or_make(&host->states, echelonflow, sizeof *one->state);
    return !one->state;
}

void shim_mark(shim_run *run, uint8_t acknowledgements) {
    run->marks = 1;
    run->acknowledgements = acknowledgements;
}

/* Return the code point of a frame that leaves now, and write into its shim what it tells others. */
static uint8_t code_point(shim_host *host, uint32_t key, uint8_t *shim) {
    const shim_constants *c = &host->run->constants;
    struct rank_packet packet = {0};
    ranked *of;
    if (shim[0] & c->ack) return host->run->acknowledgements;
    of = find(&host->ranks, key);
    if (!of) return 0;
    packet.now_us = now_of(host) / NS_PER_US;
    packet.left_bytes = number_at(shim + 8, 4);
    packet.age_us = number_at(shim + 12, 4);
    packet.memory = number_at(shim + 16, 2);
    packet.epoch = shim[1];
    packet.last = (shim[0] & c->last) != 0;
    packet.alone = (shim[0] & c->alone) != 0;
    packet.resent = (shim[7] & c->marked_resent) != 0;
    rank(&of->rule, of->state, &of->stream, &packet);
    if (packet.waits) shim[0] |= c->drain;
    put(shim + 12, packet.age_us, 4);
    put(shim + 16, packet.age_us ? packet.memory : 0, 2);
    return packet.queue << CLASS_SHIFT;
}

/* -- frames ---------------------------------------------------------------------------------------------------------
 * */

/* Send a frame with these headers from a host; its bytes behind the shim are zeros. */
static void send_frame(
    shim_host *host, const shim_flow *flow, const uint8_t *headers, uint32_t length, uint8_t flags, uint8_t epoch,
    uint16_t marks, uint32_t number, uint64_t urgent) {
    shim_run *run = host->run;
    uint8_t *frame = run->frame, *shim = frame + SHIM_AT;
    uint32_t sum = 0, at;
    memcpy(frame, headers, SHIM_AT);
    put(frame + ETHERNET + 2, length - ETHERNET, 2);
    put(frame + 38, length - ETHERNET - 20, 2);
    shim[0] = run->constants.version_bits | flags;
    shim[1] = epoch;
    put(shim + 2, flow->job, 2);
    put(shim + 4, flow->flow, 2);
    put(shim + 6, marks, 2);
    put(shim + 8, number, 4);
    put_stamp(host, epoch, flow->job, shim + 12);
    if (run->marks) frame[ETHERNET + 1] = code_point(host, key_of(flow), shim) << 2 | (frame[ETHERNET + 1] & 3);
    for (at = ETHERNET; at < ETHERNET + 20; at += 2) sum += number_at(frame + at, 2);
    while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
    put(frame + ETHERNET + 10, ~sum & 0xffff, 2);
    memset(frame + HEADER_BYTES, 0, length - HEADER_BYTES);
    run->network.send(host->nic, frame, length, urgent);
}

static void transmit(const sending *s, const segment *of) {
    const shim_constants *c = &s->flow->source->run->constants;
    urgency *u = s->urgency;
    uint8_t flags = (of->last ? c->last : 0) | (of->alone ? c->alone : 0);
    uint16_t marks = (of->prompt ? c->marked_prompt : 0) | (of->resent ? c->marked_resent : 0);
    send_frame(
        s->flow->source, s->flow, s->flow->data_headers, of->length_bytes, flags, s->epoch, marks, of->remaining,
        (size_type)u);
    if (!u) return;
    u->left_bytes = least(u->left_bytes, of->remaining - of->length_bytes);
    if (!u->sent) return;
    if (u->sent->epoch != s->epoch) u->sent->bytes = 0;
    u->sent->epoch = s->epoch;
    u->sent->bytes += of->length_bytes;
}

/* -- the pacer ------------------------------------------------------------------------------------------------------
 * */

static void go_on(sending *s);

static void on_timer(void *of, uint64_t timer) {
    sending *s = of;
    if (timer == s->timer) go_on(s);
}

static void pay(sending *s) {
    int64_t now_ns = now_of(s->flow->source);
    if (s->is_limited)
        s->debt_bytes -= s->rate_Bps * (double)(now_ns - s->at_ns) / NS_PER_S;
    else
        s->debt_bytes = 0.0;
    s->at_ns = now_ns;
}

static void go_on(sending *s) {
    shim_host *host = s->flow->source;
    pay(s);
    s->timer++;
    while (s->held && !(s->is_limited && s->rate_Bps == 0)) {
        segment of = s->waiting[s->first];
        double credit = -(double)(host->run->constants.credit_segments * of.length_bytes);
        if (s->debt_bytes < credit) s->debt_bytes = credit;
        if (s->is_limited && s->debt_bytes > 0) {
            int64_t wait_ns = (int64_t)(s->debt_bytes / s->rate_Bps * NS_PER_S) + 1;
            host->run->network.call(host->run->network.clock, now_of(host) + wait_ns, on_timer, s, s->timer);
            return;
        }
        s->debt_bytes += (double)of.length_bytes;
        s->first = (s->first + 1) % s->room;
        s->held--;
        transmit(s, &of);
    }
}

static void offer(sending *s, const segment *of) {
    if (!s->flow->is_paced || !s->is_limited) {
        transmit(s, of);
        return;
    }
    if (s->held == s->room) {
        uint32_t room = s->room ? 2 * s->room : 16, at;
        segment *more = calloc(room, sizeof *more);
        if (!more) return;
        for (at = 0; at < s->held; at++) more[at] = s->waiting[(s->first + at) % s->room];
        free(s->waiting);
        s->waiting = more;
        s->room = room;
        s->first = 0;
    }
    s->waiting[(s->first + s->held++) % s->room] = *of;
    if (s->held == 1) go_on(s);
}

/* -- the sender -----------------------------------------------------------------------------------------------------
 * */

static segment segment_at(const sending *s, int64_t index) {
    segment of = {0, 0, 0, 0, 0, 0};
    if (index == s->count - 1) {
        of.remaining = of.length_bytes = s->last_bytes;
        of.last = 1;
    } else {
        of.remaining = s->size_bytes - index * s->flow->packet_bytes;
        of.length_bytes = least(s->flow->packet_bytes, of.remaining - s->last_bytes);
    }
    return of;
}

static int64_t in_flight_of(const stream *of) {
    int64_t packets = 0;
    uint32_t at;
    for (at = 0; at < of->flows; at++) packets += of->flow[at]->next - of->flow[at]->acked;
    return packets;
}

/* Return the most urgent flow that has a packet to send; NULL: none has. */
static sending *most_urgent_of(const stream *of, int64_t now_ns) {
    sending *best = NULL;
    double best_value = 0.0;
    uint32_t at;
    for (at = 0; at < of->flows; at++) {
        sending *s = of->flow[at];
        double value;
        if (s->draining || s->next == s->count) continue;
        value = urgency_of(s->flow->source, now_ns, s->urgency);
        if (best && !goes_before(s->urgency, value, best->urgency, best_value)) continue;
        best = s;
        best_value = value;
    }
    return best;
}

/* Give the free places of a shared window to its flows. A packet that waits in a switch keeps the queue that it got
 * when it came; one that waits here does not, so the window is no larger than the path. */
static void fill(stream *of) {
    int64_t free_places = of->open - in_flight_of(of);
    for (; free_places > 0; free_places--) {
        sending *s = of->flows ? most_urgent_of(of, now_of(of->flow[0]->flow->source)) : NULL;
        segment next;
        if (!s) return;
        next = segment_at(s, s->next);
        next.alone = s->next == s->acked;
        next.prompt = of->open < of->window;
        /* It may have waited for a place for long. */
        if (next.alone)
            s->deadline_ns = now_of(s->flow->source) + s->backoff * s->flow->retransmit_after_ns;
        s->next++;
        offer(s, &next);
    }
}

/* Let a flow share the window of its stream. Return 0, or 1 if there is no memory. */
static int join_stream(sending *s, const shim_flow *flow) {
    stream *of = find_or_make(&flow->source->streams, stream_key_of(flow, flow->destination), sizeof *of);
    if (!of) return 1;
    if (of->flows == of->room) {
        uint32_t room = of->room ? 2 * of->room : 4;
        sending **more = realloc(of->flow, room * sizeof *more);
        if (!more) return 1;
        of->flow = more;
        of->room = room;
    }
    of->window = flow->stream_window;
    if (!in_flight_of(of)) of->open = least(flow->initial, of->window);
    of->flow[of->flows++] = s;
    s->stream = of;
    return 0;
}

static void leave_stream(sending *s) {
    stream *of = s->stream;
    uint32_t at, kept = 0;
    if (!of) return;
    for (at = 0; at < of->flows; at++)
        if (of->flow[at] != s) of->flow[kept++] = of->flow[at];
    of->flows = kept;
    s->stream = NULL;
}

static void send_new(sending *s) {
    int64_t index = s->next, end = least(s->acked + s->open, s->count);
    uint32_t prompt = s->open < s->flow->window;
    if (s->stream) {
        fill(s->stream);
        return;
    }
    if (s->draining || end <= index) return;
    s->next = end;
    for (; index < end; index++) {
        segment of = segment_at(s, index);
        of.alone = index == s->acked;
        of.prompt = prompt;
        offer(s, &of);
    }
}

static void send_again(sending *s, int64_t index) {
    segment of = segment_at(s, index);
    of.resent = 1;
    s->flow->tally[0]++;
    offer(s, &of);
}

static void on_deadline(void *of, uint64_t generation) {
    sending *s = of;
    shim_host *host = s->flow->source;
    shim_run *run = host->run;
    int64_t now_ns = now_of(host);
    if (host->closed || !s->is_sending || s->generation != generation) return;
    if (s->held || s->next == s->acked) { /* it waits for its pacer, or for a place in its stream's window */
        s->deadline_ns = now_ns + s->backoff * s->flow->retransmit_after_ns;
    } else if (now_ns >= s->deadline_ns) {
        if (s->timeouts == run->constants.most_timeouts) {
            run->failed = s->flow;
            run->network.tell(run->network.clock, run->told_of_failure);
            return;
        }
        s->timeouts++;
        s->backoff = least(2 * s->backoff, run->constants.most_backoff);
        s->deadline_ns = now_ns + s->backoff * s->flow->retransmit_after_ns;
        s->recover = s->next;
        send_again(s, s->acked);
    }
    run->network.call(run->network.clock, s->deadline_ns, on_deadline, s, generation);
}

static void start_sending(sending *s, shim_flow *flow, uint8_t epoch) {
    shim_host *host = flow->source;
    shim_run *run = host->run;
    int64_t now_ns = now_of(host), packet_bytes = flow->packet_bytes;
    s->flow = flow;
    s->epoch = epoch;
    s->generation = ++run->generation;
    s->size_bytes = most(flow->size_bytes, run->constants.least_frame);
    s->count = (s->size_bytes + packet_bytes - 1) / packet_bytes;
    s->last_bytes =
        least(packet_bytes, most((s->size_bytes - 1) % packet_bytes + 1, run->constants.least_frame));
    s->open = flow->initial;
    s->next = s->acked = s->recover = 0;
    s->draining = s->timeouts = 0;
    s->backoff = 1;
    s->is_sending = 1;
    s->held = s->first = s->is_limited = 0;
    s->debt_bytes = 0.0;
    s->at_ns = 0;
    s->timer++;
    s->deadline_ns = now_ns + flow->retransmit_after_ns;
    send_new(s);
    run->network.call(run->network.clock, s->deadline_ns, on_deadline, s, s->generation);
}

static void on_ack(sending *s, int64_t now_ns, int64_t missing_bytes, uint32_t drain, uint32_t resent) {
    int64_t acked, again = -1;
    if (missing_bytes <= s->last_bytes)
        acked = s->count - (missing_bytes > 0);
    else
        acked = missing_bytes > s->size_bytes ? -1 : (s->size_bytes - missing_bytes) / s->flow->packet_bytes;
    if (acked <= s->acked || acked > s->next) {
        if (drain && acked == s->acked && acked < s->next) s->draining = 1;
        return;
    }
    s->open = least(s->flow->window, s->open + acked - s->acked);
    if (s->stream) s->stream->open = least(s->stream->window, s->stream->open + acked - s->acked);
    s->acked = acked;
    s->backoff = 1;
    s->timeouts = 0;
    s->deadline_ns = now_ns + s->flow->retransmit_after_ns;
    if (acked < s->recover) {
        if (resent)
            again = acked;
        else
            s->recover = acked;
    }
    if (drain) s->draining = 1;
    if (s->draining && acked == s->next) {
        s->draining = 0;
        s->open = s->flow->initial;
    }
    if (again >= 0) send_again(s, again);
    send_new(s);
    if (s->acked == s->count) {
        s->is_sending = 0;
        leave_stream(s);
        if (s->told) s->flow->source->run->network.tell(s->flow->source->run->network.clock, s->told);
    }
}

/* -- the receiver ---------------------------------------------------------------------------------------------------
 * */

static part *ahead_from(const receiving *r, int64_t start) {
    uint32_t at;
    for (at = 0; at < r->aheads; at++)
        if (r->ahead[at].start == start) return &r->ahead[at];
    return NULL;
}

static void out_of_order(receiving *r, int64_t remaining, int64_t length_bytes, uint32_t resent) {
    int64_t start = r->size_bytes - remaining, end = start + length_bytes, done = r->size_bytes - r->missing_bytes;
    part *next;
    if (end <= done || ahead_from(r, start)) {
        r->flow->tally[1]++;
        return;
    }
    if (!resent) {
        if (remaining > r->furthest)
            r->flow->tally[2]++;
        else
            r->furthest = remaining;
    }
    if (start > done) {
        if (r->aheads == r->room) {
            uint32_t room = r->room ? 2 * r->room : 16;
            part *more = realloc(r->ahead, room * sizeof *more);
            if (!more) return;
            r->ahead = more;
            r->room = room;
        }
        r->ahead[r->aheads].start = start;
        r->ahead[r->aheads++].end = end;
        return;
    }
    done = end;
    while ((next = ahead_from(r, done))) {
        done = next->end;
        *next = r->ahead[--r->aheads];
    }
    r->missing_bytes = r->size_bytes - done;
}

static void acknowledge(receiving *r, uint32_t drain, uint32_t resent) {
    shim_host *host = r->flow->destination;
    const shim_constants *c = &host->run->constants;
    send_frame(
        host, r->flow, r->flow->ack_headers, c->ack_frame, c->ack | (drain ? c->drain : 0), r->epoch,
        resent ? c->marked_resent : 0, r->missing_bytes, r->is_ranked ? OF_ACKNOWLEDGEMENTS : 0);
}

static void on_segment(receiving *r, const segment *of, uint32_t drain) {
    uint32_t at_once = of->prompt || of->resent || drain || of->last;
    if (of->length_bytes > of->remaining || of->remaining > r->size_bytes) return;
    if (of->remaining == r->missing_bytes && !r->aheads) {
        r->missing_bytes -= of->length_bytes;
        if (!of->resent) r->furthest = of->remaining;
    } else {
        at_once = 1;
        out_of_order(r, of->remaining, of->length_bytes, of->resent);
    }
    r->unanswered++;
    if (at_once || of->remaining > r->prompt_to || r->unanswered >= r->every) {
        r->unanswered = 0;
        if (drain) r->prompt_to = r->missing_bytes - r->window_bytes;
        acknowledge(r, drain, of->resent);
    }
}

/* -- hosts ----------------------------------------------------------------------------------------------------------
 * */

/* Answer what another flow of the stream has without an answer: it may have to wait for this one, and its packets would
 * keep places of the window that both share. */
static void answer_other(receiving *r) {
    receiving *other = r->stream->unanswered;
    r->stream->unanswered = r;
    if (!other || other == r || !other->unanswered) return;
    other->unanswered = 0;
    acknowledge(other, 0, 0);
}

int shim_deliver(void *at, int64_t now_ns, const uint8_t *frame, uint32_t length) {
    shim_host *host = at;
    const shim_constants *c = &host->run->constants;
    const uint8_t *shim = frame + SHIM_AT;
    uint8_t flags, epoch;
    uint16_t job, marks;
    uint32_t number, key;
    if (host->closed) return 1;
    if (length < HEADER_BYTES || number_at(frame + 12, 2) != 0x0800 || frame[ETHERNET] != 0x45 || frame[23] != 17 ||
        number_at(frame + 36, 2) != c->port || (shim[0] & 0xf0) != c->version_bits)
        return host->receive ? host->receive(host->receiver, now_ns, frame, length) : 0;
    flags = shim[0];
    epoch = shim[1];
    job = number_at(shim + 2, 2);
    key = number_at(shim + 2, 4);
    marks = number_at(shim + 6, 2);
    number = number_at(shim + 8, 4);
    hear(host, epoch, job, shim + 12);
    if (flags & c->ack) {
        sending *s = find(&host->sending, key);
        if (s && s->is_sending && s->epoch == epoch)
            on_ack(s, now_ns, number, (flags & c->drain) != 0, (marks & c->marked_resent) != 0);
    } else {
        receiving *r = find(&host->receiving, key);
        segment of = {number, number_at(frame + ETHERNET + 2, 2) + ETHERNET, (flags & c->last) != 0,
                      (flags & c->alone) != 0, (marks & c->marked_prompt) != 0, (marks & c->marked_resent) != 0};
        if (!r || r->epoch != epoch) return 0;
        if (r->stream) answer_other(r);
        on_segment(r, &of, (flags & c->drain) != 0);
        if (!r->missing_bytes && r->told) {
            uint64_t told = r->told;
            r->told = 0;
            host->run->network.tell(host->run->network.clock, told);
        }
    }
    return 1;
}

int shim_expect(shim_flow *flow, uint8_t epoch, uint64_t told, uint32_t is_ranked, uint32_t shares) {
    shim_host *host = flow->destination;
    receiving *r = find_or_make(&host->receiving, key_of(flow), sizeof *r);
    if (!r) return 1;
    r->stream = NULL;
    if (shares) {
        r->stream = find_or_make(&host->arriving, stream_key_of(flow, flow->source), sizeof *r->stream);
        if (!r->stream) return 1;
    }
    r->is_ranked = is_ranked;
    r->flow = flow;
    r->epoch = epoch;
    r->size_bytes = most(flow->size_bytes, host->run->constants.least_frame);
    r->missing_bytes = r->prompt_to = r->size_bytes;
    r->furthest = r->size_bytes + 1;
    r->window_bytes = flow->window * flow->packet_bytes;
    r->every = flow->every;
    r->unanswered = r->aheads = 0;
    r->told = told;
    return 0;
}

int shim_send(shim_flow *flow, uint8_t epoch, uint64_t told, const shim_order *order) {
    sending *s = find_or_make(&flow->source->sending, key_of(flow), sizeof *s);
    if (!s) return 1;
    leave_stream(s);
    if (give_urgency(s, flow, epoch, order)) return 1;
    s->told = told;
    s->next = s->acked = 0;
    if (order && order->shares && !flow->is_paced && join_stream(s, flow)) return 1;
    start_sending(s, flow, epoch);
    return 0;
}

void shim_pace(const shim_flow *flow, uint8_t epoch, double rate_Bps) {
    sending *s = find(&flow->source->sending, key_of(flow));
    if (!s || !s->is_sending || s->epoch != epoch || !flow->is_paced) return;
    pay(s);
    s->is_limited = rate_Bps >= 0;
    s->rate_Bps = rate_Bps;
    go_on(s);
}

const shim_flow *shim_failed(const shim_run *run) {
    return run->failed;
}

shim_run *shim_new(const network_in_c *network, const shim_constants *constants, uint64_t told_of_failure) {
    shim_run *run = calloc(1, sizeof *run);
    if (!run) return NULL;
    run->network = *network;
    run->constants = *constants;
    run->told_of_failure = told_of_failure;
    return run;
}

shim_host *shim_add_host(shim_run *run, void *nic) {
    shim_host *host = calloc(1, sizeof *host);
    if (!host) return NULL;
    host->run = run;
    host->nic = nic;
    host->number = run->numbered++;
    host->next = run->hosts;
    return run->hosts = host;
}

void shim_pass_on(shim_host *host, int (*receive)(void *, int64_t, const uint8_t *, uint32_t), void *receiver) {
    host->receive = receive;
    host->receiver = receiver;
}

void shim_close(shim_host *host) {
    host->closed = 1;
}

static void *waiting_of(void *end) {
    return ((sending *)end)->waiting;
}

static void *ahead_of(void *end) {
    return ((receiving *)end)->ahead;
}

static void *flows_of(void *end) {
    return ((stream *)end)->flow;
}

/* Free a table, and of each end what it owns. */
static void free_table(table *of, void *(*owned_by)(void *)) {
    uint32_t at;
    for (at = 0; at < of->room; at++) {
        if (of->ends[at] && owned_by) free(owned_by(of->ends[at]));
        free(of->ends[at]);
    }
    free(of->ends);
    free(of->keys);
}

void shim_free(shim_run *run) {
    shim_host *host = run->hosts;
    while (host) {
        shim_host *following = host->next;
        free_table(&host->sending, waiting_of);
        free_table(&host->receiving, ahead_of);
        free_table(&host->streams, flows_of);
        free_table(&host->arriving, NULL);
        while (host->urgencies) {
            urgency *following_one = host->urgencies->next;
            free(host->urgencies);
            host->urgencies = following_one;
        }
        free_table(&host->sent, NULL);
        free_table(&host->ranks, NULL);
        free_table(&host->states, NULL);
        free(host->known);
        free(host);
        host = following;
    }
    free(run);
}
