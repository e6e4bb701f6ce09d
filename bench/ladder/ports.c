/* Stands in for tm.c: the same ports, which may serve ranked flows in another order, and count whom they serve while
   somebody more urgent waits. */

#define tm_enqueue enqueue_as_is
#define tm_dequeue dequeue_as_is
#include "queues.c"
#undef tm_enqueue
#undef tm_dequeue
#include "ladder.h"
#include "flows.c"

/* The difference from which one rank is above another. That is the first step of levels: nearer ones share a level. */
#define NEAR 0.001
enum { HOLDER_OF_FLOW = 3, MOST_HEADS = 1024 };

/* The first packet of a flow at a port. */
typedef struct {
    const ladder_flow *flow;
    ss_packet *packet, *previous; /* and the one before it in its queue */
    uint32_t queue;
    double rank;
} head;

/* Return the ranked flow that enqueueing has noted for a packet; NULL: it is of none. */
static ladder_flow *noted_flow(const ss_packet *packet) {
    uint64_t place = packet->data ? packet->holder[HOLDER_OF_FLOW] : 0;
    return place ? &ladder.flows[place - 1] : NULL;
}

/* Return the flow of a packet that waits, if it is ranked. */
static ladder_flow *ranked_flow(const ss_packet *packet) {
    ladder_flow *flow = noted_flow(packet);
    /* A packet of an earlier iteration has no rank any more. */
    return flow && flow->epoch == epoch_in(packet->data) ? flow : NULL;
}

static double rank_of(const ladder_flow *flow, const ss_packet *packet, int64_t now_ns) {
    return ladder_rank(flow, now_ns, left_in(packet->data));
}

static uint32_t level_behind(double behind) {
    uint32_t level = 0;
    while (level < LADDER_STEPS && behind > ladder.rung.steps[level]) level++;
    return level;
}

/* Return the flow of the highest rank of those that wait, other than one; its `flow` is NULL if there is none. */
static head most_urgent(const tm_port *port, const ladder_flow *other, int64_t now_ns) {
    head best = {NULL, NULL, NULL, 0, 0};
    uint32_t number;
    ladder.looks++;
    for (number = 0; number < port->queues; number++) {
        ss_packet *packet = port->queue[number].packets ? port->queue[number].first : NULL;
        for (; packet; packet = packet->next) {
            ladder_flow *flow = ranked_flow(packet);
            double rank;
            if (!flow || flow == other || flow->look == ladder.looks) continue;
            flow->look = ladder.looks;
            rank = rank_of(flow, packet, now_ns);
            if (best.flow && rank <= best.rank) continue;
            best.flow = flow;
            best.queue = number;
            best.rank = rank;
        }
    }
    return best;
}

#include "steps.c"

/* Return whether ports put flows in an order of their own. */
static int has_order(void) {
    return ladder.rung.order != ORDER_QUEUES && ladder.rung.order != ORDER_STEPS;
}

int tm_enqueue(tm_port *port, uint32_t number, ss_packet *packet, int64_t now_ns) {
    ladder_flow *flow = NULL;
    int taken;
    if (packet->data) {
        flow = flow_in(packet->data, packet->length_bytes);
        if (flow && (!flow->is_ranked || is_ack(packet->data))) flow = NULL;
        packet->holder[HOLDER_OF_FLOW] = flow ? 1 + (flow - ladder.flows) : 0;
    }
    if (flow && ladder.rung.order == ORDER_STEPS)
        number = queue_by_steps(port, flow, packet, now_ns);
    else if (flow && has_order())
        /* All that have an order wait in one queue, which bring_forward puts in order. */
        number = flow->highest;
    taken = enqueue_as_is(port, number, packet, now_ns);
    if (taken && flow && ladder.rung.order == ORDER_STEPS) count_waiting(port, flow, 1);
    return taken;
}

/* Return the value by which a flow's first packet goes before others. */
static double urgency_of(const head *first, double top) {
    switch (ladder.rung.order) {
    case ORDER_ARRIVAL:
        return rank_of(first->flow, first->packet, first->packet->holder[0]);
    case ORDER_LEVELS:
        return -(double)level_behind(top - first->rank);
    default:
        return first->rank;
    }
}

static void move_to_front(tm_queue *queue, ss_packet *packet, ss_packet *previous) {
    if (!previous) return;
    previous->next = packet->next;
    if (queue->last == packet) queue->last = previous;
    packet->next = queue->first;
    queue->first = packet;
}

/* Bring the packet of a queue that is to leave next to its front: one without a rank, such as an acknowledgement, or
   the first of the most urgent flow. */
static void bring_forward(tm_queue *queue, int64_t now_ns) {
    static head heads[MOST_HEADS];
    ss_packet *packet, *previous = NULL;
    const head *best = NULL;
    double top = 0, most = 0;
    uint32_t count = 0, i;
    ladder.looks++;
    for (packet = queue->first; packet; previous = packet, packet = packet->next) {
        ladder_flow *flow = ranked_flow(packet);
        head *first = &heads[count];
        if (!flow) {
            move_to_front(queue, packet, previous);
            return;
        }
        if (flow->look == ladder.looks || count == MOST_HEADS) continue;
        flow->look = ladder.looks;
        first->flow = flow;
        first->packet = packet;
        first->previous = previous;
        first->rank = rank_of(flow, packet, now_ns);
        if (!count || first->rank > top) top = first->rank;
        count++;
    }
    for (i = 0; i < count; i++) {
        double urgency = urgency_of(&heads[i], top);
        if (best && urgency <= most) continue;
        best = &heads[i];
        most = urgency;
    }
    if (best) move_to_front(queue, best->packet, best->previous);
}

/* Count a packet that leaves. */
static void count_leaving(const tm_port *port, const tm_leaving *leaving, int64_t now_ns) {
    const ss_packet *packet = leaving->packet;
    const ladder_flow *flow = ranked_flow(packet);
    uint32_t its_level, level = port->queue[leaving->queue].config.level;
    head best;
    if (!flow) return;
    ladder.counts.bytes += packet->length_bytes;
    best = most_urgent(port, flow, now_ns);
    if (!best.flow || best.rank - rank_of(flow, packet, now_ns) <= NEAR) return;
    its_level = port->queue[best.queue].config.level;
    if (its_level < level)
        ladder.counts.lower_bytes += packet->length_bytes;
    else if (its_level == level)
        ladder.counts.same_bytes += packet->length_bytes;
    else
        ladder.counts.share_bytes += packet->length_bytes;
}

void tm_dequeue(tm_port *port, int64_t now_ns, tm_leaving *leaving) {
    uint32_t number;
    if (has_order() && port->line.free_ns <= now_ns)
        for (number = 0; number < port->queues; number++)
            if (port->queue[number].packets > 1) bring_forward(&port->queue[number], now_ns);
    dequeue_as_is(port, now_ns, leaving);
    if (!leaving->packet) return;
    if (ladder.rung.order == ORDER_STEPS && noted_flow(leaving->packet))
        count_waiting(port, noted_flow(leaving->packet), -1);
    count_leaving(port, leaving, now_ns);
}
