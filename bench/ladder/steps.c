/* The queues of a Tofino, as p4src/tna has them: by how much a flow is behind the most urgent one at the port
   (rankings/deadline.p4, control Top), and when it may change its queue (control/promotion.p4).

   A plan with relative ranks gives queues no minimum rate, so that no hold time ends there, and a flow moves with a
   packet that is alone, or with the first one of an iteration. */

#define NO_RANK (-0x40000000)

/* Return what is known of a flow at a port; NULL: it passes too many ports, or memory is short. */
static ladder_hop *hop_of(const ladder_flow *flow, const tm_port *port) {
    ladder_hop *hops = &ladder.hops[MOST_HOPS * (flow - ladder.flows)];
    uint32_t i, top;
    for (i = 0; i < MOST_HOPS && hops[i].port; i++)
        if (hops[i].port == port) return &hops[i];
    if (i == MOST_HOPS) return NULL;
    for (top = 0; top < ladder.top_count && ladder.tops[top].port != port; top++) continue;
    if (top == ladder.top_room) {
        uint32_t room = top ? 2 * top : 64;
        ladder_top *more = realloc(ladder.tops, room * sizeof *more);
        if (!more) return NULL;
        ladder.tops = more;
        ladder.top_room = room;
    }
    if (top == ladder.top_count) {
        ladder.tops[top].port = port;
        ladder.tops[top].rank = NO_RANK;
        ladder.top_count++;
    }
    hops[i].port = port;
    hops[i].top = top;
    return &hops[i];
}

/* Return a rank in whole parts of the unit, rounded down. */
static int64_t parts_of(double rank) {
    int64_t parts = (int64_t)(rank * RANK_UNIT);
    return parts > rank * RANK_UNIT ? parts - 1 : parts;
}

/* Return by how much a packet is behind the most urgent flow, in units. The register of a port holds whole parts. */
static double behind_top(const tm_port *port, const ladder_flow *flow, ladder_top *top, double rank, int64_t now_ns) {
    int64_t parts = parts_of(rank), behind;
    head best;
    if (!ladder.rung.top_is_kept) {
        best = most_urgent(port, flow, now_ns);
        return best.flow && best.rank > rank ? best.rank - rank : 0;
    }
    if (parts >= top->rank) {
        top->rank = parts;
        return 0;
    }
    behind = top->rank - parts;
    top->rank -= TOP_DECAY;
    return (double)behind / RANK_UNIT;
}

/* Return the queue of a packet that enters a port. */
static uint32_t queue_by_steps(const tm_port *port, ladder_flow *flow, const ss_packet *packet, int64_t now_ns) {
    const uint8_t *data = packet->data;
    ladder_hop *hop = hop_of(flow, port);
    uint32_t level, wanted, is_first, is_alone = (data[SHIM_AT] & FLAG_ALONE) != 0;
    int64_t left = left_in(data);
    double behind;
    if (!hop) return flow->highest;
    behind = behind_top(port, flow, &ladder.tops[hop->top], rank_of(flow, packet, now_ns), now_ns);
    level = level_behind(behind);
    wanted = flow->highest < flow->lowest + level ? flow->lowest : flow->highest - level;
    is_first = !hop->has_epoch || hop->epoch != epoch_in(data);
    hop->has_epoch = 1;
    hop->epoch = epoch_in(data);
    if (is_first || (ladder.rung.moves_alone ? is_alone : !hop->waiting)) hop->queue = wanted;
    /* From this packet on the flow is to drain, until its sender has let it. */
    if (hop->queue != wanted && left > flow->drains_from) flow->drains_from = left;
    return hop->queue;
}

static void count_waiting(const tm_port *port, const ladder_flow *flow, int more) {
    ladder_hop *hop = hop_of(flow, port);
    if (hop) hop->waiting += more;
}
