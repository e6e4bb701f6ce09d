/* The rankings, as echelon/planning/rankings executes them: the queues of flows at a port, and how long they stay
 * there. */

#include "state.h"

static void enter(Engine *e, Hop *hop, int queue) {
    e->differs |= hop->queue != queue;
    hop->queue = queue;
}

static const double *numbers_of(const Flow *flow) { return flow->plan->of.numbers + flow->ranking->first; }

/* Return whether a hop is the flow's first that leaves its node. In a tree, several may. */
static int leaves_first(const Engine *e, const Flow *flow, int hop) {
    int node = e->port[flow->hop[hop].port].node;
    for (int h = 0; h < hop; h++)
        if (e->g.node[flow->hop[h].port] == node) return 0;
    return 1;
}

static double *bytes_at(Engine *e, Group *group, int node) {
    for (int i = 0; i < group->nodes; i++)
        if (group->node[i] == node) return &group->finished_bytes[i];
    int room = group->nodes_room;
    ROOM(group->node, group->nodes, group->nodes_room);
    ROOM(group->finished_bytes, group->nodes, room);
    if (e->failed) return group->finished_bytes;
    group->node[group->nodes] = node;
    group->finished_bytes[group->nodes] = 0;
    return &group->finished_bytes[group->nodes++];
}

static void ranking_started(Engine *e, Flow *flow) {
    const Ranking *r = flow->ranking;
    Group *group = r->group < 0 ? 0 : &e->group[r->group];
    if (r->kind == THRESHOLDS || r->kind == RELATIVE) {
        /* Of flows that start at the same time, the one of the least offset counts. */
        int newer = group->reference_iteration < flow->iteration;
        if (group->reference_iteration == flow->iteration)
            newer = flow->start_s < group->reference_start_s ||
                    (flow->start_s == group->reference_start_s && r->offset_s < group->reference_offset_s);
        if (newer) {
            group->reference_iteration = flow->iteration;
            group->reference_start_s = flow->start_s;
            group->reference_offset_s = r->offset_s;
        }
        flow->due_s = NEVER;
        if (r->kind == RELATIVE) {
            Job *job = &e->job[flow->job];
            if (flow->iteration > job->remembered) {
                if (job->has_late) job->delay_s = (job->delay_s + job->late_s - r->alone_s) * 3 / 4;
                job->remembered = flow->iteration;
                job->has_late = 0;
            }
        }
    } else if (r->kind == ATTAINED) {
        if (group->iteration != flow->iteration) {
            group->iteration = flow->iteration;
            group->active = group->nodes = 0;
        }
        ROOM(group->flow, group->active, group->active_room);
        if (!e->failed) group->flow[group->active++] = flow;
    } else if (r->kind == WINDOW && !group->begun) {
        group->begun = 1;
        group->begun_s = flow->start_s;
    }
}

/* Find when the flow is due. All flows of this moment have started, so the reference is known. */
static void refer(Engine *e, Flow *flow) {
    const Ranking *r = flow->ranking;
    if (flow->due_s < NEVER) return;
    const Group *group = &e->group[r->group];
    double begun_s = group->reference_start_s - group->reference_offset_s;
    flow->due_s = begun_s + r->due_s;
    flow->arranged_s = begun_s + r->offset_s;
}

static void ranking_finished(Engine *e, Flow *flow) {
    const Ranking *r = flow->ranking;
    if (r->kind == RELATIVE) {
        Job *job = &e->job[flow->job];
        refer(e, flow);
        double late_s = e->now_s - flow->arranged_s;
        if (!job->has_late || late_s > job->late_s) job->late_s = late_s;
        job->has_late = 1;
    } else if (r->kind == ATTAINED) {
        Group *group = &e->group[r->group];
        int i = 0;
        while (group->flow[i] != flow) i++;
        for (group->active--; i < group->active; i++) group->flow[i] = group->flow[i + 1];
        for (int h = 0; h < flow->hops; h++)
            if (leaves_first(e, flow, h)) *bytes_at(e, group, e->g.node[flow->hop[h].port]) += flow->size;
    }
}

static void rank_by_bytes(Engine *e, Port *port, Flow *flow, Hop *hop) {
    const Ranking *r = flow->ranking;
    Group *group = &e->group[r->group];
    if (group->ranked_at != e->calls || group->ranked_as != r) {
        group->ranked_at = e->calls;
        group->ranked_as = r;
        double attained = *bytes_at(e, group, port->node);
        for (int i = 0; i < group->active; i++) {
            Flow *counted = group->flow[i];
            for (int h = 0; h < counted->hops; h++)
                if (e->g.node[counted->hop[h].port] == port->node) {
                    attained += counted->size - counted->left;
                    break;
                }
        }
        const double *thresholds = numbers_of(flow);
        int reached = 0;
        while (reached < r->count && thresholds[reached] <= attained) reached++;
        group->queue = flow->plan->of.orders[r->first_order + reached];
        if (reached < r->count) {
            ROOM(port->counting, port->countings, port->countings_room);
            if (e->failed) return;
            port->counting[port->countings++] = (Counting){r->group, thresholds[reached] - attained};
        }
    }
    enter(e, hop, group->queue);
}

static double rank_by_window(Engine *e, Flow *flow, Hop *hop) {
    const Ranking *r = flow->ranking;
    if (r->begin_s == r->end_s) {
        enter(e, hop, r->lowest);
        return NEVER;
    }
    double origin_s = e->group[r->group].begun_s, periods = (e->now_s - origin_s) / r->period_s;
    long period = (long)periods - 2; /* rounding may put `now` into the period before */
    for (;; period++) {
        double start_s = origin_s + (period * r->period_s + r->begin_s);
        double stop_s = origin_s + (period * r->period_s + r->end_s);
        double first_s = least_of(start_s, stop_s), second_s = most_of(start_s, stop_s);
        for (int i = 0; i < 2; i++) {
            double change_s = i ? second_s : first_s;
            if (change_s > e->now_s) {
                enter(e, hop, change_s == start_s ? r->lowest : r->highest);
                return change_s;
            }
        }
    }
}

/* The rank of a flow now (`echelon.planning.rankings.deadline.deadline_rank`), and its growth per second at `rate`. */
static double rank_of(Engine *e, Flow *flow, double rate, double *growth) {
    const Ranking *r = flow->ranking;
    refer(e, flow);
    double late_s = e->now_s - flow->due_s + e->job[flow->job].delay_s - r->left_s * flow->left;
    *growth = r->slope * (1 + r->left_s * rate);
    return late_s * r->slope - r->head_start;
}

/* The urgency of a flow at its host, among flows of its job. */
static double urgency_of(Engine *e, Flow *flow, double *growth) {
    if (flow->ranking->kind == FIXED) return flow->ranking->lowest;
    if (flow->ranking->kind == RELATIVE) return rank_of(e, flow, 0, growth);
    const double *thresholds = numbers_of(flow);
    int reached = 0;
    refer(e, flow);
    while (reached < flow->ranking->count && flow->due_s + thresholds[reached] <= e->now_s) reached++;
    return reached;
}

/* Find the ranks of the flows of a port that are ranked relative to the most urgent. Return how many those are. */
static int stand(Engine *e, Port *port, int counts_rates) {
    int count = 0;
    ROOM(e->standing, port->flows, e->standings_room);
    for (int i = 0; i < port->flows && !e->failed; i++) {
        Flow *flow = port->flow[i];
        if (flow->ranking->kind != RELATIVE) continue;
        Standing *standing = &e->standing[count++];
        standing->flow = flow;
        standing->value = rank_of(e, flow, counts_rates ? flow->rate : 0, &standing->growth);
    }
    return count;
}

/* Return for how long the levels of the flows that are ranked relative to the most urgent hold (`deadline.py`,
 * relative_levels). `sets`: set their queues; rates do not count then. Otherwise, note whether those are as now set: equal
 * flows part as soon as rates count. */
static double levels(Engine *e, Port *port, int sets) {
    double top = -NEVER, top_growth = 0, hold = NEVER;
    int count = stand(e, port, !sets), number = port - e->port;
    port->is_settled = 1;
    const Standing *end = e->standing + count;
    for (const Standing *s = e->standing; s < end; s++)
        if (s->value > top || (s->value == top && s->growth > top_growth) || s == e->standing)
            top = s->value, top_growth = s->growth;
    for (;;) {
        double near_value = 0, near_growth = top_growth;
        for (const Standing *s = e->standing; s < end; s++)
            if (s->growth > near_growth && (top - s->value) * GRAINS <= 1) near_value = s->value, near_growth = s->growth;
        if (near_growth == top_growth) break;
        top = near_value, top_growth = near_growth;
    }
    for (const Standing *s = e->standing; s < end; s++) {
        const Ranking *r = s->flow->ranking;
        double behind = top - s->value, widening = top_growth - s->growth;
        const double *steps = numbers_of(s->flow);
        int reached = 0;
        if (widening < 0) hold = least_of(hold, behind / (s->growth - top_growth));
        if (widening > 0) {
            while (reached < r->count && (steps[reached] - behind) * GRAINS <= 1) reached++;
            if (reached < r->count) hold = least_of(hold, (steps[reached] - behind) / widening);
        } else {
            while (reached < r->count && (behind - steps[reached]) * GRAINS > 1) reached++;
            if (reached && widening) hold = least_of(hold, (steps[reached - 1] - behind) / widening);
        }
        int queue = r->highest - reached > r->lowest ? r->highest - reached : r->lowest;
        for (Hop *hop = s->flow->hop, *last = hop + s->flow->hops; hop < last; hop++) {
            if (hop->port != number) continue;
            if (sets) enter(e, hop, queue);
            else port->is_settled &= hop->queue == queue;
        }
    }
    return hold;
}

/* Set the queues of all flows at a port, and until when they hold but for bytes and rates. */
static void rank(Engine *e, Port *port) {
    int relative = 0, rated = 0, highest = 0, number = port - e->port;
    Hop *only = 0;
    port->until_s = NEVER;
    port->countings = 0;
    e->calls++;
    for (int i = 0; i < port->flows; i++) {
        Flow *flow = port->flow[i];
        const Ranking *r = flow->ranking;
        Hop *hop = flow->hop;
        while (hop->port != number) hop++;
        if (r->kind == FIXED) {
            enter(e, hop, r->lowest);
        } else if (r->kind == THRESHOLDS) {
            const double *thresholds = numbers_of(flow);
            int reached = 0;
            refer(e, flow);
            while (reached < r->count && flow->due_s + thresholds[reached] <= e->now_s) reached++;
            enter(e, hop, r->lowest + reached);
            if (reached < r->count) port->until_s = least_of(port->until_s, flow->due_s + thresholds[reached]);
        } else if (r->kind == RELATIVE) {
            only = hop;
            highest = r->highest;
            relative++;
            rated |= r->left_s != 0;
        } else if (r->kind == ATTAINED) {
            rank_by_bytes(e, port, flow, hop);
        } else {
            port->until_s = least_of(port->until_s, rank_by_window(e, flow, hop));
        }
    }
    port->rated = relative > 1 && rated;
    if (relative == 1) enter(e, only, highest);
    if (relative > 1) {
        double hold = levels(e, port, 1);
        if (!rated && hold < NEVER) port->until_s = least_of(port->until_s, e->now_s + hold);
    }
    port->outdated = port->countings != 0;
    port->rated_until_s = e->now_s;
}

/* Return when levels that depend on rates change, now that rates are set. Until shortly before, settled ones need not be
 * set again: what is closer than a grain may count as equal. */
static double rated_until_s(Engine *e, Port *port) {
    double hold = levels(e, port, 0), grain = NEVER;
    port->rated_until_s = port->is_settled ? NEVER : e->now_s;
    if (hold >= NEVER) return NEVER;
    for (int i = 0; i < port->flows; i++)
        if (port->flow[i]->ranking->kind == RELATIVE) grain = least_of(grain, port->flow[i]->ranking->grain_s);
    port->rated_until_s = least_of(port->rated_until_s, e->now_s + hold - grain);
    return e->now_s + most_of(hold, grain);
}

/* Return whether flows of a port may have other ranks than when they were ranked. */
static int must_rank(const Engine *e, const Port *port) {
    return port->outdated || port->until_s <= e->now_s || (port->rated && port->rated_until_s <= e->now_s);
}
