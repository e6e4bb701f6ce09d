/* Rates of flows that keep their queues: a change spreads from port to port, as far as it changes rates.
 *
 * sharing.c fills a neighbourhood with all its flows, the least offer first. What a queue offers, for each packet of
 * window, therefore depends on lesser offers only: at its port, on those that other ports make to the flows there, and on
 * flows of higher levels. A flow takes the least offer on its path. Here each port keeps the offers of its queues. When
 * flows begin or end, their ports are looked at again, and then those where it matters that a flow now has another offer
 * from elsewhere, the first in that order first. When none is left, all offers are what filling would have made them: they
 * are the only ones that agree with each other at every port.
 */

/* The order of ports that are to be looked at: a higher level comes first, and in a level the least offer, which is less
 * than 1e15: no link carries a petabyte a second. */
static double due_at(int level, double offer) { return (QUEUES - 1 - level) * 1e15 + offer; }

/* Let a port be looked at again. Where there is room for all flows in any case, nothing can have changed. */
static void make_due(Engine *e, Port *port, double order) {
    if (order >= port->due || !(port->narrow || port->is_full)) return;
    ROOM(e->due, e->dues, e->dues_room);
    if (e->failed) return;
    port->due = order;
    int at = e->dues++;
    for (; at && order < e->due[(at - 1) / 2].order; at = (at - 1) / 2) e->due[at] = e->due[(at - 1) / 2];
    e->due[at] = (Due){order, port};
}

/* Return the port that is to be looked at first, or NULL. */
static Port *first_due(Engine *e) {
    while (e->dues) {
        Due first = e->due[0], moving = e->due[--e->dues];
        int at = 0;
        for (int child; (child = 2 * at + 1) < e->dues; at = child) {
            if (child + 1 < e->dues && e->due[child + 1].order < e->due[child].order) child++;
            if (moving.order <= e->due[child].order) break;
            e->due[at] = e->due[child];
        }
        e->due[at] = moving;
        if (first.port->due != first.order) continue; /* it came earlier, or was looked at since */
        first.port->due = NEVER;
        return first.port;
    }
    return 0;
}

static void alter(Engine *e, Flow *flow) {
    if (flow->is_altered) return;
    ROOM(e->altered, e->altered_count, e->altered_room);
    if (e->failed) return;
    flow->is_altered = 1;
    e->altered[e->altered_count++] = flow;
}

static Quote quote(double size, long first) { return (Quote){size, rounded_offer(size), first}; }

static int goes_first(const Quote *a, const Quote *b) {
    return a->rounded < b->rounded || (a->rounded == b->rounded && a->first < b->first);
}

static Visitor *visitor_at(const Engine *e, const Hop *hop) { return &e->port[hop->port].visitor[hop->at]; }

/* Find the least offer that a flow has, and note at each of its ports which is the least from elsewhere. */
static const Quote *compare_offers(Engine *e, Flow *flow) {
    static const Quote none = {NEVER, NEVER, 0};
    const Quote *least = &flow->alone, *second = &none;
    int tightest = -1;
    for (int h = 0; h < flow->hops; h++) {
        const Quote *offer = flow->hop[h].offer;
        if (goes_first(offer, least)) second = least, least = offer, tightest = h;
        else if (goes_first(offer, second)) second = offer;
    }
    for (int h = 0; h < flow->hops; h++)
        visitor_at(e, &flow->hop[h])->elsewhere = h == tightest ? second : least;
    flow->tightest = tightest;
    return least;
}

/* Note that an offer has changed that is not the least, as before. Return 0 if all offers must be compared. */
static int note_offer(Engine *e, Flow *flow, const Quote *before, const Quote *now) {
    if (flow->tightest < 0) return 1;
    Visitor *visitor = visitor_at(e, &flow->hop[flow->tightest]);
    if (visitor->elsewhere == now) return goes_first(now, before);
    if (goes_first(now, visitor->elsewhere)) visitor->elsewhere = now;
    return 1;
}

typedef struct { /* the queues of a level of a port while they are filled */
    const Visitor *visitor;
    int *waiting, count;         /* the flows that wait, by their numbers as visitors */
    int queue[QUEUES], queues;   /* the queues in which they wait */
    double units[QUEUES];        /* and their windows: whole numbers, so that none is left */
    long first[QUEUES];          /* where their offers stand among equal ones, or -1: that of whom has been served */
    double used;                 /* the rate of all flows of the port, with higher levels */
} Level;

static void serve(Port *port, Level *level, int queue, double units, double size) {
    double rate = size * units;
    level->used += rate;
    port->rate[queue] += rate;
    port->last[queue] = most_of(port->last[queue], size);
    level->units[queue] -= units;
    if (level->units[queue]) return;
    int k = 0;
    while (level->queue[k] != queue) k++;
    level->queue[k] = level->queue[--level->queues];
}

/* Return where the offer of a queue stands among equal ones. */
static long first_waiting(Level *level, int queue) {
    long first = level->first[queue];
    for (int i = 0; i < level->count && level->first[queue] < 0; i++) {
        const Visitor *flow = &level->visitor[level->waiting[i]];
        if (flow->queue == queue && (first < 0 || flow->first < first)) first = flow->first;
    }
    return level->first[queue] = first;
}

/* Return the queue that makes the least offer, and what it is. */
static int tightest_queue(Level *level, const double *room, Quote *least) {
    int tightest = level->queue[0];
    *least = (Quote){NEVER, NEVER, 0};
    for (int k = 0; k < level->queues; k++) {
        int q = level->queue[k];
        Quote made = quote(room[q] / level->units[q], 0);
        if (made.rounded > least->rounded) continue;
        if (made.rounded == least->rounded && first_waiting(level, q) > first_waiting(level, tightest)) continue;
        *least = made;
        tightest = q;
    }
    least->first = first_waiting(level, tightest);
    return tightest;
}

/* Serve the flows that have a lesser offer from elsewhere. Return whether there are any. */
static int serve_elsewhere(Port *port, Level *level, const Quote *least) {
    int left = 0, count = level->count;
    for (int i = 0; i < count; i++) {
        const Visitor *flow = &level->visitor[level->waiting[i]];
        if (!goes_first(flow->elsewhere, least)) {
            level->waiting[left++] = level->waiting[i];
            continue;
        }
        if (level->first[flow->queue] == flow->first) level->first[flow->queue] = -1;
        serve(port, level, flow->queue, flow->units, flow->elsewhere->size);
    }
    level->count = left;
    return left < count;
}

static void serve_queue(Port *port, Level *level, int queue, double size) {
    int left = 0;
    for (int i = 0; i < level->count; i++)
        if (level->visitor[level->waiting[i]].queue != queue) level->waiting[left++] = level->waiting[i];
    level->count = left;
    serve(port, level, queue, level->units[queue], size);
}

/* Find what the queues of a level offer the flows that wait there, the least first. */
static void offer_level(Port *port, Level *level) {
    int is_full = level->used >= port->capacity * (1 - TOLERANCE);
    while (level->count) {
        double room[QUEUES], spare = is_full ? 0 : most_of(0, port->capacity - level->used);
        Quote least;
        if (level->queues == 1) room[level->queue[0]] = spare;
        else set_rooms(level->queue, level->queues, spare, port->rate, port->weight, port->most, room);
        port->is_divided |= level->queues > 1;
        int tightest = tightest_queue(level, room, &least);
        if (serve_elsewhere(port, level, &least)) continue;
        port->offer[tightest] = least;
        port->holding |= 1 << tightest;
        port->held_until = due_at(port->level[tightest], least.size);
        serve_queue(port, level, tightest, least.size);
    }
}

static double rate_at(const Flow *flow, double offer) { return least_of(offer * flow->window, flow->able); }

/* Return whether the flows of a port would take more than all of it if each were alone on its path. */
static int fills(const Port *port) { return port->demand > (port->capacity - port->taken) * (1 + TOLERANCE); }

/* Return whether it may change what the queues of a port offer that one of them, or other traffic (-1), takes so much
 * more. What is served at lesser offers stays as it is. What a queue leaves that holds nobody up goes to those that are
 * served after its last flow; it and they still hold nobody up if none takes more than an even part of what is left. */
static int matters_at(const Port *port, int level, int queue, double lesser, double grown) {
    double left = port->capacity - port->taken, below = 0, later = 0, most = 0;
    int weights = 0;
    if (queue >= 0) {
        if (port->holding & 1 << queue) return 1;
        later = grown < 0 ? lesser : port->last[queue];
        weights = port->weight[queue];
        most = (port->rate[queue] + grown) / weights;
    }
    if (port->held_until >= due_at(level, later * (1 - TOLERANCE))) return 1;
    if (grown < 0) return 0;
    for (int k = 0; k < port->queues; k++) {
        int q = port->queue[k];
        if (q == queue) continue;
        if (port->level[q] < level) {
            below += port->rate[q];
        } else if (port->level[q] > level || port->last[q] < lesser * (1 - TOLERANCE)) {
            left -= port->rate[q];
        } else {
            weights += port->weight[q];
            if (port->last[q] >= later * (1 - TOLERANCE)) most = most_of(most, port->rate[q] / port->weight[q]);
        }
    }
    return port->limited || (below && port->is_divided) || most * weights > (left - below) * (1 - TOLERANCE);
}

/* Return whether offers differ by more than rounding. */
static int is_other(const Engine *e, double before, double now) {
    double tolerance = e->visits > MOST_VISITS ? TOLERANCE : SAME_OFFER;
    return now > before ? now - before > tolerance * now : before - now > tolerance * before;
}

/* Note that a flow has another offer, of a port or of none (NULL), and make its other ports due where it matters. */
static void take_offer(Engine *e, Flow *flow, const Quote *now, const Port *from) {
    Quote before = flow->offer;
    double lesser = least_of(now->size, before.size);
    int differs = is_other(e, before.size, now->size);
    if (!differs && now->first == before.first) return;
    double grown = (rate_at(flow, now->size) - rate_at(flow, before.size)) * flow->count;
    double order = due_at(flow->level, lesser);
    flow->offer = *now;
    if (differs) alter(e, flow);
    for (int h = 0; h < flow->hops; h++) {
        const Hop *hop = &flow->hop[h];
        Port *other = &e->port[hop->port];
        /* Which of equal offers goes first matters only between queues. */
        if (other == from || order >= other->due || !other->is_full || !(differs || other->is_divided)) continue;
        if (matters_at(other, flow->level, hop->queue, lesser, grown)) {
            make_due(e, other, order);
        } else {
            other->rate[hop->queue] += grown;
            other->last[hop->queue] = most_of(other->last[hop->queue], now->size);
        }
    }
}

/* Find what the queues of a port offer. Flows pass a port that has room for all of them as if it were not there. */
static void visit(Engine *e, Port *port) {
    int levels = 0, changed = 0, was_full = port->is_full;
    Quote before[QUEUES];
    ROOM(e->waiting, port->flows, e->waiting_room);
    if (e->failed) return;
    e->visits++;
    e->work += 1 + port->flows / 2; /* a flow here takes half as long as a hop where neighbourhoods are shared */
    port->is_full = fills(port);
    port->is_divided = port->queues = port->holding = 0;
    port->held_until = -1;
    if (!port->is_full && !was_full) return;
    for (int q = 0; q < QUEUES; q++) {
        before[q] = port->offer[q];
        port->offer[q] = (Quote){NEVER, NEVER, 0};
        port->rate[q] = port->last[q] = 0;
    }
    for (int i = 0; i < port->flows; i++) levels |= 1 << port->level[port->visitor[i].queue];
    Level level; /* its queues are emptied below: this is called often */
    level.visitor = port->visitor, level.waiting = e->waiting, level.used = port->taken;
    for (int number = QUEUES - 1; number >= 0 && port->is_full; number--) {
        if (!(levels & 1 << number)) continue;
        int in_use = 0;
        level.count = level.queues = 0;
        for (int i = 0; i < port->flows; i++) {
            const Visitor *visitor = &port->visitor[i];
            int q = visitor->queue;
            if (port->level[q] != number) continue;
            if (!(in_use & 1 << q)) {
                in_use |= 1 << q;
                level.units[q] = 0;
                level.queue[level.queues++] = port->queue[port->queues++] = q;
                level.first[q] = visitor->first;
            }
            level.first[q] = visitor->first < level.first[q] ? visitor->first : level.first[q];
            level.units[q] += visitor->units;
            level.waiting[level.count++] = i;
        }
        offer_level(port, &level);
    }
    for (int q = 0; q < QUEUES; q++) {
        int differs = port->offer[q].first != before[q].first || is_other(e, before[q].size, port->offer[q].size);
        if (differs) changed |= 1 << q;
        else port->offer[q] = before[q];
    }
    for (int i = 0; i < port->flows && changed; i++) {
        const Visitor *visitor = &port->visitor[i];
        const Quote *old = &before[visitor->queue], *now = &port->offer[visitor->queue];
        if (!(changed & 1 << visitor->queue)) continue;
        int was_least = goes_first(old, visitor->elsewhere), is_least = goes_first(now, visitor->elsewhere);
        if (!was_least && !is_least && note_offer(e, port->flow[i], old, now)) continue;
        if (!(was_least && is_least)) now = compare_offers(e, port->flow[i]);
        take_offer(e, port->flow[i], now, port);
    }
}

/* Look at ports until none is due. */
static void settle(Engine *e) {
    e->visits = 0;
    for (Port *port; (port = first_due(e)) && !e->failed;) visit(e, port);
}

/* Note how fast a flow can be at most. Return whether that has changed. */
static int limit_flow(Engine *e, Flow *flow) {
    double able = NEVER;
    for (int h = 0; h < flow->hops; h++) {
        const Port *port = &e->port[flow->hop[h].port];
        able = least_of(able, port->capacity - port->taken);
    }
    double change = (able - flow->able) * flow->count;
    flow->able = able;
    flow->alone = quote(able / flow->window, flow->sequence * MOST_HOPS);
    if (!change) return 0;
    for (int h = 0; h < flow->hops; h++) {
        Port *port = &e->port[flow->hop[h].port];
        port->demand += change;
        if (fills(port) != port->is_full) make_due(e, port, due_at(flow->level, flow->offer.size));
    }
    return 1;
}

/* Let all ports of a flow be looked at that is new, or has another window. */
static void renew(Engine *e, Flow *flow) {
    limit_flow(e, flow);
    for (int h = 0; h < flow->hops; h++) {
        const Hop *hop = &flow->hop[h];
        Visitor *visitor = visitor_at(e, hop);
        visitor->units = (double)flow->window * flow->count;
        visitor->first = flow->sequence * MOST_HOPS + h + 1;
        visitor->queue = hop->queue;
    }
    flow->offer = *compare_offers(e, flow);
    for (int h = 0; h < flow->hops; h++) {
        Port *port = &e->port[flow->hop[h].port];
        make_due(e, port, due_at(flow->level, flow->offer.size));
    }
    alter(e, flow);
}

/* Let a port be looked at if it matters that acknowledgements take so much more of it. */
static void renew_port(Engine *e, Port *port, double grown) {
    double order = NEVER;
    for (int i = 0; i < port->flows; i++) {
        Flow *flow = port->flow[i];
        if (limit_flow(e, flow)) take_offer(e, flow, compare_offers(e, flow), 0);
        order = least_of(order, due_at(flow->level, flow->offer.size));
    }
    int matters = port->is_full && matters_at(port, port->level[port->queue[0]], -1, 0, grown);
    if (matters || fills(port) != port->is_full) make_due(e, port, order);
}

/* Let a port be looked at if it matters that a flow has ended. */
static void leave_port(Engine *e, Port *port, const Flow *flow, int queue) {
    double rate = rate_at(flow, flow->offer.size) * flow->count;
    port->demand = port->flows ? port->demand - flow->able * flow->count : 0;
    port->rate[queue] -= rate;
    int matters = matters_at(port, flow->level, queue, 0, -rate);
    if (matters || fills(port) != port->is_full) make_due(e, port, due_at(flow->level, flow->offer.size));
}

/* Reckon what acknowledgements take of the ports of a flow. Return whether it makes a difference. */
static int renew_around(Engine *e, Flow *flow) {
    int matters = 0;
    for (int h = 0; h < flow->hops; h++) {
        Port *port = &e->port[flow->hop[h].port];
        double before = port->taken;
        if (!reckon(e, port)) continue;
        matters = 1;
        renew_port(e, port, port->taken - before);
    }
    return matters;
}

/* Set the rates of flows that have other offers, and count them in the loads of ports. */
static void load_ports(Engine *e) {
    for (int i = 0; i < e->altered_count; i++) {
        Flow *flow = e->altered[i];
        flow->planned = rate_at(flow, flow->offer.size);
        load(e, flow);
    }
}
