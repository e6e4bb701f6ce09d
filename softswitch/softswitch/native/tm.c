/* The traffic manager of one egress port. softswitch/tm.py says whom it serves, and why.
 *
 * Times and rates are 64-bit: a rate is below 2**62, a packet below 2**18 bytes. Virtual time is 128-bit, because it
 * counts bytes in steps of 2**-32: its products are those of a wide number and one below 2**16, which tcc computes,
 * too. A packet's holder has the time of enqueueing and the depth that it met.
 */

#include "types.h"
#include "abi.h"
#include "tm.h"

#define NANOBITS_PER_BYTE 8000000000ll
/* A queue that waits for others keeps the credit it could not use, up to so many bytes. An idle queue keeps none, so
   after a pause it is owed one packet. A shaped queue may have to wait for one jumbo frame on the line, a guaranteed
   one also for a frame of each other guaranteed queue. A smaller limit would cost rate; a larger one would let a
   starved queue burst above it. */
#define SHAPER_CREDIT_BYTES 9216
#define GUARANTEE_CREDIT_BYTES (8 * 9216)
/* The largest packet that may pass a port without being measured against its queue's depth. */
#define LONGEST_PACKET_BYTES (1 << 16)

/* -- numbers of 128 bits --------------------------------------------------------------------------------------------
 * */

static int wide_below(tm_wide a, tm_wide b) {
    return a.high < b.high || (a.high == b.high && a.low < b.low);
}

static tm_wide wide_sum(tm_wide a, tm_wide b) {
    tm_wide sum = {a.high + b.high, a.low + b.low};
    sum.high += sum.low < a.low;
    return sum;
}

static tm_wide wide_difference(tm_wide a, tm_wide b) {
    tm_wide difference = {a.high - b.high - (a.low < b.low), a.low - b.low};
    return difference;
}

static tm_wide wide_product(tm_wide a, uint32_t factor) {
    uint64_t lower = (a.low & 0xffffffff) * factor;
    uint64_t upper = (a.low >> 32) * factor + (lower >> 32);
    tm_wide product = {a.high * factor + (upper >> 32), upper << 32 | (lower & 0xffffffff)};
    return product;
}

static tm_wide wide_quotient(tm_wide a, uint32_t divisor) {
    tm_wide quotient = {a.high / divisor, 0};
    uint64_t upper = a.high % divisor << 32 | a.low >> 32;
    uint64_t lower = upper % divisor << 32 | (a.low & 0xffffffff);
    quotient.low = upper / divisor << 32 | lower / divisor;
    return quotient;
}

/* -- rates ----------------------------------------------------------------------------------------------------------
 * */

/* A pacer keeps a rate exactly: the instant from which the next byte may go, advanced by every byte that goes. It is
   the virtual scheduling form of the generic cell rate algorithm (ITU-T I.371, annex A). The instant is rational.
   free_ns is that instant rounded up, and the rounding is carried to the next packet. Back-to-back packets together
   take exactly their bits over the rate; a lone packet of L bytes takes ceil(8e9 L / rate) ns. */

static int64_t quotient_up(int64_t value, int64_t divisor) {
    return value > 0 ? (value - 1) / divisor + 1 : -(-value / divisor);
}

/* Send when the rate allows, not before start_ns; return when the bytes are through. */
static int64_t pacer_charge(tm_pacer *pacer, int64_t length_bytes, int64_t start_ns) {
    int64_t need, duration_ns;
    if (pacer->free_ns < start_ns) {
        pacer->free_ns = start_ns;
        pacer->early = 0;
    }
    need = length_bytes * NANOBITS_PER_BYTE - pacer->early;
    duration_ns = quotient_up(need, pacer->rate_bps);
    pacer->early = duration_ns * pacer->rate_bps - need;
    return pacer->free_ns += duration_ns;
}

/* Give up the credit of the time before now_ns. */
static void pacer_forfeit(tm_pacer *pacer, int64_t now_ns) {
    if (pacer->rate_bps && pacer->free_ns < now_ns) {
        pacer->free_ns = now_ns;
        pacer->early = 0;
    }
}

/* Go on at another rate. Bits charged and still due are due at the new rate; credit is forfeited. */
static void pacer_repace(tm_pacer *pacer, int64_t rate_bps, int64_t now_ns) {
    int64_t due = 0, duration_ns;
    if (rate_bps == pacer->rate_bps) return;
    if (pacer->rate_bps && pacer->free_ns > now_ns) due = (pacer->free_ns - now_ns) * pacer->rate_bps - pacer->early;
    if (due < 0 || !rate_bps) due = 0;
    duration_ns = rate_bps ? quotient_up(due, rate_bps) : 0;
    pacer->rate_bps = rate_bps;
    pacer->free_ns = now_ns + duration_ns;
    pacer->early = duration_ns * rate_bps - due;
}

/* -- lists of queues ------------------------------------------------------------------------------------------------
 * */

static void list_append(tm_list *list, uint32_t queue) {
    list->queue[list->count++] = queue;
}

static uint32_t list_place(const tm_list *list, uint32_t queue) {
    uint32_t at = 0;
    while (at < list->count && list->queue[at] != queue) at++;
    return at;
}

static void list_remove(tm_list *list, uint32_t queue) {
    uint32_t at = list_place(list, queue);
    if (at == list->count) return;
    list->count--;
    for (; at < list->count; at++) list->queue[at] = list->queue[at + 1];
}

/* -- levels ---------------------------------------------------------------------------------------------------------
 * */

/* A queue's start is the service that it has had, in bytes per weight. A level's virtual time is the weighted mean of
   the contenders' starts (moment over weights), where all would be under ideal sharing. A queue at or behind it is
   eligible, and the eligible queue with the earliest finish goes. Because it is a mean, some queue is always eligible.
   Because it is computed from the queues' present state, any of them may change at any time. Steps of 2**-32 bytes
   cost a share less than 1e-8 by rounding. */

static void set_finish(tm_queue *queue) {
    tm_wide share = {0, ((uint64_t)queue->first->length_bytes << 32) / queue->config.weight};
    queue->finish = wide_sum(queue->start, share);
}

static void join(tm_port *port, uint32_t number) {
    tm_queue *queue = &port->queue[number];
    tm_level *level = &port->level[queue->config.level];
    tm_wide virtual = level->contenders.count ? wide_quotient(level->moment, level->weights) : level->latest;
    /* A queue that had less than its share before it paused has lost the rest. One that had more still waits. */
    if (wide_below(queue->start, virtual)) queue->start = virtual;
    set_finish(queue);
    queue->contending = 1;
    list_append(&level->contenders, number);
    level->weights += queue->config.weight;
    level->moment = wide_sum(level->moment, wide_product(queue->start, queue->config.weight));
    port->busy_levels |= 1u << queue->config.level;
}

static void leave(tm_port *port, uint32_t number) {
    tm_queue *queue = &port->queue[number];
    tm_level *level = &port->level[queue->config.level];
    queue->contending = 0;
    list_remove(&level->contenders, number);
    level->weights -= queue->config.weight;
    level->moment = wide_difference(level->moment, wide_product(queue->start, queue->config.weight));
    if (!level->contenders.count) port->busy_levels ^= 1u << queue->config.level;
}

static uint32_t next_of(const tm_port *port, const tm_level *level) {
    uint32_t chosen = level->contenders.queue[0], at;
    int found = 0;
    if (level->contenders.count == 1) return chosen;
    for (at = 0; at < level->contenders.count; at++) {
        const tm_queue *queue = &port->queue[level->contenders.queue[at]];
        if (found && !wide_below(queue->finish, port->queue[chosen].finish)) continue;
        if (wide_below(level->moment, wide_product(queue->start, level->weights))) continue;
        chosen = level->contenders.queue[at];
        found = 1;
    }
    return chosen;
}

/* Let a queue with packets enter its level, or wait for its shaper or its configuration. */
static void admit(tm_port *port, uint32_t number, int64_t now_ns) {
    const tm_queue *queue = &port->queue[number];
    if (!queue->config.scheduled) return;
    if (queue->shaper.rate_bps && queue->shaper.free_ns > now_ns)
        list_append(&port->held, number);
    else
        join(port, number);
}

static void release(tm_port *port, int64_t now_ns) {
    tm_list waiting = port->held;
    uint32_t at;
    port->held.count = 0;
    for (at = 0; at < waiting.count; at++) admit(port, waiting.queue[at], now_ns);
}

/* Return the queue to which its minimum rate owes a packet, moved to the end of its level; TM_QUEUES: none. */
static uint32_t owed(tm_port *port, int64_t now_ns) {
    tm_list *list = &port->guaranteed;
    uint32_t at;
    for (at = 0; at < list->count; at++) {
        uint32_t number = list->queue[at], end = at;
        const tm_queue *queue = &port->queue[number];
        if (!queue->contending || queue->guarantee.free_ns > now_ns) continue;
        while (end + 1 < list->count &&
               port->queue[list->queue[end + 1]].config.guaranteed_level == queue->config.guaranteed_level) {
            list->queue[end] = list->queue[end + 1];
            end++;
        }
        list->queue[end] = number;
        return number;
    }
    return TM_QUEUES;
}

/* -- configuration --------------------------------------------------------------------------------------------------
 * */

static void adopt(tm_queue *queue, const tm_config *config, int64_t now_ns) {
    /* Levels have unrelated virtual times. */
    if (config->level != queue->config.level) queue->start.high = queue->start.low = 0;
    queue->config = *config;
    pacer_repace(&queue->guarantee, config->min_rate_bps, now_ns);
    pacer_repace(&queue->shaper, config->max_rate_bps, now_ns);
    if (config->min_rate_bps)
        queue->guarantee_credit_ns = GUARANTEE_CREDIT_BYTES * NANOBITS_PER_BYTE / config->min_rate_bps;
    if (config->max_rate_bps)
        queue->shaper_credit_ns = SHAPER_CREDIT_BYTES * NANOBITS_PER_BYTE / config->max_rate_bps;
}

/* Look whether a packet may pass without a trace. */
static void see_through(tm_port *port) {
    uint32_t number;
    port->is_transparent = !port->line.rate_bps;
    for (number = 0; number < port->queues; number++) {
        const tm_config *config = &port->queue[number].config;
        if (config->min_rate_bps || config->max_rate_bps || !config->scheduled ||
            config->depth_bytes < LONGEST_PACKET_BYTES)
            port->is_transparent = 0;
    }
}

/* Put queues with minimum rates in order, and look through. */
static void reconsider(tm_port *port) {
    uint32_t number, level;
    port->guaranteed.count = 0;
    for (level = TM_LEVELS; level--;)
        for (number = 0; number < port->queues; number++)
            if (port->queue[number].guarantee.rate_bps && port->queue[number].config.guaranteed_level == level)
                list_append(&port->guaranteed, number);
    see_through(port);
}

tm_port *tm_new(int64_t rate_bps, uint32_t queues, const tm_config *configs) {
    tm_port *port = calloc(1, sizeof *port);
    uint32_t number;
    if (!port) return NULL;
    port->line.rate_bps = rate_bps;
    port->queues = queues;
    for (number = 0; number < queues; number++) adopt(&port->queue[number], &configs[number], 0);
    reconsider(port);
    return port;
}

void tm_free(tm_port *port) {
    free(port);
}

void tm_set_rate(tm_port *port, int64_t rate_bps, int64_t now_ns) {
    pacer_repace(&port->line, rate_bps, now_ns);
    see_through(port);
}

void tm_configure(tm_port *port, uint32_t number, const tm_config *config, int64_t now_ns) {
    tm_queue *queue = &port->queue[number];
    if (queue->contending)
        leave(port, number);
    else
        list_remove(&port->held, number);
    adopt(queue, config, now_ns);
    reconsider(port);
    if (queue->packets) admit(port, number, now_ns);
}

void tm_set_queues(tm_port *port, uint32_t count, const tm_config *config) {
    uint32_t number;
    for (number = port->queues; number < count; number++) {
        memset(&port->queue[number], 0, sizeof port->queue[number]);
        adopt(&port->queue[number], config, 0);
    }
    port->queues = count;
    reconsider(port);
}

/* -- packets --------------------------------------------------------------------------------------------------------
 * */

int tm_enqueue(tm_port *port, uint32_t number, ss_packet *packet, int64_t now_ns) {
    tm_queue *queue = &port->queue[number];
    int64_t waiting;
    if (number >= port->queues) {
        port->unknown_queue_packets++;
        return 0;
    }
    waiting = queue->bytes + packet->length_bytes;
    if (waiting > queue->config.depth_bytes) {
        queue->dropped_packets++;
        queue->dropped_bytes += packet->length_bytes;
        return 0;
    }
    packet->next = NULL;
    packet->holder[0] = now_ns;
    packet->holder[1] = queue->packets;
    if (queue->packets)
        queue->last->next = packet;
    else
        queue->first = packet;
    queue->last = packet;
    queue->bytes = waiting;
    queue->enqueued_packets++;
    queue->enqueued_bytes += packet->length_bytes;
    if (waiting > queue->peak_bytes) queue->peak_bytes = waiting;
    port->packets++;
    if (!queue->packets++) {
        pacer_forfeit(&queue->guarantee, now_ns);
        pacer_forfeit(&queue->shaper, now_ns);
        admit(port, number, now_ns);
    }
    return 1;
}

void tm_dequeue(tm_port *port, int64_t now_ns, tm_leaving *leaving) {
    uint32_t number, top = TM_LEVELS - 1;
    int held = 0;
    tm_queue *queue;
    ss_packet *packet;
    leaving->packet = NULL;
    if (port->line.rate_bps && port->line.free_ns > now_ns) return;
    if (port->held.count) release(port, now_ns);
    if (!port->busy_levels) return;
    number = owed(port, now_ns);
    leaving->guaranteed = number != TM_QUEUES;
    if (!leaving->guaranteed) {
        tm_level *level;
        while (!(port->busy_levels >> top)) top--;
        level = &port->level[top];
        number = next_of(port, level);
        queue = &port->queue[number];
        level->moment = wide_sum(
            level->moment, wide_product(wide_difference(queue->finish, queue->start), queue->config.weight));
        queue->start = queue->finish;
        if (wide_below(level->latest, queue->start)) level->latest = queue->start;
    }
    queue = &port->queue[number];
    packet = queue->first;
    queue->first = packet->next;
    packet->next = NULL;
    queue->packets--;
    port->packets--;
    queue->bytes -= packet->length_bytes;
    queue->dequeued_packets++;
    queue->dequeued_bytes += packet->length_bytes;
    if (port->line.rate_bps) pacer_charge(&port->line, packet->length_bytes, now_ns);
    if (leaving->guaranteed)
        pacer_charge(&queue->guarantee, packet->length_bytes, now_ns - queue->guarantee_credit_ns);
    if (queue->shaper.rate_bps)
        held = pacer_charge(&queue->shaper, packet->length_bytes, now_ns - queue->shaper_credit_ns) > now_ns;
    if (queue->packets && !held) {
        set_finish(queue);
    } else {
        leave(port, number);
        if (queue->packets) list_append(&port->held, number);
    }
    leaving->packet = packet;
    leaving->enqueued_ns = packet->holder[0];
    leaving->queue = number;
    leaving->enq_qdepth = packet->holder[1];
    leaving->deq_qdepth = queue->packets;
}

int64_t tm_next_ns(const tm_port *port, int64_t now_ns) {
    int64_t eligible_ns = now_ns;
    uint32_t at;
    if (!port->busy_levels) {
        if (!port->held.count) return -1;
        eligible_ns = port->queue[port->held.queue[0]].shaper.free_ns;
        for (at = 1; at < port->held.count; at++) {
            int64_t free_ns = port->queue[port->held.queue[at]].shaper.free_ns;
            if (free_ns < eligible_ns) eligible_ns = free_ns;
        }
        if (eligible_ns < now_ns) eligible_ns = now_ns;
    }
    return port->line.rate_bps && port->line.free_ns > eligible_ns ? port->line.free_ns : eligible_ns;
}

void tm_correct_line(tm_port *port, int64_t extra_bytes) {
    if (port->line.rate_bps) pacer_charge(&port->line, extra_bytes, port->line.free_ns);
}

ss_packet *tm_clear(tm_port *port) {
    ss_packet *cleared = NULL;
    uint32_t number;
    for (number = port->queues; number--;) {
        tm_queue *queue = &port->queue[number];
        if (queue->contending) leave(port, number);
        if (!queue->packets) continue;
        queue->dropped_packets += queue->packets;
        queue->dropped_bytes += queue->bytes;
        queue->last->next = cleared;
        cleared = queue->first;
        queue->packets = 0;
        queue->bytes = 0;
    }
    port->held.count = 0;
    port->packets = 0;
    return cleared;
}
