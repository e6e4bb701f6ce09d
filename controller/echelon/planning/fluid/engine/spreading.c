/* Rates of flows that keep their queues: a change spreads from port to port, as far as it changes rates.
 *
 * sharing.c fills a neighbourhood with all its flows, the least offer first. What a queue offers, for each packet of
 * window, therefore depends on lesser offers only: at its port, on those that other ports make to the flows there, and on
 * flows of higher levels. A flow takes the least offer on its path. Here each port keeps the offers of its queues. When
 * flows begin or end, their ports are looked at again, and then those where a flow now has another offer from elsewhere,
 * the first in that order first. When none is left, all offers are what filling would have made them: they are the only
 * ones that agree with each other at every port.
 */

/* The order of ports that are to be looked at: a higher level comes first, and in a level the least offer, which is less
 * than 1e15: no link carries a petabyte a second. */
static double due_at(const Flow *flow, double offer) { return (QUEUES - 1 - flow->level) * 1e15 + offer; }

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

static int goes_first(Quote a, Quote b) {
    double size = rounded_offer(a.size), other = rounded_offer(b.size);
    return size < other || (size == other && a.first < b.first);
}

static Quote offer_elsewhere(const Engine *e, const Flow *flow, const Port *port) {
    Quote least = {flow->able / flow->window, flow->sequence * MOST_HOPS};
    for (int h = 0; h < flow->hops; h++) {
        const Port *other = &e->port[flow->hop[h].port];
        if (other != port && goes_first(other->offer[flow->hop[h].queue], least)) least = other->offer[flow->hop[h].queue];
    }
    return least;
}

typedef struct { /* the queues of a level of a port while they are filled */
    Visitor *waiting;
    int count;                           /* of flows that wait */
    double units[QUEUES], has[QUEUES];   /* the windows that wait (whole numbers, so that none is left), and the rates */
    double used;                         /* the rate of all flows of the port, with higher levels */
} Level;

/* Take out a flow that waits, with a rate for each packet of window. */
static void serve(Level *level, const Visitor *flow, double size) {
    double rate = size * flow->units;
    level->units[flow->queue] -= flow->units;
    level->has[flow->queue] += rate;
    level->used += rate;
}

/* Serve the flows that have a lesser offer from elsewhere. Return whether there are any. */
static int serve_elsewhere(Level *level, Quote least) {
    int left = 0, count = level->count;
    for (int i = 0; i < count; i++) {
        if (goes_first(level->waiting[i].elsewhere, least)) serve(level, &level->waiting[i], level->waiting[i].elsewhere.size);
        else level->waiting[left++] = level->waiting[i];
    }
    level->count = left;
    return left < count;
}

static void serve_queue(Level *level, int queue, double size) {
    int left = 0, count = level->count;
    for (int i = 0; i < count; i++) {
        if (level->waiting[i].queue == queue) serve(level, &level->waiting[i], size);
        else level->waiting[left++] = level->waiting[i];
    }
    level->count = left;
}

/* Find what the queues of a level offer the flows that wait there, the least first. */
static void offer_level(Port *port, Level *level, Quote *offer) {
    int is_full = level->used >= port->capacity * (1 - TOLERANCE);
    while (level->count) {
        double room[QUEUES], spare = is_full ? 0 : most_of(0, port->capacity - level->used);
        int served[QUEUES], queues = 0, tightest = -1;
        long first[QUEUES];
        Quote least = {NEVER, 0};
        for (int q = 0; q < QUEUES; q++) {
            first[q] = -1;
            if (level->units[q] > 0) served[queues++] = q;
        }
        if (queues == 1) room[served[0]] = spare;
        else set_rooms(served, queues, spare, level->has, port->weight, port->most, room);
        port->is_divided |= queues > 1;
        for (int i = 0; i < level->count; i++) {
            const Visitor *flow = &level->waiting[i];
            if (first[flow->queue] < 0 || flow->first < first[flow->queue]) first[flow->queue] = flow->first;
        }
        for (int k = 0; k < queues; k++) {
            Quote made = {room[served[k]] / level->units[served[k]], first[served[k]]};
            if (goes_first(made, least)) least = made, tightest = served[k];
        }
        if (serve_elsewhere(level, least)) continue;
        offer[tightest] = least;
        serve_queue(level, tightest, least.size);
    }
}

static double rate_at(const Flow *flow, double offer) { return least_of(offer * flow->window, flow->able); }

/* Note that the offers of a port have changed, and make ports due where it matters. */
static void pass_on(Engine *e, Port *port, const Quote *offer) {
    double tolerance = e->visits > MOST_VISITS ? TOLERANCE : SAME_OFFER;
    for (int q = 0; q < QUEUES; q++) port->offer[q] = offer[q];
    for (int i = 0; i < port->flows; i++) {
        Flow *flow = port->flow[i];
        Quote now = offer[e->visitor[i].queue], before = flow->offer;
        if (goes_first(e->visitor[i].elsewhere, now)) now = e->visitor[i].elsewhere;
        double larger = most_of(now.size, before.size), lesser = least_of(now.size, before.size);
        int is_other = larger - lesser > tolerance * larger;
        if (!is_other && now.first == before.first) continue;
        double grown = (rate_at(flow, now.size) - rate_at(flow, before.size)) * flow->count;
        flow->offer = now;
        if (is_other) alter(e, flow);
        for (int h = 0; h < flow->hops; h++) {
            Port *other = &e->port[flow->hop[h].port];
            /* Which of equal offers goes first matters only between queues. */
            if (other == port || !other->is_full || !(is_other || other->is_divided)) continue;
            /* A port that holds nobody up does not do so as long as something is left of it. */
            if (other->spare > 0) other->spare -= grown;
            if (other->spare > TOLERANCE * other->capacity) continue;
            other->spare = 0;
            make_due(e, other, due_at(flow, lesser));
        }
    }
}

/* Find what the queues of a port offer. Flows pass a port that has room for all of them as if it were not there. */
static void visit(Engine *e, Port *port) {
    Quote offer[QUEUES];
    double demand = 0, room = port->capacity - port->taken;
    int levels = 0, was_full = port->is_full;
    ROOM(e->visitor, port->flows, e->visitors_room);
    ROOM(e->waiting, port->flows, e->waiting_room);
    if (e->failed) return;
    e->visits++;
    e->work += 1 + port->flows / 2; /* a flow here takes half as long as a hop where neighbourhoods are shared */
    for (int q = 0; q < QUEUES; q++) offer[q] = (Quote){NEVER, 0};
    for (int i = 0; i < port->flows; i++) demand += port->flow[i]->able * port->flow[i]->count;
    port->is_full = demand > room * (1 + TOLERANCE);
    port->is_divided = 0;
    port->spare = 0;
    if (!port->is_full && !was_full) return;
    for (int i = 0; i < port->flows; i++) {
        Flow *flow = port->flow[i];
        int h = 0;
        while (&e->port[flow->hop[h].port] != port) h++;
        double units = (double)flow->window * flow->count;
        Quote elsewhere = offer_elsewhere(e, flow, port);
        e->visitor[i] = (Visitor){elsewhere, units, flow->sequence * MOST_HOPS + h + 1, flow->hop[h].queue};
        levels |= 1 << flow->level;
    }
    Level level; /* its queues are emptied below: this is called often */
    level.waiting = e->waiting;
    level.used = port->taken;
    for (int number = QUEUES - 1; number >= 0 && port->is_full; number--) {
        if (!(levels & 1 << number)) continue;
        level.count = 0;
        for (int q = 0; q < QUEUES; q++) level.units[q] = level.has[q] = 0;
        for (int i = 0; i < port->flows; i++) {
            if (port->flow[i]->level != number) continue;
            level.units[e->visitor[i].queue] += e->visitor[i].units;
            level.waiting[level.count++] = e->visitor[i];
        }
        offer_level(port, &level, offer);
    }
    int holds_up = port->is_divided; /* of several queues, one may be full before all of the port is taken */
    for (int q = 0; q < QUEUES; q++) holds_up = holds_up || offer[q].size < NEVER;
    if (!holds_up) port->spare = port->capacity - level.used;
    pass_on(e, port, offer);
}

/* Look at ports until none is due. */
static void settle(Engine *e) {
    e->visits = 0;
    for (Port *port; (port = first_due(e)) && !e->failed;) visit(e, port);
}

/* Note how fast a flow can be at most, and let all its ports be looked at. */
static void renew(Engine *e, Flow *flow) {
    flow->able = NEVER;
    for (int h = 0; h < flow->hops; h++) {
        Port *port = &e->port[flow->hop[h].port];
        flow->able = least_of(flow->able, port->capacity - port->taken);
        make_due(e, port, due_at(flow, 0));
    }
    flow->offer = offer_elsewhere(e, flow, 0);
    alter(e, flow);
}

/* Reckon what acknowledgements take of the ports of a flow. Return whether it makes a difference. */
static int renew_around(Engine *e, Flow *flow) {
    int matters = 0;
    for (int h = 0; h < flow->hops; h++) {
        Port *port = &e->port[flow->hop[h].port];
        if (!reckon(e, port)) continue;
        matters = 1;
        for (int i = 0; i < port->flows; i++) renew(e, port->flow[i]);
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
