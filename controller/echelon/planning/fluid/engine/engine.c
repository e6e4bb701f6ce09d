/* The fluid engine in C: jobs in closed loop on a network that executes a plan.
 *
 * It computes what echelon/planning/fluid/simulator.py, network.py and plan_execution.py compute in floats, in the same
 * order; those say what happens and why. It needs no system headers, so that any C compiler builds it.
 */

#include "ranking.c"
#include "sharing.c"
#include "spreading.c"

/* -- events ---------------------------------------------------------------------------------------------------------
 * */

static int earlier(const Event *a, const Event *b) {
    return a->time_s < b->time_s || (a->time_s == b->time_s && a->order < b->order);
}

static int outdated(const Event *event) {
    if (event->what == FLOW_ENDS || event->what == WINDOW_OPENS) return event->flow->version != event->version;
    return event->what == RATES_END && event->nearby->version != event->version;
}

static void sift_down(Event *heap, int count, int at) {
    Event moving = heap[at];
    for (int child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && earlier(&heap[child + 1], &heap[child])) child++;
        if (!earlier(&heap[child], &moving)) break;
        heap[at] = heap[child];
    }
    heap[at] = moving;
}

static void announce(Engine *e, double time_s, int what, int number, int step, Flow *flow, Nearby *nearby) {
    ROOM(e->event, e->events, e->events_room);
    if (e->failed) return;
    long version = flow ? flow->version : nearby ? nearby->version : 0;
    Event fresh = {time_s, e->announced++, version, what, number, step, flow, nearby};
    int at = e->events++;
    for (; at && earlier(&fresh, &e->event[(at - 1) / 2]); at = (at - 1) / 2) e->event[at] = e->event[(at - 1) / 2];
    e->event[at] = fresh;
}

static void drop_first(Engine *e) {
    e->event[0] = e->event[--e->events];
    if (e->events) sift_down(e->event, e->events, 0);
}

/* Return the time of the next event, or NEVER. */
static double next_event_s(Engine *e) {
    if (e->events > e->tidy_at) {
        int kept = 0;
        for (int i = 0; i < e->events; i++)
            if (!outdated(&e->event[i])) e->event[kept++] = e->event[i];
        e->events = kept;
        for (int i = kept / 2 - 1; i >= 0; i--) sift_down(e->event, kept, i);
        e->tidy_at = 2 * kept + 1024;
    }
    while (e->events && outdated(&e->event[0])) drop_first(e);
    return e->events ? e->event[0].time_s : NEVER;
}

/* -- the network ----------------------------------------------------------------------------------------------------
 * */

static void touch(Engine *e, Nearby *nearby) {
    if (nearby->ended) return;
    nearby->ended = nearby->expired = 1;
    nearby->version++;
    nearby->next = 0;
    *e->last_expired = nearby;
    e->last_expired = &nearby->next;
    e->changed = 1;
}

/* Acknowledgements may take a part of a port, but join no flows: whether a port is narrow depends on its own flows. */
static void set_narrow(Engine *e, Port *port) {
    int several = port->flows > 1 || (port->flows && port->flow[0]->count > 1);
    double acknowledgements = port->reverse < 0 ? 0 : e->g.acknowledging * e->port[port->reverse].capacity;
    double most = (port->capacity - acknowledgements) * (1 + TOLERANCE);
    port->narrow = port->limited || (several && port->fastest > most);
}

static void add_flow(Engine *e, Flow *flow) {
    e->changed = e->moved = 1;
    ROOM(e->present, e->present_count, e->present_room);
    ROOM(e->touched, e->touched_count, e->touched_room);
    if (e->failed) return;
    flow->present_at = e->present_count;
    e->present[e->present_count++] = flow;
    e->touched[e->touched_count++] = flow;
    for (int h = 0; h < flow->hops; h++) {
        Port *port = &e->port[flow->hop[h].port];
        ROOM(port->flow, port->flows, port->flows_room);
        ROOM(port->visitor, port->flows, port->visitors_room);
        if (e->failed) return;
        flow->hop[h].at = port->flows;
        port->flow[port->flows++] = flow;
        port->fastest += flow->fastest * flow->count;
        port->outdated = 1;
        set_narrow(e, port);
    }
}

static void remove_flow(Engine *e, Flow *flow) {
    flow->gone = e->moved = e->changed = 1;
    flow->planned = 0;
    load(e, flow);
    if (flow->nearby) touch(e, flow->nearby);
    e->present[flow->present_at] = e->present[--e->present_count];
    e->present[flow->present_at]->present_at = flow->present_at;
    for (int h = 0; h < flow->hops; h++) {
        int number = flow->hop[h].port, at = flow->hop[h].at;
        Port *port = &e->port[number];
        Flow *last = port->flow[--port->flows];
        port->flow[at] = last;
        if (e->spreads) port->visitor[at] = port->visitor[port->flows];
        for (int k = 0; k < last->hops; k++)
            if (last->hop[k].port == number) last->hop[k].at = at;
        port->fastest = port->flows ? port->fastest - flow->fastest * flow->count : 0;
        port->outdated = 1;
        port->load = port->flows ? port->load : 0; /* without what rounding has left */
        set_narrow(e, port);
        if (e->spreads) leave_port(e, port, flow, flow->hop[h].queue);
    }
}

static void find(Engine *e, Flow *flow) {
    if (flow->seen == e->searches) return;
    flow->seen = e->searches;
    ROOM(e->found, e->found_count, e->found_room);
    if (!e->failed) e->found[e->found_count++] = flow;
}

static int started_before(const Flow *a, const Flow *b) { return a->sequence < b->sequence; }

/* Sort flows by their start. Most are few, or in order but for some. */
static void sort_by_start(Engine *e, Flow **flow, int count) {
    enum { SHORT = 8 };
    for (int begin = 0; begin < count; begin += SHORT) {
        int end = begin + SHORT < count ? begin + SHORT : count;
        for (int i = begin + 1; i < end; i++) {
            Flow *moving = flow[i];
            int at = i;
            for (; at > begin && started_before(moving, flow[at - 1]); at--) flow[at] = flow[at - 1];
            flow[at] = moving;
        }
    }
    if (count <= SHORT) return;
    ROOM(e->sending, count, e->sending_room);
    if (e->failed) return;
    Flow **source = flow, **target = e->sending;
    for (int length = SHORT; length < count; length *= 2) {
        for (int begin = 0; begin < count; begin += 2 * length) {
            int middle = begin + length < count ? begin + length : count;
            int end = middle + length < count ? middle + length : count;
            int left = begin, right = middle;
            for (int at = begin; at < end; at++) {
                int is_right = left == middle || (right < end && started_before(source[right], source[left]));
                target[at] = is_right ? source[right++] : source[left++];
            }
        }
        Flow **sorted = target;
        target = source;
        source = sorted;
    }
    for (int i = 0; i < count && source != flow; i++) flow[i] = source[i];
}

/* Find the flows of the neighbourhood of a flow, in order of their start, and the ports with queues. */
static void search(Engine *e, Flow *first) {
    e->found_count = e->found_ports = 0;
    find(e, first);
    for (int i = 0; i < e->found_count && !e->failed; i++) { /* the list grows */
        Flow *flow = e->found[i];
        for (int h = 0; h < flow->hops; h++) {
            Port *port = &e->port[flow->hop[h].port];
            if (port->seen == e->searches) continue;
            port->seen = e->searches;
            if (!port->narrow) continue;
            if (port->has_queues) {
                ROOM(e->found_port, e->found_ports, e->found_ports_room);
                if (e->failed) return;
                e->found_port[e->found_ports++] = port;
            }
            for (int k = 0; k < port->flows; k++) find(e, port->flow[k]);
        }
        if (flow->ranking->kind == ATTAINED) {
            Group *group = &e->group[flow->ranking->group];
            for (int k = 0; k < group->active; k++) find(e, group->flow[k]);
        }
    }
    sort_by_start(e, e->found, e->found_count);
}

static void advance(Engine *e, Flow *flow) {
    if (flow->since_s == e->now_s) return;
    if (flow->rate) flow->left = most_of(flow->left - flow->rate * (e->now_s - flow->since_s), GRAIN_BYTES);
    flow->since_s = e->now_s;
}

static void open_window(Engine *e, Flow *flow) {
    double sent = flow->size - flow->left + GRAIN_BYTES;
    if (sent < flow->opens_at) return;
    int full = flow->full, window = flow->initial, end = window;
    while (window < full && sent >= end * e->g.packet_bytes) {
        window = 2 * window < full ? 2 * window : full;
        end += window;
    }
    e->differs |= flow->window != window;
    flow->window = window;
    flow->opens_at = window == full ? NEVER : end * e->g.packet_bytes;
}

/* Return whether a flow goes before another of its stream at their host. */
static int goes_before(Engine *e, Flow *flow, Flow *other) {
    double growth, value = urgency_of(e, flow, &growth), other_value = urgency_of(e, other, &growth);
    return value > other_value || (value == other_value && started_before(flow, other));
}

/* Share links among the flows of a neighbourhood that send. Of a stream, only the most urgent flow does. It stays that
 * until it ends, or a more urgent one starts: being sent makes it more urgent. */
static void share_among_streams(Engine *e, Nearby *nearby) {
    if (!e->heads_room) {
        share(e, nearby->flow, nearby->flows);
        return;
    }
    e->sending_count = 0;
    for (int i = 0; i < nearby->flows; i++) {
        Flow *flow = nearby->flow[i], **head = flow->stream < 0 ? 0 : &e->head[flow->stream];
        if (head && (!*head || goes_before(e, flow, *head))) *head = flow;
    }
    for (int i = 0; i < nearby->flows; i++) {
        Flow *flow = nearby->flow[i];
        if (flow->stream >= 0 && e->head[flow->stream] != flow) {
            flow->planned = flow->held_up = 0;
            continue;
        }
        ROOM(e->sending, e->sending_count, e->sending_room);
        if (e->failed) return;
        e->sending[e->sending_count++] = flow;
    }
    for (int i = 0; i < e->sending_count; i++)
        if (e->sending[i]->stream >= 0) e->head[e->sending[i]->stream] = 0;
    share(e, e->sending, e->sending_count);
}

/* Find the rates that the flows of a neighbourhood are to have. */
static void plan_rates(Engine *e, Nearby *nearby, int moved) {
    nearby->until_s = NEVER;
    e->differs = moved;
    for (int i = 0; i < nearby->ports; i++) {
        Port *port = nearby->port[i];
        if (must_rank(e, port)) rank(e, port);
        nearby->until_s = least_of(nearby->until_s, port->until_s);
    }
    for (int i = 0; i < nearby->flows; i++) {
        Flow *flow = nearby->flow[i];
        e->work += flow->hops;
        if (flow->opens_at < NEVER) open_window(e, flow);
        for (int h = 0; h < flow->hops && flow->is_new; h++) reckon(e, &e->port[flow->hop[h].port]);
        flow->is_new = 0;
    }
    nearby->differs = e->differs;
    if (e->differs) share_among_streams(e, nearby);
}

/* Return the end of rates, or a later time if it counts as now. */
static double end_of_validity_s(Engine *e, double time_s) {
    if (time_s > e->latest_s) {
        e->stalled = 0;
        return time_s;
    }
    double next_s = e->now_s + most_of(e->now_s, 1e-3) * 4 * SAME_TIME;
    if (next_s <= e->now_s || ++e->stalled > MOST_STALLED) e->failed = NO_VALIDITY;
    return next_s;
}

/* Give flows the rates that they are to have, and announce until when they hold. */
static void give_rates(Engine *e, Nearby *nearby) {
    double until_s = nearby->until_s;
    for (int i = 0; i < nearby->flows; i++) {
        Flow *flow = nearby->flow[i];
        double rate = flow->planned;
        /* A window matters only where others wait at the same port: it also decides which queue is filled first. */
        if (flow->opens_at < NEVER && flow->held_up && rate)
            until_s = least_of(until_s, e->now_s + (flow->opens_at - (flow->size - flow->left)) / rate);
        if (rate == flow->rate) continue;
        flow->rate = rate;
        flow->version++;
        if (rate) announce(e, e->now_s + flow->left / rate, FLOW_ENDS, 0, 0, flow, 0);
    }
    for (int i = 0; i < nearby->ports; i++) {
        Port *port = nearby->port[i];
        if (port->rated) until_s = least_of(until_s, rated_until_s(e, port));
        for (int k = 0; k < port->countings; k++) {
            Group *group = &e->group[port->counting[k].group];
            double together = 0;
            for (int f = 0; f < group->active; f++)
                for (int h = 0; h < group->flow[f]->hops; h++)
                    if (e->g.node[group->flow[f]->hop[h].port] == port->node) together += group->flow[f]->rate;
            if (together) until_s = least_of(until_s, e->now_s + port->counting[k].bytes / together);
        }
    }
    if (until_s < NEVER && !e->failed) announce(e, end_of_validity_s(e, until_s), RATES_END, 0, 0, 0, nearby);
}

static void begin_nearby(Engine *e, Flow **flow, int flows, Port **port, int ports, int moved) {
    Nearby *fresh = e->spare_nearby;
    if (fresh) e->spare_nearby = fresh->next;
    else if (!(fresh = calloc(1, sizeof *fresh))) {
        e->failed = NO_MEMORY;
        return;
    }
    fresh->ended = fresh->expired = fresh->flows = fresh->ports = 0;
    for (int i = 0; i < flows; i++) {
        Nearby *former = flow[i]->nearby;
        if (former && !former->ended) { /* superseded */
            former->ended = 1;
            former->version++;
            former->next = e->spare_nearby;
            e->spare_nearby = former;
        }
        flow[i]->nearby = fresh;
        advance(e, flow[i]);
        ROOM(fresh->flow, fresh->flows, fresh->flows_room);
        if (e->failed) return;
        fresh->flow[fresh->flows++] = flow[i];
    }
    for (int i = 0; i < ports; i++) {
        ROOM(fresh->port, fresh->ports, fresh->ports_room);
        if (e->failed) return;
        fresh->port[fresh->ports++] = port[i];
    }
    ROOM(e->begun, e->begun_count, e->begun_room);
    if (e->failed) return;
    e->begun[e->begun_count++] = fresh;
    plan_rates(e, fresh, moved);
}

/* Give the flows of all neighbourhoods that have begun their rates. These change what acknowledgements take, which changes
 * the rates a little; one step is close enough. */
static void finish_rates(Engine *e) {
    for (int i = 0; i < e->begun_count; i++)
        for (int k = 0; k < e->begun[i]->flows && e->begun[i]->differs; k++) load(e, e->begun[i]->flow[k]);
    for (int i = 0; i < e->begun_count && e->g.acknowledging; i++) {
        Nearby *nearby = e->begun[i];
        int matters = 0;
        for (int k = 0; k < nearby->flows && nearby->differs; k++) {
            Flow *flow = nearby->flow[k];
            if (!gets_another_rate(flow)) continue;
            for (int h = 0; h < flow->hops; h++) matters |= reckon(e, &e->port[flow->hop[h].port]);
        }
        nearby->differs = matters;
    }
    for (int i = 0; i < e->begun_count && e->g.acknowledging && !e->failed; i++)
        if (e->begun[i]->differs) share_among_streams(e, e->begun[i]);
    for (int i = 0; i < e->begun_count && !e->failed; i++) {
        for (int k = 0; k < e->begun[i]->flows && e->begun[i]->differs; k++) load(e, e->begun[i]->flow[k]);
        give_rates(e, e->begun[i]);
    }
}

/* Set the rates of all neighbourhoods in which something has happened. */
static void set_rates(Engine *e) {
    Nearby *expired = e->expired;
    int moved = e->moved, touched = e->touched_count;
    e->expired = 0;
    e->last_expired = &e->expired;
    e->changed = e->moved = e->touched_count = e->begun_count = 0;
    e->allocations++;
    e->searches++;
    for (int i = 0; i < touched && moved; i++) {
        Flow *flow = e->touched[i];
        if (flow->seen == e->searches || flow->gone) continue;
        search(e, flow);
        begin_nearby(e, e->found, e->found_count, e->found_port, e->found_ports, 1);
    }
    while (expired && !e->failed) {
        Nearby *next = expired->next;
        if (!moved) begin_nearby(e, expired->flow, expired->flows, expired->port, expired->ports, 0);
        for (int i = 0; i < expired->flows && moved; i++) {
            Flow *flow = expired->flow[i];
            if (flow->seen == e->searches || flow->gone || flow->nearby != expired) continue;
            search(e, flow);
            begin_nearby(e, e->found, e->found_count, e->found_port, e->found_ports, 1);
        }
        expired->next = e->spare_nearby;
        e->spare_nearby = expired;
        expired = next;
    }
    if (!e->failed) finish_rates(e);
}

/* Set the rates of all flows to which it matters what has happened. */
static void spread(Engine *e) {
    int touched = e->touched_count;
    e->changed = e->moved = e->touched_count = e->altered_count = 0;
    e->allocations++;
    for (int i = 0; i < touched; i++) {
        Flow *flow = e->touched[i];
        if (flow->gone) continue;
        advance(e, flow);
        if (flow->is_opening) flow->left = least_of(flow->left, flow->size - flow->opens_at); /* but for rounding */
        open_window(e, flow);
        if (flow->is_new) renew_around(e, flow);
        flow->is_new = 0;
        renew(e, flow);
    }
    settle(e);
    load_ports(e);
    /* Acknowledgements change the rates of the data, which change theirs a little; one step is close enough. */
    int settled = e->altered_count, matters = 0;
    for (int i = 0; i < settled && e->g.acknowledging; i++) {
        Flow *flow = e->altered[i];
        if (gets_another_rate(flow)) matters |= renew_around(e, flow);
    }
    if (matters) {
        settle(e);
        load_ports(e);
    }
    for (int i = 0; i < e->altered_count && !e->failed; i++) {
        Flow *flow = e->altered[i];
        flow->is_altered = 0;
        if (flow->planned != flow->rate) {
            advance(e, flow);
            flow->rate = flow->planned;
            flow->version++;
            if (flow->rate) announce(e, e->now_s + flow->left / flow->rate, FLOW_ENDS, 0, 0, flow, 0);
        } else if (!flow->is_opening) {
            continue;
        }
        flow->is_opening = 0;
        if (flow->opens_at < NEVER && flow->rate) {
            double opens_s = (flow->opens_at - (flow->size - flow->left)) / flow->rate;
            announce(e, e->now_s + opens_s, WINDOW_OPENS, 0, 0, flow, 0);
        }
    }
}

/* -- jobs -----------------------------------------------------------------------------------------------------------
 * */

static void start_flow(Engine *e, int job, int step, int background) {
    Flow *flow = e->spare_flow;
    if (flow) e->spare_flow = flow->next;
    else if (!(flow = calloc(1, sizeof *flow))) {
        e->failed = NO_MEMORY;
        return;
    }
    const PlanCopy *plan = e->plan;
    int place = background < 0 ? step : e->g.first_step[e->g.jobs] + background;
    int path = plan->of.path_of[place];
    flow->job = job, flow->step = step, flow->background = background;
    flow->count = background < 0 ? e->g.count[step] : 1;
    flow->iteration = background < 0 ? e->job[job].iteration : 0;
    flow->sequence = e->started++;
    flow->version++;
    flow->size = flow->left = background < 0 ? e->g.amount[step] * e->g.size_scale[job] : e->g.background_bytes[background];
    flow->most = background < 0 ? -1 : e->g.background_most[background];
    flow->start_s = flow->since_s = e->now_s;
    flow->rate = flow->opens_at = 0;
    flow->plan = plan;
    flow->ranking = &plan->of.ranking[plan->of.ranking_of[place]];
    flow->window = flow->gone = flow->is_altered = flow->is_opening = flow->hops = 0;
    flow->planned = flow->loaded = flow->able = 0;
    flow->is_new = 1;
    flow->nearby = 0;
    flow->stream = plan->of.stream_of[place];
    flow->full = flow->stream < 0 ? plan->of.window_single[path] : plan->of.window_shared[path];
    flow->initial = plan->of.window_initial[path] < flow->full ? plan->of.window_initial[path] : flow->full;
    flow->passing_s = plan->of.passing_s[path] + least_of(flow->size, e->g.packet_bytes) * plan->of.passing_s_per_byte[path];
    flow->fastest = flow->most < 0 ? NEVER : flow->most;
    for (int k = plan->of.first_link[path]; k < plan->of.first_link[path + 1]; k++) {
        ROOM(flow->hop, flow->hops, flow->hops_room);
        if (e->failed) return;
        int link = plan->of.path_links[k];
        int queue = e->spreads && e->port[link].has_queues ? flow->ranking->lowest : 0;
        flow->hop[flow->hops++] = (Hop){link, 0, queue, &e->port[link].offer[queue]};
        flow->fastest = least_of(flow->fastest, e->port[link].capacity);
    }
    if (flow->hops) flow->level = e->port[flow->hop[0].port].level[flow->hop[0].queue];
    if (flow->size && flow->hops) {
        ranking_started(e, flow);
        add_flow(e, flow);
        return;
    }
    ROOM(e->empty, e->empty_count, e->empty_room);
    if (!e->failed) e->empty[e->empty_count++] = flow;
}

static double duration_s(Engine *e, int job, int step) {
    double found_s = e->g.amount[step] * e->g.compute_scale[job];
    if (!e->g.delays) return found_s;
    char *delayed = e->delayed + (size_type)job * e->g.hosts + e->g.host[step];
    if (*delayed) return found_s;
    *delayed = 1;
    for (int i = 0; i < e->g.delays; i++)
        if (e->g.delayed_job[i] == job && e->g.delayed_host[i] == e->g.host[step] &&
            e->g.delayed_iteration[i] == e->job[job].iteration)
            return found_s + e->g.delay_s[i];
    return found_s;
}

static double *span_of(Engine *e, int job, int step) {
    int first = e->g.first_step[job], steps = e->g.first_step[job + 1] - first;
    return e->job[job].spans + 2 * ((e->job[job].iteration - 1) * (long)steps + step - first);
}

static void start_step(Engine *e, int job_number, int step) {
    Job *job = &e->job[job_number];
    if (e->g.in_turn[job_number] && e->g.is_flow[step]) {
        char *busy = e->busy + (size_type)job_number * e->g.hosts + e->g.host[step];
        if (*busy) {
            ROOM(job->waiting, job->waiting_count, job->waiting_room);
            if (!e->failed) job->waiting[job->waiting_count++] = step;
            return;
        }
        *busy = 1;
    }
    if (e->g.keeps_spans) span_of(e, job_number, step)[0] = e->now_s;
    if (e->g.is_flow[step]) start_flow(e, job_number, step, -1);
    else announce(e, e->now_s + duration_s(e, job_number, step), UNIT_ENDS, job_number, step, 0, 0);
}

static void begin_iteration(Engine *e, int number) {
    Job *job = &e->job[number];
    int first = e->g.first_step[number], end = e->g.first_step[number + 1];
    int wanted = 2 * job->iteration + 1;
    ROOM(job->ends, wanted, job->ends_room);
    if (e->g.keeps_spans) {
        int filled = 2 * job->iteration * (end - first), after = filled + 2 * (end - first);
        ROOM(job->spans, after, job->spans_room);
        for (int i = filled; i < after && !e->failed; i++) job->spans[i] = -1;
    }
    if (e->failed) return;
    job->ends[wanted - 1] = e->now_s;
    job->ends[wanted] = -1;
    job->iteration++;
    job->unfinished = end - first;
    job->is_running = 1;
    for (int step = first; step < end; step++) e->missing[step] = e->g.missing[step];
    for (int i = 0; i < e->g.hosts && e->g.delays; i++) e->delayed[(size_type)number * e->g.hosts + i] = 0;
    for (int step = first; step < end; step++)
        if (!e->g.missing[step]) start_step(e, number, step);
}

static int begins(const Engine *e, int number) {
    if (e->g.iterations < 0 || e->job[number].iteration < e->g.iterations) return 1;
    for (int j = 0; j < e->g.jobs && e->g.load_stays; j++)
        if (j != number && e->job[j].finished < e->g.iterations) return 1;
    return 0;
}

static void finish_step(Engine *e, int number, int step) {
    Job *job = &e->job[number];
    if (e->g.keeps_spans) span_of(e, number, step)[1] = e->now_s;
    e->ready_count = 0;
    if (e->g.in_turn[number] && e->g.is_flow[step]) {
        int kept = 0, count = job->waiting_count;
        e->busy[(size_type)number * e->g.hosts + e->g.host[step]] = 0;
        for (int i = 0; i < count; i++) {
            int waiting = job->waiting[i];
            if (e->g.host[waiting] != e->g.host[step]) {
                job->waiting[kept++] = waiting;
                continue;
            }
            ROOM(e->ready, e->ready_count, e->ready_room);
            if (e->failed) return;
            e->ready[e->ready_count++] = waiting;
        }
        job->waiting_count = kept;
    }
    int waited = e->ready_count;
    for (int k = e->g.first_follower[step]; k < e->g.first_follower[step + 1]; k++) {
        int follower = e->g.followers[k], at;
        if (--e->missing[follower]) continue;
        ROOM(e->ready, e->ready_count, e->ready_room);
        if (e->failed) return;
        at = e->ready_count++;
        for (; e->g.in_turn[number] && at > waited && e->g.place[e->ready[at - 1]] > e->g.place[follower]; at--)
            e->ready[at] = e->ready[at - 1];
        e->ready[at] = follower;
    }
    if (--job->unfinished) {
        for (int i = 0; i < e->ready_count && !e->failed; i++) start_step(e, number, e->ready[i]);
        return;
    }
    job->ends[2 * job->iteration - 1] = e->now_s;
    job->is_running = 0;
    /* Whether it goes on is asked before it counts as finished, which makes no difference to itself. */
    int more = begins(e, number);
    job->finished = job->iteration;
    if (more) begin_iteration(e, number);
}

static void finish_flow(Engine *e, Flow *flow) {
    int job = flow->job, step = flow->step;
    double passing_s = flow->hops && flow->size ? flow->passing_s : 0;
    if (flow->hops && flow->size) ranking_finished(e, flow);
    flow->version++;
    flow->next = e->spare_flow;
    e->spare_flow = flow;
    if (flow->background >= 0) e->background_spans[2 * flow->background + 1] = e->now_s;
    else if (passing_s) announce(e, e->now_s + passing_s, UNIT_ENDS, job, step, 0, 0);
    else finish_step(e, job, step);
}

/* -- the loop -------------------------------------------------------------------------------------------------------
 * */

/* Take what happens by now: flows into `flows_due`, everything else into `others`. */
static void take_due(Engine *e) {
    while (e->events && e->event[0].time_s <= e->latest_s && !e->failed) {
        Event event = e->event[0];
        drop_first(e);
        if (outdated(&event)) continue;
        if (event.what == FLOW_ENDS) {
            event.flow->version++;
            remove_flow(e, event.flow);
            ROOM(e->flows_due, e->flows_due_count, e->flows_due_room);
            if (e->failed) return;
            e->flows_due[e->flows_due_count++] = event.flow;
        } else if (event.what == WINDOW_OPENS) {
            ROOM(e->touched, e->touched_count, e->touched_room);
            if (e->failed) return;
            e->touched[e->touched_count++] = event.flow;
            event.flow->is_opening = e->changed = 1;
        } else if (event.what == RATES_END) {
            touch(e, event.nearby);
        } else {
            ROOM(e->others, e->others_count + 2, e->others_room);
            if (e->failed) return;
            e->others[e->others_count++] = event.what;
            e->others[e->others_count++] = event.number;
            e->others[e->others_count++] = event.step;
        }
        if (event.time_s > e->now_s) e->now_s = event.time_s;
    }
}

/* Handle everything that happens now, and what follows from it without any time passing. */
static void catch_up(Engine *e) {
    while (!e->failed) {
        e->flows_due_count = e->others_count = 0;
        take_due(e);
        for (int i = 0; i < e->empty_count; i++) {
            ROOM(e->flows_due, e->flows_due_count, e->flows_due_room);
            if (e->failed) return;
            e->flows_due[e->flows_due_count++] = e->empty[i];
        }
        e->empty_count = 0;
        if (!e->flows_due_count && !e->others_count) return;
        sort_by_start(e, e->flows_due, e->flows_due_count);
        for (int i = 0; i < e->flows_due_count && !e->failed; i++) finish_flow(e, e->flows_due[i]);
        e->flows_due_count = 0;
        take_due(e);
        int begin = 0;
        while (begin < e->others_count && !e->failed) {
            int end = e->others_count;
            for (; begin < end && !e->failed; begin += 3) {
                int what = e->others[begin], number = e->others[begin + 1], step = e->others[begin + 2];
                if (what == UNIT_ENDS) finish_step(e, number, step);
                else if (what == JOB_STARTS) begin_iteration(e, number);
                else {
                    e->background_spans[2 * number] = e->now_s;
                    start_flow(e, -1, -1, number);
                }
            }
            /* Units of no duration finish before flows are looked at again. */
            take_due(e);
        }
    }
}

static int reached(const Engine *e) {
    if (e->g.iterations < 0) return 0;
    for (int j = 0; j < e->g.jobs; j++)
        if (e->job[j].finished < e->g.iterations) return 0;
    return 1;
}

/* Run until every job is satisfied, until `end_s`, or until rates have been set `most` times. May be called again. */
int fluid_run(Engine *e, double end_s, long most) {
    while (!e->failed) {
        catch_up(e);
        if (e->failed || reached(e)) break;
        if (e->changed) {
            if (!most--) return RUNNING;
            if (e->spreads) spread(e);
            else set_rates(e);
        }
        if (e->failed) break;
        double next_s = next_event_s(e);
        if (next_s > end_s) {
            e->now_s = end_s;
            e->latest_s = end_s;
            return PAUSED;
        }
        if (next_s >= NEVER) e->failed = NO_RATES;
        else e->now_s = next_s, e->latest_s = next_s + next_s * SAME_TIME;
    }
    return e->failed;
}

/* -- for the caller -------------------------------------------------------------------------------------------------
 * */

static void *copied(const void *from, size_type size) {
    char *to = malloc(size + 1);
    for (size_type i = 0; to && i < size; i++) to[i] = ((const char *)from)[i];
    return to;
}

static int level_at(const Port *port, const Ranking *ranking) {
    return port->level[port->has_queues ? ranking->lowest : 0];
}

/* Return whether flows never change their queue and have the same level everywhere, none waits for others of its stream, and
 * nothing else is asked of ports. */
static int keeps_queues(const Engine *e, const Planned *plan) {
    int steps = e->g.first_step[e->g.jobs];
    if (plan->streams) return 0;
    for (int p = 0; p < e->g.links; p++)
        for (int q = 0; q < QUEUES && e->port[p].has_queues; q++)
            if (e->port[p].least[q] > 0 || e->port[p].limited) return 0;
    for (int i = 0; i < e->g.background; i++)
        if (e->g.background_most[i] >= 0) return 0;
    for (int place = 0; place < steps + e->g.background; place++) {
        if (place < steps && !e->g.is_flow[place]) continue;
        const Ranking *ranking = &plan->ranking[plan->ranking_of[place]];
        const int *link = plan->path_links + plan->first_link[plan->path_of[place]];
        const int *end = plan->path_links + plan->first_link[plan->path_of[place] + 1];
        if (ranking->kind != FIXED) return 0;
        for (const int *k = link; k < end; k++)
            if (level_at(&e->port[*k], ranking) != level_at(&e->port[*link], ranking)) return 0;
    }
    return 1;
}

/* Flows that start from now on follow this plan; those under way keep theirs. */
int fluid_plan(Engine *e, const Planned *given) {
    PlanCopy *plan = calloc(1, sizeof *plan);
    if (!plan) return NO_MEMORY;
    int places = e->g.first_step[e->g.jobs] + e->g.background;
    plan->of = *given;
    plan->before = e->plan;
    e->plan = plan;
    plan->of.ranking = copied(given->ranking, (size_type)given->rankings * sizeof *given->ranking);
    plan->of.numbers = copied(given->numbers, (size_type)given->numbers_count * sizeof *given->numbers);
    plan->of.orders = copied(given->orders, (size_type)given->orders_count * sizeof *given->orders);
    plan->of.ranking_of = copied(given->ranking_of, (size_type)places * sizeof *given->ranking_of);
    plan->of.path_of = copied(given->path_of, (size_type)places * sizeof *given->path_of);
    plan->of.first_link = copied(given->first_link, (size_type)(given->paths + 1) * sizeof *given->first_link);
    plan->of.window_initial = copied(given->window_initial, (size_type)given->paths * sizeof(int));
    plan->of.path_links = copied(given->path_links, (size_type)given->first_link[given->paths] * sizeof(int));
    plan->of.window_single = copied(given->window_single, (size_type)given->paths * sizeof(int));
    plan->of.window_shared = copied(given->window_shared, (size_type)given->paths * sizeof(int));
    plan->of.passing_s = copied(given->passing_s, (size_type)given->paths * sizeof(double));
    plan->of.passing_s_per_byte = copied(given->passing_s_per_byte, (size_type)given->paths * sizeof(double));
    plan->of.stream_of = copied(given->stream_of, (size_type)places * sizeof *given->stream_of);
    if (given->streams > e->heads_room) {
        free(e->head);
        e->heads_room = given->streams;
        e->head = calloc((size_type)given->streams, sizeof *e->head);
        if (!e->head) return NO_MEMORY;
    }
    if (!plan->of.window_single || !plan->of.window_shared || !plan->of.passing_s || !plan->of.passing_s_per_byte ||
        !plan->of.stream_of)
        return NO_MEMORY;
    if (!plan->of.ranking || !plan->of.numbers || !plan->of.orders || !plan->of.ranking_of || !plan->of.path_of ||
        !plan->of.first_link || !plan->of.path_links || !plan->of.window_initial)
        return NO_MEMORY;
    for (int link = 0; link < e->g.links; link++) {
        Port *port = &e->port[link];
        port->has_queues = given->has_queues[link];
        port->limited = 0;
        port->outdated = 1;
        for (int q = 0; q < QUEUES; q++) {
            int at = link * QUEUES + q;
            port->level[q] = port->has_queues ? given->level[at] : 0;
            port->weight[q] = port->has_queues ? given->weight[at] : 1;
            port->most[q] = port->capacity * (port->has_queues ? given->most[at] : 1);
            port->least[q] = port->capacity * (port->has_queues ? given->least[at] : 1);
            port->limited = port->limited || port->most[q] < port->capacity;
        }
        set_narrow(e, port);
    }
    e->spreads = !plan->before && keeps_queues(e, &plan->of);
    for (int i = 0; i < e->present_count; i++) { /* all rates are set anew */
        Flow *flow = e->present[i];
        if (flow->nearby) touch(e, flow->nearby);
        e->changed = e->moved = 1;
        if (flow->nearby) continue;
        ROOM(e->touched, e->touched_count, e->touched_room);
        if (e->failed) return NO_MEMORY;
        e->touched[e->touched_count++] = flow;
    }
    return DONE;
}

void fluid_free(Engine *e) {
    for (PlanCopy *plan = e->plan, *before; plan; plan = before) {
        before = plan->before;
        free((void *)plan->of.ranking), free((void *)plan->of.numbers), free((void *)plan->of.orders);
        free((void *)plan->of.ranking_of), free((void *)plan->of.path_of);
        free((void *)plan->of.first_link), free((void *)plan->of.path_links), free((void *)plan->of.window_initial);
        free((void *)plan->of.window_single), free((void *)plan->of.window_shared), free((void *)plan->of.stream_of);
        free((void *)plan->of.passing_s), free((void *)plan->of.passing_s_per_byte);
        free(plan);
    }
    /* Whatever a flow belongs to is found through the flow, so neighbourhoods go first. */
    for (int i = 0; i < e->present_count; i++) {
        Nearby *nearby = e->present[i]->nearby;
        if (nearby && !nearby->ended) touch(e, nearby);
    }
    *e->last_expired = e->spare_nearby;
    for (Nearby *nearby = e->expired, *next; nearby; nearby = next) {
        next = nearby->next;
        free(nearby->flow), free(nearby->port), free(nearby);
    }
    Flow **lists[] = {e->present, e->empty, e->flows_due};
    int counts[] = {e->present_count, e->empty_count, e->flows_due_count};
    for (int list = 0; list < 3; list++)
        for (int i = 0; i < counts[list]; i++) free(lists[list][i]->hop), free(lists[list][i]);
    for (Flow *flow = e->spare_flow, *next; flow; flow = next) {
        next = flow->next;
        free(flow->hop), free(flow);
    }
    for (int i = 0; i < e->g.links && e->port; i++)
        free(e->port[i].flow), free(e->port[i].visitor), free(e->port[i].counting);
    for (int i = 0; i < e->g.groups && e->group; i++)
        free(e->group[i].flow), free(e->group[i].node), free(e->group[i].finished_bytes);
    for (int i = 0; i < e->g.jobs && e->job; i++) free(e->job[i].waiting), free(e->job[i].ends), free(e->job[i].spans);
    free(e->port), free(e->group), free(e->job), free(e->missing), free(e->busy), free(e->delayed), free(e->event);
    free(e->present), free(e->touched), free(e->empty), free(e->found), free(e->flows_due), free(e->found_port);
    free(e->head), free(e->standing), free(e->sending), free(e->due), free(e->altered), free(e->waiting), free(e->begun);
    free(e->others), free(e->ready), free(e->scratch), free(e->offer), free(e->background_spans);
    free(e);
}

/* Return a run at time 0; it needs a plan before it runs. NULL: out of memory. */
Engine *fluid_new(const Given *given) {
    Engine *e = calloc(1, sizeof *e);
    if (!e) return 0;
    e->g = *given;
    e->last_expired = &e->expired;
    e->tidy_at = 1024;
    size_type of_hosts = (size_type)(given->jobs + 1) * (given->hosts + 1);
    e->port = calloc((size_type)given->links + 1, sizeof *e->port);
    e->job = calloc((size_type)given->jobs + 1, sizeof *e->job);
    e->group = calloc((size_type)given->groups + 1, sizeof *e->group);
    e->missing = calloc((size_type)given->first_step[given->jobs] + 1, sizeof *e->missing);
    e->busy = calloc(of_hosts, 1);
    e->delayed = calloc(of_hosts, 1);
    e->background_spans = calloc((size_type)given->background + 1, 2 * sizeof *e->background_spans);
    if (!e->port || !e->job || !e->group || !e->missing || !e->busy || !e->delayed || !e->background_spans) {
        fluid_free(e);
        return 0;
    }
    for (int i = 0; i < given->links; i++) {
        Port *port = &e->port[i];
        port->capacity = given->capacity[i];
        port->reverse = given->reverse[i];
        port->node = given->node[i];
        port->until_s = NEVER;
        port->number = -1;
        port->due = NEVER;
        for (int q = 0; q < QUEUES; q++) port->queue_number[q] = -1, port->offer[q] = (Quote){NEVER, NEVER, 0};
    }
    for (int i = 0; i < 2 * given->background; i++) e->background_spans[i] = -1;
    for (int j = 0; j < given->jobs; j++) announce(e, given->start_s[j], JOB_STARTS, j, 0, 0, 0);
    for (int i = 0; i < given->background; i++) announce(e, given->background_start_s[i], BACKGROUND_STARTS, i, 0, 0, 0);
    return e;
}

double fluid_now_s(const Engine *e) { return e->now_s; }
long fluid_allocations(const Engine *e) { return e->allocations; }
long fluid_work(const Engine *e) { return e->work; }
int fluid_iterations(const Engine *e, int job) { return e->job[job].iteration; }
int fluid_finished(const Engine *e, int job) { return e->job[job].finished; }
const double *fluid_ends(const Engine *e, int job) { return e->job[job].ends; }
const double *fluid_spans(const Engine *e, int job) { return e->job[job].spans; }
const double *fluid_background(const Engine *e) { return e->background_spans; }
double fluid_memory_s(const Engine *e, int job) { return e->job[job].delay_s; }
