/* The division of links between the flows of a neighbourhood by the queues of their ports, at one moment.
 *
 * echelon/planning/fluid/sharing.py says what is computed, and is the same in Python.
 */

enum { NOBODY, WINDOWS, CONSTANTS }; /* to whom a queue makes an offer */

typedef struct {
    int flows, queues, ports, places;
    Flow **flow;
    int *starts, *queue_of;           /* the queues of flow f are queue_of[starts[f]] to queue_of[starts[f + 1] - 1] */
    double *rate, *fastest;
    int *port_of, *level, *weight;    /* by queue */
    double *limit, *minimum;
    Port **port;
    double *capacity, *taken;         /* by port; `taken` is the rate of other traffic */
    int *narrow;
} Meeting;

typedef struct { /* the flows that share and may still gain, and what they fill */
    int flows, ports, *flow;
    const int *starts, *queue_of, *port_of, *level;
    const double *limit, *capacity, *taken;
    double *has, *used;               /* the rate of all flows by queue, and with other traffic by port */
} Filling;

static void *scratch(Engine *e, size_type count, size_type size) {
    size_type bytes = (count * size + 15) & ~(size_type)15;
    if (e->scratch_used + bytes > e->scratch_size) {
        e->failed = NO_MEMORY; /* `share` has made room for everything */
        return e->scratch;
    }
    char *found = e->scratch + e->scratch_used;
    e->scratch_used += bytes;
    for (size_type i = 0; i < bytes; i++) found[i] = 0;
    return found;
}

#define INTEGERS(count) scratch(e, (size_type)(count), sizeof(int))
#define REALS(count) scratch(e, (size_type)(count), sizeof(double))

/* Of equal offers, the one of the oldest flow goes first, and of its queues the first on its path. */
static int before(const Offer *a, const Offer *b) {
    return a->size < b->size || (a->size == b->size && a->first < b->first);
}

/* Return the first 36 bits: offers that differ by the rounding of floats only are equal. */
static double rounded_offer(double size) {
    double high = size * 131073.0;
    return high - (high - size);
}

static void push_offer(Engine *e, int kind, double size, int flow, int place, int queue, int version) {
    ROOM(e->offer, e->offers, e->offers_room);
    if (e->failed) return;
    /* The bits of numbers that are not negative have the order of the numbers. */
    union {
        double number;
        unsigned long long bits;
    } of = {rounded_offer(size)};
    if (kind == WINDOWS) of.bits |= 1ULL << 63;
    Offer fresh = {of.bits, (unsigned long long)flow << 32 | (unsigned)(place + 1), queue, version};
    int at = e->offers++;
    for (; at && before(&fresh, &e->offer[(at - 1) / 2]); at = (at - 1) / 2) e->offer[at] = e->offer[(at - 1) / 2];
    e->offer[at] = fresh;
}

static Offer pop_offer(Engine *e) {
    Offer first = e->offer[0], moving = e->offer[--e->offers];
    int at = 0, child;
    while ((child = 2 * at + 1) < e->offers) {
        if (child + 1 < e->offers && before(&e->offer[child + 1], &e->offer[child])) child++;
        if (!before(&e->offer[child], &moving)) break;
        e->offer[at] = e->offer[child];
        at = child;
    }
    e->offer[at] = moving;
    return first;
}

static void meet(Engine *e, Meeting *m, Flow **flow, int flows) {
    m->flow = flow, m->flows = flows, m->places = m->queues = m->ports = 0;
    for (int f = 0; f < flows; f++) m->places += flow[f]->hops;
    m->starts = INTEGERS(flows + 1), m->queue_of = INTEGERS(m->places);
    m->rate = REALS(flows), m->fastest = REALS(flows);
    m->port_of = INTEGERS(m->places), m->level = INTEGERS(m->places), m->weight = INTEGERS(m->places);
    m->limit = REALS(m->places), m->minimum = REALS(m->places);
    m->port = scratch(e, (size_type)m->places, sizeof(Port *));
    m->capacity = REALS(m->places), m->taken = REALS(m->places), m->narrow = INTEGERS(m->places);
    int place = 0;
    for (int f = 0; f < flows; f++) {
        for (int h = 0; h < flow[f]->hops; h++) {
            Port *port = &e->port[flow[f]->hop[h].port];
            int own = port->has_queues ? flow[f]->hop[h].queue : 0;
            if (port->number < 0) {
                port->number = m->ports;
                m->capacity[m->ports] = port->capacity;
                m->port[m->ports++] = port;
            }
            if (port->queue_number[own] < 0) {
                int q = port->queue_number[own] = m->queues++;
                m->port_of[q] = port->number;
                m->level[q] = port->level[own], m->weight[q] = port->weight[own];
                m->limit[q] = port->most[own], m->minimum[q] = port->least[own];
            }
            m->queue_of[place++] = port->queue_number[own];
        }
        m->starts[f + 1] = place;
    }
}

static void part(Meeting *m) {
    for (int p = 0; p < m->ports; p++) {
        m->port[p]->number = -1;
        for (int q = 0; q < QUEUES; q++) m->port[p]->queue_number[q] = -1;
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

/* Give each flow that can have more its rate, the tightest first. Return whether another pass may give more. */
static int pass(Engine *e, Meeting *m, Filling *fill) {
    const int *starts = fill->starts, *queue_of = fill->queue_of, *port_of = fill->port_of;
    const double *limit = fill->limit, *capacity = fill->capacity;
    size_type mark = e->scratch_used;
    int queues = m->queues, ports = fill->ports, left = 0, once = 1, first = 1, gained = 0, oldest = 0;
    double *rate = m->rate, *fastest = m->fastest, *has = fill->has, *used = fill->used;
    double *room = REALS(queues), *offer = REALS(queues);
    int *waiting = INTEGERS(m->flows), *refused = INTEGERS(m->flows);
    for (int i = 0; i < fill->flows; i++) { /* rates only grow: a flow that cannot gain never will */
        int f = fill->flow[i], able = rate[f] < fastest[f] * (1 - TOLERANCE);
        for (int at = starts[f]; able && at < starts[f + 1]; at++) {
            int q = queue_of[at], p = port_of[q];
            able = used[p] < capacity[p] * (1 - TOLERANCE) && limit[q] - has[q] > TOLERANCE * capacity[p];
        }
        waiting[f] = able;
        if (able) fill->flow[left++] = f;
    }
    fill->flows = left;
    if (!left || e->failed) {
        e->scratch_used = mark;
        return 0;
    }
    int *queued = INTEGERS(queues), *windows = INTEGERS(queues), *constants = INTEGERS(queues);
    int *ready = INTEGERS(queues), *serves = INTEGERS(queues), *serving = INTEGERS(queues);
    int *busy = INTEGERS(ports), *stale = INTEGERS(ports), *there = INTEGERS(ports), *renewal = INTEGERS(ports);
    int *version = INTEGERS(queues), *offered_in = INTEGERS(queues); /* the number of a queue's offer; the renewal */
    double *rounded = REALS(queues); /* an offer that is made, or NEVER */
    int *is_changed = INTEGERS(ports), *is_renewed = INTEGERS(ports);
    int *changed = INTEGERS(ports), *renewed = INTEGERS(ports), changes = 0, renewals = 0;
    double *narrowest = REALS(m->flows);
    for (int i = 0; i < fill->flows; i++) {
        int f = fill->flow[i];
        once = once && !rate[f];
        refused[f] = starts[f + 1] - starts[f];
        narrowest[f] = NEVER;
        for (int at = starts[f]; at < starts[f + 1]; at++) {
            int q = queue_of[at], p = port_of[q];
            narrowest[f] = least_of(narrowest[f], capacity[p] - fill->taken[p]);
            queued[q]++;
            there[p]++;
            if (m->flow[f]->most < 0) windows[q] += m->flow[f]->window * m->flow[f]->count;
            else constants[q]++;
            if (!is_changed[p]) is_changed[p] = 1, changed[changes++] = p;
        }
    }
    /* The waiting flows of each queue, and the queues of each port. */
    int *member_start = INTEGERS(queues + 1), *member_end = INTEGERS(queues);
    int *within_start = INTEGERS(ports + 1), *within_end = INTEGERS(ports), *within = INTEGERS(queues);
    for (int q = 0; q < queues; q++) {
        rounded[q] = NEVER;
        member_end[q] = member_start[q];
        member_start[q + 1] = member_start[q] + queued[q];
        within_start[port_of[q] + 1]++;
    }
    int *members = INTEGERS(member_start[queues]);
    for (int i = 0; i < fill->flows; i++) {
        int f = fill->flow[i];
        for (int at = starts[f]; at < starts[f + 1]; at++) members[member_end[queue_of[at]]++] = f;
    }
    for (int p = 0; p < ports; p++) within_start[p + 1] += within_start[p], within_end[p] = within_start[p];
    for (int q = 0; q < queues; q++) within[within_end[port_of[q]]++] = q;
    int *served = INTEGERS(queues), *chosen = INTEGERS(m->flows);
    e->offers = 0;
    while (left && !e->failed) {
        for (int i = 0; i < changes; i++)
            if (!is_renewed[changed[i]]) is_renewed[changed[i]] = 1, renewed[renewals++] = changed[i];
        for (int i = 0; i < changes; i++) {
            int p = changed[i], highest = -1;
            is_changed[p] = busy[p] = 0;
            for (int at = within_start[p]; at < within_start[p + 1]; at++)
                if (queued[within[at]] && fill->level[within[at]] > highest) highest = fill->level[within[at]];
            for (int at = within_start[p]; at < within_start[p + 1]; at++) {
                int q = within[at], kind = constants[q] ? CONSTANTS : WINDOWS;
                serving[q] = queued[q] > 0 && fill->level[q] == highest;
                busy[p] += serving[q];
                if (!serving[q] || serves[q] == kind) continue;
                serves[q] = kind;
                for (int k = member_start[q]; k < member_start[q + 1]; k++) {
                    int f = members[k];
                    double sent = m->flow[f]->most;
                    if (!waiting[f] || (sent >= 0) != (kind == CONSTANTS) || --refused[f]) continue;
                    if (kind == CONSTANTS || fastest[f] < narrowest[f]) {
                        double units = kind == CONSTANTS ? sent - rate[f] : m->flow[f]->window;
                        push_offer(e, kind, (fastest[f] - rate[f]) / units, f, -1, -1, 0);
                    }
                    for (int place = starts[f]; place < starts[f + 1]; place++) {
                        int too = port_of[queue_of[place]];
                        ready[queue_of[place]]++;
                        if (!is_renewed[too]) is_renewed[too] = 1, renewed[renewals++] = too;
                    }
                }
            }
        }
        changes = 0;
        if (first) {
            first = 0;
            for (int i = 0; i < fill->flows; i++) once = once && !(waiting[fill->flow[i]] && refused[fill->flow[i]]);
        }
        for (int i = 0; i < renewals; i++) {
            int p = renewed[i], count = 0;
            is_renewed[p] = stale[p] = 0;
            renewal[p]++;
            for (int at = within_start[p]; at < within_start[p + 1]; at++)
                if (serving[within[at]] && queued[within[at]]) served[count++] = within[at];
            double spare = most_of(0, capacity[p] - used[p]);
            if (count == 1) room[served[0]] = most_of(0, least_of(spare, limit[served[0]] - has[served[0]]));
            else if (count) set_rooms(served, count, spare, has, m->weight, limit, room);
            for (int k = 0; k < count; k++) {
                int q = served[k];
                if (serves[q] == WINDOWS) {
                    offer[q] = room[q] / windows[q];
                    continue;
                }
                double lacking = 0;
                for (int at = member_start[q]; at < member_start[q + 1]; at++) {
                    double sent = m->flow[members[at]]->most;
                    if (waiting[members[at]] && sent >= 0) lacking += sent - rate[members[at]];
                }
                offer[q] = lacking ? least_of(room[q] / lacking, 1) : 0;
            }
            for (int k = 0; k < count; k++) {
                int q = served[k], at = member_start[q];
                /* An offer that has grown stays as it was until it is the least. */
                if (!ready[q] || rounded_offer(offer[q]) >= rounded[q]) continue;
                while (!waiting[members[at]] || refused[members[at]]) at++;
                int f = members[at], place = starts[f];
                while (queue_of[place] != q) place++;
                push_offer(e, serves[q], offer[q], f, place - starts[f], q, ++version[q]);
                rounded[q] = rounded_offer(offer[q]);
                offered_in[q] = renewal[p];
            }
        }
        renewals = 0;
        int picked = 0;
        double size = 0;
        if (e->offers) {
            Offer due = pop_offer(e);
            if (due.queue < 0) {
                int f = (int)(due.first >> 32);
                double sent = m->flow[f]->most;
                size = (fastest[f] - rate[f]) / (sent < 0 ? m->flow[f]->window : sent - rate[f]);
                if (waiting[f]) chosen[picked++] = f;
            } else if (due.version == version[due.queue]) {
                int q = due.queue, p = port_of[q];
                size = offer[q];
                rounded[q] = NEVER;
                if (stale[p] || offered_in[q] != renewal[p]) {
                    is_renewed[p] = 1;
                    renewed[renewals++] = p;
                    continue;
                }
                for (int k = member_start[q]; k < member_start[q + 1]; k++)
                    if (waiting[members[k]] && !refused[members[k]]) chosen[picked++] = members[k];
            }
            if (!picked) continue;
        } else {
            /* The levels of the ports contradict each other. The oldest flow goes first. */
            while (!waiting[fill->flow[oldest]]) oldest++;
            int f = chosen[picked++] = fill->flow[oldest];
            size = capacity[port_of[queue_of[starts[f]]]];
            for (int at = starts[f]; at < starts[f + 1]; at++) {
                int q = queue_of[at], p = port_of[q];
                size = least_of(size, least_of(capacity[p] - used[p], limit[q] - has[q]));
            }
            size = most_of(0, size) / m->flow[f]->count;
            size /= m->flow[f]->most < 0 ? m->flow[f]->window : m->flow[f]->most - rate[f];
        }
        for (int i = 0; i < picked; i++) {
            int f = chosen[i], constant = m->flow[f]->most >= 0;
            double more = size * (constant ? m->flow[f]->most - rate[f] : m->flow[f]->window);
            more = least_of(more, fastest[f] - rate[f]);
            left--;
            waiting[f] = 0;
            gained = gained || more > TOLERANCE * fastest[f];
            rate[f] += more;
            for (int at = starts[f]; at < starts[f + 1]; at++) {
                int q = queue_of[at], p = port_of[q], is_empty = 0;
                has[q] += more * m->flow[f]->count;
                used[p] += more * m->flow[f]->count;
                stale[p] = 1;
                queued[q]--;
                if (!refused[f]) ready[q]--;
                if (constant) {
                    is_empty = --constants[q] == 0;
                } else {
                    windows[q] -= m->flow[f]->window * m->flow[f]->count;
                    if (!queued[q] && serves[q] != NOBODY) is_empty = --busy[p] == 0;
                }
                if (--there[p] && is_empty && !is_changed[p]) is_changed[p] = 1, changed[changes++] = p;
            }
        }
    }
    e->scratch_used = mark;
    return gained && !once;
}

/* Give flows what they can have, in passes until none of them gains. */
static void fill_up(Engine *e, Meeting *m, Filling fill) {
    fill.has = REALS(m->queues), fill.used = REALS(fill.ports);
    for (int p = 0; p < fill.ports; p++) fill.used[p] = fill.taken[p];
    for (int i = 0; i < fill.flows; i++) {
        int f = fill.flow[i];
        double together = m->rate[f] * m->flow[f]->count;
        for (int at = fill.starts[f]; at < fill.starts[f + 1] && together; at++) {
            fill.has[fill.queue_of[at]] += together;
            fill.used[fill.port_of[fill.queue_of[at]]] += together;
        }
    }
    while (pass(e, m, &fill)) {
    }
}

/* Fill level after level, if each flow has the same at all ports: higher ones then need not know of lower ones. Return
 * whether it has been done. */
static int fill_levels(Engine *e, Meeting *m, Filling fill) {
    int levels = 0;
    for (int i = 0; i < fill.flows; i++) {
        int f = fill.flow[i], level = fill.level[fill.queue_of[fill.starts[f]]];
        for (int at = fill.starts[f]; at < fill.starts[f + 1]; at++)
            if (fill.level[fill.queue_of[at]] != level) return 0;
        levels |= 1 << level;
    }
    if (!(levels & (levels - 1))) return 0; /* there is one only */
    size_type mark = e->scratch_used;
    double *taken = REALS(fill.ports);
    int *flow = INTEGERS(fill.flows);
    size_type mark_of_level = e->scratch_used;
    for (int p = 0; p < fill.ports; p++) taken[p] = fill.taken[p];
    for (int level = QUEUES - 1; level >= 0; level--) {
        int count = 0;
        for (int i = 0; i < fill.flows; i++)
            if (fill.level[fill.queue_of[fill.starts[fill.flow[i]]]] == level) flow[count++] = fill.flow[i];
        if (!count) continue;
        int *left = INTEGERS(count); /* filling drops those that are done */
        for (int i = 0; i < count; i++) left[i] = flow[i];
        fill_up(e, m, (Filling){count, fill.ports, left, fill.starts, fill.queue_of, fill.port_of, fill.level, fill.limit,
                               fill.capacity, taken});
        for (int i = 0; i < count; i++) {
            int f = flow[i];
            for (int at = fill.starts[f]; at < fill.starts[f + 1]; at++)
                taken[fill.port_of[fill.queue_of[at]]] += m->rate[f] * m->flow[f]->count;
        }
        e->scratch_used = mark_of_level;
    }
    e->scratch_used = mark;
    return 1;
}

/* Set the rate of each flow. A port is wide, and can be ignored, if it has room for all its flows in any case. */
static void share_once(Engine *e, Meeting *m) {
    size_type mark = e->scratch_used;
    double *demand = REALS(m->ports);
    int *starts = INTEGERS(m->flows + 1), *queue_of = INTEGERS(m->places);
    int *held_up = INTEGERS(m->flows), *promised = INTEGERS(m->flows), held_ups = 0, promises = 0, place = 0;
    for (int f = 0; f < m->flows; f++) {
        double fastest = m->flow[f]->most;
        for (int at = m->starts[f]; at < m->starts[f + 1]; at++) {
            int p = m->port_of[m->queue_of[at]];
            double room = m->capacity[p] - m->taken[p];
            if (fastest < 0 || room < fastest) fastest = room;
        }
        m->fastest[f] = fastest;
        fastest *= m->flow[f]->count;
        for (int at = m->starts[f]; at < m->starts[f + 1]; at++) demand[m->port_of[m->queue_of[at]]] += fastest;
    }
    for (int p = 0; p < m->ports; p++)
        m->narrow[p] = demand[p] > (m->capacity[p] - m->taken[p]) * (1 + TOLERANCE) || m->port[p]->limited;
    /* Flows of which all narrow queues have a minimum share get that first, as if each were a link of its own. */
    for (int f = 0; f < m->flows; f++) {
        int everywhere = 1, has_queues = 0;
        for (int at = m->starts[f]; at < m->starts[f + 1]; at++) {
            int q = m->queue_of[at];
            if (!m->narrow[m->port_of[q]]) continue;
            queue_of[place++] = q;
            everywhere = everywhere && m->minimum[q] > 0;
            has_queues = has_queues || m->port[m->port_of[q]]->has_queues;
        }
        starts[f + 1] = place;
        m->rate[f] = starts[f] == place ? m->fastest[f] : 0;
        if (starts[f] == place) continue;
        held_up[held_ups++] = f;
        if (everywhere && has_queues) promised[promises++] = f;
    }
    if (promises) {
        int *apart = INTEGERS(m->queues), *level = INTEGERS(m->queues);
        double *taken = REALS(m->queues);
        for (int q = 0; q < m->queues; q++) {
            apart[q] = q;
            if (!m->port[m->port_of[q]]->has_queues) taken[q] = m->taken[m->port_of[q]];
        }
        fill_up(e, m, (Filling){promises, m->queues, promised, starts, queue_of, apart, level, m->minimum,
                               m->minimum, taken});
    }
    Filling fill = {held_ups, m->ports, held_up, starts, queue_of, m->port_of, m->level, m->limit, m->capacity, m->taken};
    if (held_ups && (promises || !fill_levels(e, m, fill))) fill_up(e, m, fill);
    e->scratch_used = mark;
}

/* Count the rate that a flow is to have in the loads of its ports. Senders of constant rate get no acknowledgements. */
static void load(Engine *e, Flow *flow) {
    double change = (flow->planned - flow->loaded) * flow->count;
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
    size_type wanted = places * 400;
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
    for (int p = 0; p < m.ports; p++) m.taken[p] = m.port[p]->taken;
    share_once(e, &m);
    int *crowd = INTEGERS(m.ports);
    for (int f = 0; f < flows; f++)
        for (int at = m.starts[f]; at < m.starts[f + 1]; at++) crowd[m.port_of[m.queue_of[at]]] += flow[f]->count;
    for (int f = 0; f < flows; f++) {
        flow[f]->planned = m.rate[f];
        flow[f]->held_up = 0;
        for (int at = m.starts[f]; at < m.starts[f + 1]; at++) {
            int p = m.port_of[m.queue_of[at]];
            if (crowd[p] > 1 && m.narrow[p]) flow[f]->held_up = 1;
        }
    }
    part(&m);
}
