/* The division of links between the flows of a neighbourhood by the queues of their ports, at one moment.
 *
 * echelon/planning/fluid/sharing.py says what is computed, and is the same in Python. What a pass asks of a flow, a queue
 * or a port stands together, for the sake of caches.
 */

enum { NOBODY, WINDOWS, CONSTANTS }; /* to whom a queue makes an offer */

typedef struct { /* a flow that fills links */
    double rate, fastest, most;
    double narrowest;                 /* the narrowest of its ports */
    int window, count;
    int first, end;                   /* its narrow queues are queue_of[first] to queue_of[end - 1] */
    int waiting, refused;             /* whether it waits; the number of its queues that make it no offer yet */
} Filler;

typedef struct { /* a queue that is filled */
    double limit, minimum;
    double has;                       /* the rate of all its flows */
    double room, offer;
    double rounded;                   /* an offer that is made, or NEVER */
    int port, level, weight;
    int queued, windows, constants;   /* the flows that wait, their windows, and how many are of constant rate */
    int ready;                        /* the flows to which all queues on their path make an offer */
    int serves, serving;
    int version, offered_in;          /* the number of its offer; the renewal in which that was made */
    int first, end;                   /* the flows that waited when the pass began, as members */
} FilledQueue;

typedef struct { /* a port that is filled */
    double capacity, taken;           /* `taken`: the rate of other traffic */
    double used, demand;
    Port *port;
    int queue[QUEUES], queues;        /* its queues in which there are flows */
    int narrow, crowd;
    int waiting, busy;                /* the flows that wait; the queues that serve them */
    int stale, renewal;               /* whether its offers are outdated; how often they were made anew */
    int is_changed, is_renewed;
} FilledPort;

typedef struct {
    int flows, queues, ports, places;
    Flow **flow;
    Filler *filler;
    int *starts, *all_queues;         /* all queues of flow f are all_queues[starts[f]] to all_queues[starts[f + 1] - 1] */
    int *all_ports;                   /* and their ports */
    int *queue_of;                    /* those of narrow ports */
    FilledQueue *queue;
    FilledPort *port;
} Meeting;

typedef struct { /* the flows that share and may still gain, and what they fill */
    int flows, *flow, queues, ports;
    FilledQueue *queue;
    FilledPort *port;
} Filling;

typedef struct { /* a flow that waits in a queue, and which of its narrow queues that is */
    int flow, place;
} Member;

typedef struct {
    Member *member;
    int *changed, changes;            /* ports where it has changed which queues are served */
    int *renewed, renewals;           /* ports whose offers must be made anew */
    int *chosen, picked;              /* flows that get their rate now */
    double size;                      /* and the offer that they take */
} Pass;

static void *scratch(Engine *e, size_type count, size_type size) {
    size_type bytes = (count * size + 15) & ~(size_type)15;
    if (e->scratch_used + bytes > e->scratch_size) {
        e->failed = NO_MEMORY; /* `share` has made room for everything */
        return e->scratch;
    }
    char *found = e->scratch + e->scratch_used;
    e->scratch_used += bytes;
    return found;
}

#define SCRATCH(count, type) scratch(e, (size_type)(count), sizeof(type))

/* Of equal offers, the one of the oldest flow goes first, and of its queues the first on its path. */
static int before(const Offer *a, const Offer *b) {
    return a->size < b->size || (a->size == b->size && a->first < b->first);
}

/* Return the first 36 bits: offers that differ by the rounding of floats only are equal. */
static double rounded_offer(double size) {
    double high = size * 131073.0;
    return high - (high - size);
}

/* Put an offer where the first stood, and let it sink. */
static void sink_offer(Engine *e, Offer moving) {
    Offer *heap = e->offer;
    int at = 0, child, offers = e->offers;
    while ((child = 2 * at + 1) < offers) {
        if (child + 1 < offers && before(&heap[child + 1], &heap[child])) child++;
        if (!before(&heap[child], &moving)) break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moving;
    e->is_offer_taken = 0;
}

static void push_offer(Engine *e, int kind, double rounded, int flow, int place, int queue, int version) {
    /* The bits of numbers that are not negative have the order of the numbers. */
    union {
        double number;
        unsigned long long bits;
    } of = {rounded};
    if (kind == WINDOWS) of.bits |= 1ULL << 63;
    Offer fresh = {of.bits, (unsigned long long)flow << 32 | (unsigned)(place + 1), queue, version};
    if (e->is_offer_taken) {
        sink_offer(e, fresh);
        return;
    }
    ROOM(e->offer, e->offers, e->offers_room);
    if (e->failed) return;
    Offer *heap = e->offer;
    int at = e->offers++;
    for (; at && before(&fresh, &heap[(at - 1) / 2]); at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    heap[at] = fresh;
}

/* Take the first offer. Its place is filled by the next that is pushed, which mostly is its successor. Return 0 if there is
 * none. */
static int first_offer(Engine *e, Offer *first) {
    if (e->is_offer_taken) {
        e->offers--;
        sink_offer(e, e->offer[e->offers]);
    }
    if (!e->offers) return 0;
    *first = e->offer[0];
    e->is_offer_taken = 1;
    return 1;
}

static void meet(Engine *e, Meeting *m, Flow **flow, int flows) {
    m->flow = flow, m->flows = flows, m->places = m->queues = m->ports = 0;
    for (int f = 0; f < flows; f++) m->places += flow[f]->hops;
    m->filler = SCRATCH(flows, Filler);
    m->starts = SCRATCH(flows + 1, int);
    m->all_queues = SCRATCH(m->places, int), m->all_ports = SCRATCH(m->places, int);
    m->queue_of = SCRATCH(m->places, int);
    m->queue = SCRATCH(m->places, FilledQueue);
    m->port = SCRATCH(m->places, FilledPort);
    if (e->failed) return;
    int place = 0;
    m->starts[0] = 0;
    for (int f = 0; f < flows; f++) {
        const Hop *hop = flow[f]->hop, *end = hop + flow[f]->hops;
        double fastest = flow[f]->most;
        int count = flow[f]->count;
        for (; hop < end; hop++) {
            Port *port = &e->port[hop->port];
            int own = port->has_queues ? hop->queue : 0;
            if (port->number < 0) {
                port->number = m->ports;
                FilledPort *filled = &m->port[m->ports++];
                filled->port = port;
                filled->capacity = port->capacity, filled->taken = port->taken;
                filled->demand = filled->queues = filled->crowd = 0;
            }
            FilledPort *filled = &m->port[port->number];
            if (port->queue_number[own] < 0) {
                port->queue_number[own] = m->queues;
                filled->queue[filled->queues++] = m->queues;
                FilledQueue *queue = &m->queue[m->queues++];
                queue->port = port->number;
                queue->level = port->level[own], queue->weight = port->weight[own];
                queue->limit = port->most[own], queue->minimum = port->least[own];
            }
            double room = filled->capacity - filled->taken;
            if (fastest < 0 || room < fastest) fastest = room;
            filled->crowd += count;
            m->all_ports[place] = port->number;
            m->all_queues[place++] = port->queue_number[own];
        }
        m->starts[f + 1] = place;
        Filler *filler = &m->filler[f];
        filler->fastest = fastest;
        filler->most = flow[f]->most, filler->window = flow[f]->window, filler->count = count;
    }
}

static void part(Meeting *m) {
    for (int p = 0; p < m->ports; p++) {
        Port *port = m->port[p].port;
        port->number = -1;
        for (int q = 0; q < QUEUES; q++) port->queue_number[q] = -1;
    }
}

static double growth_of(const int *queue, int queues, double per_weight, const double *has, const int *weight,
                        const double *limit) {
    double growth = 0;
    for (int i = 0; i < queues; i++) {
        int q = queue[i];
        growth += most_of(0, least_of(per_weight * weight[q], limit[q]) - has[q]);
    }
    return growth;
}

/* Set how much more each of these queues of one level gets if all take what they can. */
static void set_rooms(const int *queue, int queues, double left, const double *has, const int *weight,
                      const double *limit, double *room) {
    double together = 0;
    int weights = 0, fits = 1, growing = 0;
    for (int i = 0; i < queues; i++) {
        room[queue[i]] = 0;
        together += has[queue[i]];
        weights += weight[queue[i]];
    }
    if (left <= 0) return;
    double affordable = (left + together) / weights;
    for (int i = 0; i < queues; i++) {
        double own = affordable * weight[queue[i]];
        fits = fits && has[queue[i]] <= own && own <= limit[queue[i]];
    }
    if (!fits) {
        /* What they get together grows with the part per weight, with a bend where a queue begins or stops to grow. */
        affordable = 0;
        for (int i = 0; i < queues; i++) {
            for (int end = 0; end < 2; end++) {
                double bend = (end ? limit[queue[i]] : has[queue[i]]) / weight[queue[i]];
                if (bend > affordable && growth_of(queue, queues, bend, has, weight, limit) <= left) affordable = bend;
            }
        }
        for (int i = 0; i < queues; i++) {
            double own = affordable * weight[queue[i]];
            if (has[queue[i]] <= own && own < limit[queue[i]]) growing += weight[queue[i]];
        }
        if (growing) affordable += (left - growth_of(queue, queues, affordable, has, weight, limit)) / growing;
    }
    for (int i = 0; i < queues; i++) {
        int q = queue[i];
        room[q] = most_of(0, least_of(affordable * weight[q], limit[q]) - has[q]);
    }
}

static void change(Pass *pass, FilledPort *port, int number) {
    if (port->is_changed) return;
    port->is_changed = 1;
    pass->changed[pass->changes++] = number;
}

static void renew_offers(Pass *pass, FilledPort *port, int number) {
    if (port->is_renewed) return;
    port->is_renewed = 1;
    pass->renewed[pass->renewals++] = number;
}

/* Keep the flows that can gain in the filling. Rates only grow: one that cannot never will. */
static void keep_able(Meeting *m, Filling *fill) {
    int left = 0;
    for (int i = 0; i < fill->flows; i++) {
        int f = fill->flow[i];
        Filler *flow = &m->filler[f];
        int able = flow->rate < flow->fastest * (1 - TOLERANCE);
        for (int at = flow->first; able && at < flow->end; at++) {
            const FilledQueue *queue = &fill->queue[m->queue_of[at]];
            const FilledPort *port = &fill->port[queue->port];
            able = port->used < port->capacity * (1 - TOLERANCE) && queue->limit - queue->has > TOLERANCE * port->capacity;
        }
        if (able) fill->flow[left++] = f;
    }
    fill->flows = left;
}

/* Let all flows of the filling wait in their queues. */
static void enqueue(Meeting *m, Filling *fill, Pass *pass) {
    for (int q = 0; q < fill->queues; q++) {
        FilledQueue *queue = &fill->queue[q];
        queue->rounded = NEVER;
        queue->queued = queue->windows = queue->constants = queue->ready = 0;
        queue->serves = NOBODY;
        queue->serving = queue->version = queue->offered_in = 0;
    }
    for (int p = 0; p < fill->ports; p++) {
        FilledPort *port = &fill->port[p];
        port->waiting = port->busy = port->stale = port->renewal = port->is_changed = port->is_renewed = 0;
    }
    for (int i = 0; i < fill->flows; i++) {
        Filler *flow = &m->filler[fill->flow[i]];
        int is_constant = flow->most >= 0, windows = flow->window * flow->count;
        double narrowest = NEVER;
        flow->waiting = 1;
        for (int at = flow->first; at < flow->end; at++) {
            FilledQueue *queue = &fill->queue[m->queue_of[at]];
            FilledPort *port = &fill->port[queue->port];
            narrowest = least_of(narrowest, port->capacity - port->taken);
            queue->queued++;
            if (is_constant) queue->constants++;
            else queue->windows += windows;
            if (!port->waiting++) renew_offers(pass, port, queue->port);
        }
        flow->narrowest = narrowest;
    }
}

/* Make the offer that a flow has by its own rate, if that may be the least: all its queues serve it. */
static void offer_own(Engine *e, const Filler *flow, int number) {
    if (flow->most >= 0) {
        push_offer(e, CONSTANTS, rounded_offer((flow->fastest - flow->rate) / (flow->most - flow->rate)), number, -1, -1, 0);
    } else if (flow->fastest < flow->narrowest) {
        push_offer(e, WINDOWS, rounded_offer((flow->fastest - flow->rate) / flow->window), number, -1, -1, 0);
    }
}

/* Choose which queues of a port serve their flows: those of the highest level in which flows wait. */
static void choose_level(Filling *fill, FilledPort *port) {
    int highest = -1;
    port->is_changed = port->busy = 0;
    for (int k = 0; k < port->queues; k++) {
        const FilledQueue *queue = &fill->queue[port->queue[k]];
        if (queue->queued && queue->level > highest) highest = queue->level;
    }
    for (int k = 0; k < port->queues; k++) {
        FilledQueue *queue = &fill->queue[port->queue[k]];
        queue->serving = queue->queued && queue->level == highest;
        port->busy += queue->serving;
    }
}

/* Serve the flows of the highest levels first. Return whether none is refused. */
static int serve_first(Engine *e, Meeting *m, Filling *fill, Pass *pass) {
    int members = 0, refused = 0;
    for (int i = 0; i < pass->renewals; i++) choose_level(fill, &fill->port[pass->renewed[i]]);
    for (int q = 0; q < fill->queues; q++) {
        FilledQueue *queue = &fill->queue[q];
        queue->first = queue->end = members;
        members += queue->queued;
        if (queue->serving) queue->serves = queue->constants ? CONSTANTS : WINDOWS;
    }
    pass->member = SCRATCH(members, Member);
    for (int i = 0; i < fill->flows && !e->failed; i++) {
        int f = fill->flow[i];
        Filler *flow = &m->filler[f];
        int kind = flow->most < 0 ? WINDOWS : CONSTANTS;
        flow->refused = 0;
        for (int at = flow->first; at < flow->end; at++) {
            FilledQueue *queue = &fill->queue[m->queue_of[at]];
            pass->member[queue->end++] = (Member){f, at - flow->first};
            flow->refused += queue->serves != kind;
        }
        refused |= flow->refused;
        if (flow->refused) continue;
        offer_own(e, flow, f);
        for (int at = flow->first; at < flow->end; at++) fill->queue[m->queue_of[at]].ready++;
    }
    return !refused;
}

/* Let a queue make offers to its flows that wait. */
static void serve_members(Engine *e, Meeting *m, Filling *fill, Pass *pass, FilledQueue *queue, int kind) {
    queue->serves = kind;
    for (int k = queue->first; k < queue->end; k++) {
        int f = pass->member[k].flow;
        Filler *flow = &m->filler[f];
        if (!flow->waiting || (flow->most >= 0) != (kind == CONSTANTS) || --flow->refused) continue;
        offer_own(e, flow, f);
        for (int at = flow->first; at < flow->end; at++) {
            FilledQueue *other = &fill->queue[m->queue_of[at]];
            other->ready++;
            renew_offers(pass, &fill->port[other->port], other->port);
        }
    }
}

/* Serve the highest level at each changed port at which flows wait. */
static void serve_highest(Engine *e, Meeting *m, Filling *fill, Pass *pass) {
    for (int i = 0; i < pass->changes; i++) {
        FilledPort *port = &fill->port[pass->changed[i]];
        renew_offers(pass, port, pass->changed[i]);
        choose_level(fill, port);
    }
    for (int i = 0; i < pass->changes; i++) {
        FilledPort *port = &fill->port[pass->changed[i]];
        for (int k = 0; k < port->queues; k++) {
            FilledQueue *queue = &fill->queue[port->queue[k]];
            int kind = queue->constants ? CONSTANTS : WINDOWS;
            if (queue->serving && queue->serves != kind) serve_members(e, m, fill, pass, queue, kind);
        }
    }
    pass->changes = 0;
}

/* Return the part of what flows of constant rate lack that a queue has room for. */
static double part_of_constants(const Meeting *m, const Pass *pass, const FilledQueue *queue) {
    double lacking = 0;
    for (int k = queue->first; k < queue->end; k++) {
        const Filler *flow = &m->filler[pass->member[k].flow];
        if (flow->waiting && flow->most >= 0) lacking += flow->most - flow->rate;
    }
    return lacking ? least_of(queue->room / lacking, 1) : 0;
}

/* Make the offer of a queue, unless it has grown: then it stays as it was until it is the least. */
static void make_offer(Engine *e, Meeting *m, Pass *pass, FilledQueue *queue, int number, int renewal) {
    if (queue->serves == WINDOWS) queue->offer = queue->room / queue->windows;
    else queue->offer = part_of_constants(m, pass, queue);
    if (!queue->ready) return;
    double rounded = rounded_offer(queue->offer);
    if (rounded >= queue->rounded) return;
    const Member *member = &pass->member[queue->first];
    while (!m->filler[member->flow].waiting) member++;
    queue->first = member - pass->member; /* who has a rate keeps it */
    while (!m->filler[member->flow].waiting || m->filler[member->flow].refused) member++;
    push_offer(e, queue->serves, rounded, member->flow, member->place, number, ++queue->version);
    queue->rounded = rounded;
    queue->offered_in = renewal;
}

/* Find what several queues of one level offer. */
static void offer_several(Engine *e, Meeting *m, Filling *fill, Pass *pass, FilledPort *port, double spare) {
    static const int place[QUEUES] = {0, 1, 2, 3, 4, 5, 6, 7};
    FilledQueue *served[QUEUES];
    int count = 0, weight[QUEUES];
    double has[QUEUES], limit[QUEUES], room[QUEUES];
    for (int k = 0; k < port->queues; k++) {
        FilledQueue *queue = &fill->queue[port->queue[k]];
        if (!queue->serving || !queue->queued) continue;
        has[count] = queue->has, limit[count] = queue->limit, weight[count] = queue->weight;
        served[count++] = queue;
    }
    set_rooms(place, count, spare, has, weight, limit, room);
    for (int k = 0; k < count; k++) {
        served[k]->room = room[k];
        make_offer(e, m, pass, served[k], served[k] - fill->queue, port->renewal);
    }
}

/* Find what the queues of a port offer. */
static void offer_at(Engine *e, Meeting *m, Filling *fill, Pass *pass, FilledPort *port) {
    FilledQueue *served = 0;
    double spare = most_of(0, port->capacity - port->used);
    port->is_renewed = port->stale = 0;
    port->renewal++;
    for (int k = 0; k < port->queues; k++) {
        FilledQueue *queue = &fill->queue[port->queue[k]];
        if (!queue->serving || !queue->queued) continue;
        if (served) {
            offer_several(e, m, fill, pass, port, spare);
            return;
        }
        served = queue;
    }
    if (!served) return;
    served->room = most_of(0, least_of(spare, served->limit - served->has));
    make_offer(e, m, pass, served, served - fill->queue, port->renewal);
}

/* Choose the flows that take the least offer. */
static void choose(Meeting *m, Filling *fill, Pass *pass, const Offer *due) {
    if (due->queue < 0) {
        int f = (int)(due->first >> 32);
        const Filler *flow = &m->filler[f];
        pass->size = (flow->fastest - flow->rate) / (flow->most < 0 ? flow->window : flow->most - flow->rate);
        if (flow->waiting) pass->chosen[pass->picked++] = f;
        return;
    }
    FilledQueue *queue = &fill->queue[due->queue];
    if (due->version != queue->version) return;
    FilledPort *port = &fill->port[queue->port];
    pass->size = queue->offer;
    queue->rounded = NEVER;
    if (port->stale || queue->offered_in != port->renewal) {
        renew_offers(pass, port, queue->port);
        return;
    }
    for (int k = queue->first; k < queue->end; k++) {
        int f = pass->member[k].flow;
        if (m->filler[f].waiting && !m->filler[f].refused) pass->chosen[pass->picked++] = f;
    }
}

/* Choose the oldest flow that waits: the levels of the ports contradict each other. */
static void choose_oldest(Meeting *m, Filling *fill, Pass *pass) {
    int oldest = 0;
    while (!m->filler[fill->flow[oldest]].waiting) oldest++;
    int f = pass->chosen[pass->picked++] = fill->flow[oldest];
    const Filler *flow = &m->filler[f];
    double size = fill->port[fill->queue[m->queue_of[flow->first]].port].capacity;
    for (int at = flow->first; at < flow->end; at++) {
        const FilledQueue *queue = &fill->queue[m->queue_of[at]];
        const FilledPort *port = &fill->port[queue->port];
        size = least_of(size, least_of(port->capacity - port->used, queue->limit - queue->has));
    }
    size = most_of(0, size) / flow->count;
    pass->size = size / (flow->most < 0 ? flow->window : flow->most - flow->rate);
}

/* Give a flow its rate. Return how much more that is. */
static double fill_by(Meeting *m, Filling *fill, Pass *pass, Filler *flow) {
    int constant = flow->most >= 0, windows = flow->window * flow->count;
    double more = pass->size * (constant ? flow->most - flow->rate : flow->window);
    more = least_of(more, flow->fastest - flow->rate);
    double together = more * flow->count;
    flow->waiting = 0;
    flow->rate += more;
    for (int at = flow->first; at < flow->end; at++) {
        FilledQueue *queue = &fill->queue[m->queue_of[at]];
        FilledPort *port = &fill->port[queue->port];
        int is_empty = 0;
        queue->has += together;
        port->used += together;
        port->stale = 1;
        queue->queued--;
        if (!flow->refused) queue->ready--;
        if (constant) {
            is_empty = --queue->constants == 0;
        } else {
            queue->windows -= windows;
            if (!queue->queued && queue->serves != NOBODY) is_empty = --port->busy == 0;
        }
        if (--port->waiting && is_empty) change(pass, port, queue->port);
    }
    return more;
}

/* Give each flow that can have more its rate, the tightest first. Return whether another pass may give more. */
static int pass(Engine *e, Meeting *m, Filling *fill) {
    size_type mark = e->scratch_used;
    keep_able(m, fill);
    if (!fill->flows || e->failed) return 0;
    Pass pass = {0};
    pass.changed = SCRATCH(fill->ports, int), pass.renewed = SCRATCH(fill->ports, int);
    pass.chosen = SCRATCH(fill->flows, int);
    int is_final = 1, gained = 0;
    for (int i = 0; i < fill->flows; i++) is_final = is_final && !m->filler[fill->flow[i]].rate;
    e->offers = e->is_offer_taken = 0;
    enqueue(m, fill, &pass);
    /* What a queue keeps for a flow that another refuses may be in vain. */
    if (!serve_first(e, m, fill, &pass)) is_final = 0;
    for (int left = fill->flows; left && !e->failed; left -= pass.picked) {
        if (pass.changes) serve_highest(e, m, fill, &pass);
        for (int i = 0; i < pass.renewals; i++) offer_at(e, m, fill, &pass, &fill->port[pass.renewed[i]]);
        pass.renewals = pass.picked = 0;
        Offer due;
        if (first_offer(e, &due)) choose(m, fill, &pass, &due);
        else choose_oldest(m, fill, &pass);
        for (int i = 0; i < pass.picked; i++) {
            Filler *flow = &m->filler[pass.chosen[i]];
            if (fill_by(m, fill, &pass, flow) > TOLERANCE * flow->fastest) gained = 1;
        }
    }
    e->scratch_used = mark;
    return gained && !is_final;
}

/* Give flows what they can have, in passes until none of them gains. */
static void fill_up(Engine *e, Meeting *m, Filling fill) {
    for (int q = 0; q < fill.queues; q++) fill.queue[q].has = 0;
    for (int p = 0; p < fill.ports; p++) fill.port[p].used = fill.port[p].taken;
    for (int i = 0; i < fill.flows; i++) {
        const Filler *flow = &m->filler[fill.flow[i]];
        double together = flow->rate * flow->count;
        for (int at = flow->first; at < flow->end && together; at++) {
            FilledQueue *queue = &fill.queue[m->queue_of[at]];
            queue->has += together;
            fill.port[queue->port].used += together;
        }
    }
    while (pass(e, m, &fill)) {
    }
}

static int first_level(const Meeting *m, const Filler *flow) { return m->queue[m->queue_of[flow->first]].level; }

/* Fill level after level, if each flow has the same at all ports: higher ones then need not know of lower ones. Return
 * whether it has been done. */
static int fill_levels(Engine *e, Meeting *m, Filling fill) {
    int levels = 0;
    for (int i = 0; i < fill.flows; i++) {
        const Filler *flow = &m->filler[fill.flow[i]];
        int level = first_level(m, flow);
        for (int at = flow->first; at < flow->end; at++)
            if (m->queue[m->queue_of[at]].level != level) return 0;
        levels |= 1 << level;
    }
    if (!(levels & (levels - 1))) return 0; /* there is one only */
    size_type mark = e->scratch_used;
    int *flows = SCRATCH(fill.flows, int), *left = SCRATCH(fill.flows, int); /* filling drops those that are done */
    for (int level = QUEUES - 1; level >= 0; level--) {
        int count = 0;
        if (!(levels & 1 << level)) continue;
        for (int i = 0; i < fill.flows; i++)
            if (first_level(m, &m->filler[fill.flow[i]]) == level) flows[count++] = fill.flow[i];
        for (int i = 0; i < count; i++) left[i] = flows[i];
        fill_up(e, m, (Filling){count, left, fill.queues, fill.ports, fill.queue, fill.port});
        for (int i = 0; i < count; i++) {
            const Filler *flow = &m->filler[flows[i]];
            for (int at = flow->first; at < flow->end; at++)
                fill.port[fill.queue[m->queue_of[at]].port].taken += flow->rate * flow->count;
        }
    }
    e->scratch_used = mark;
    return 1;
}

/* Fill the minimum shares of queues, as if each were a link of its own. */
static void fill_minimums(Engine *e, Meeting *m, int flows, int *flow) {
    FilledQueue *queue = SCRATCH(m->queues, FilledQueue);
    FilledPort *port = SCRATCH(m->queues, FilledPort);
    if (e->failed) return;
    for (int q = 0; q < m->queues; q++) {
        const FilledPort *shared = &m->port[m->queue[q].port];
        queue[q] = m->queue[q];
        queue[q].port = q;
        queue[q].level = 0;
        queue[q].limit = port[q].capacity = queue[q].minimum;
        /* Where there are queues, acknowledgements have one of their own. */
        port[q].taken = shared->port->has_queues ? 0 : shared->taken;
        port[q].queue[0] = q;
        port[q].queues = 1;
    }
    fill_up(e, m, (Filling){flows, flow, m->queues, m->queues, queue, port});
}

/* Set the rate of each flow. A port is wide, and can be ignored, if it has room for all its flows in any case. */
static void share_once(Engine *e, Meeting *m) {
    size_type mark = e->scratch_used;
    int *held_up = SCRATCH(m->flows, int), *promised = SCRATCH(m->flows, int), held_ups = 0, promises = 0, place = 0;
    for (int f = 0; f < m->flows; f++) {
        Filler *flow = &m->filler[f];
        double fastest = flow->fastest * flow->count;
        for (int at = m->starts[f]; at < m->starts[f + 1]; at++) m->port[m->all_ports[at]].demand += fastest;
    }
    for (int p = 0; p < m->ports; p++) {
        FilledPort *port = &m->port[p];
        port->narrow = port->demand > (port->capacity - port->taken) * (1 + TOLERANCE) || port->port->limited;
    }
    /* Flows of which all narrow queues have a minimum share get that first. */
    for (int f = 0; f < m->flows; f++) {
        Filler *flow = &m->filler[f];
        int everywhere = 1, has_queues = 0;
        flow->first = place;
        for (int at = m->starts[f]; at < m->starts[f + 1]; at++) {
            int q = m->all_queues[at];
            const FilledPort *port = &m->port[m->all_ports[at]];
            if (!port->narrow) continue;
            m->queue_of[place++] = q;
            everywhere = everywhere && m->queue[q].minimum > 0;
            has_queues = has_queues || port->port->has_queues;
        }
        flow->end = place;
        flow->rate = flow->first == place ? flow->fastest : 0;
        if (flow->first == place) continue;
        held_up[held_ups++] = f;
        if (everywhere && has_queues) promised[promises++] = f;
    }
    if (promises) fill_minimums(e, m, promises, promised);
    Filling fill = {held_ups, held_up, m->queues, m->ports, m->queue, m->port};
    if (held_ups && (promises || !fill_levels(e, m, fill))) fill_up(e, m, fill);
    e->scratch_used = mark;
}

/* Count the rate that a flow is to have in the loads of its ports. Senders of constant rate get no acknowledgements. */
static void load(Engine *e, Flow *flow) {
    double change = (flow->planned - flow->loaded) * flow->count;
    if (!change) return;
    flow->loaded = flow->planned;
    for (int h = 0; h < flow->hops && flow->most < 0; h++) e->port[flow->hop[h].port].load += change;
}

/* Reckon with what acknowledgements take of a port now, if that has changed by enough. Return whether it has. This is
 * done where flows begin, and where they get other rates; elsewhere, flows keep theirs. */
static int reckon(const Engine *e, Port *port) {
    if (port->reverse < 0 || !e->g.acknowledging) return 0;
    double taken = e->port[port->reverse].load * e->g.acknowledging;
    double limit = ACKNOWLEDGED * port->capacity, change = taken - port->taken;
    if (change <= limit && change >= -limit) return 0;
    port->taken = taken;
    return 1;
}

/* Return whether a flow is to have another rate, but for rounding. */
static int gets_another_rate(const Flow *flow) {
    double larger = most_of(flow->rate, flow->planned), change = flow->planned - flow->rate;
    return change > TOLERANCE * larger || change < -TOLERANCE * larger;
}

/* Set the rate that each flow is to have, and whether it is held up: it waits at a port with others. */
static void share(Engine *e, Flow **flow, int flows) {
    size_type places = 64;
    for (int f = 0; f < flows; f++) places += (size_type)flow[f]->hops + 2;
    size_type wanted = places * (2 * (sizeof(FilledQueue) + sizeof(FilledPort)) + sizeof(Filler) + 64);
    if (wanted > e->scratch_size) {
        free(e->scratch);
        e->scratch_size = 2 * wanted;
        e->scratch = malloc(e->scratch_size);
        if (!e->scratch) {
            e->scratch_size = 0;
            e->failed = NO_MEMORY;
            return;
        }
    }
    e->scratch_used = 0;
    Meeting m;
    meet(e, &m, flow, flows);
    if (e->failed) return;
    share_once(e, &m);
    for (int f = 0; f < flows; f++) {
        flow[f]->planned = m.filler[f].rate;
        flow[f]->held_up = 0;
        for (int at = m.starts[f]; at < m.starts[f + 1]; at++) {
            const FilledPort *port = &m.port[m.all_ports[at]];
            if (port->crowd > 1 && port->narrow) flow[f]->held_up = 1;
        }
    }
    part(&m);
}
