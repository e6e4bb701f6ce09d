/* Virtual time: events in order of time and, at equal times, of scheduling.

   No lock of a program is taken: whoever runs the fabric keeps other threads from its switches. A packet's holder has
   what tm.c puts there, and its program. */

#include "tm.c"
#include "fabric.h"

enum { CALL, ARRIVAL, LINE_FREE, WAKE, UNLINKED, FUNCTION };
enum { SIZES = 14, LEAST_ROOM = 64 };

typedef struct {
    int64_t time_ns;
    uint64_t number; /* orders events of one time */
    uint32_t kind;
    uint64_t value;
    void *what, *other;
} event;

/* Something to be freed with the fabric. */
typedef struct owned {
    struct owned *next;
} owned;

struct fabric {
    fabric_state state;
    event *events; /* a heap */
    uint64_t scheduled, room;
    fabric_frame *spare[SIZES]; /* by size */
    fabric_frame *arrived;      /* what the caller looks at */
    fabric_host *hosts;
    fabric_outlet *outlets;
    owned *all;
};

static void *own(fabric *f, size_type bytes) {
    owned *made = calloc(1, sizeof *made + bytes);
    if (!made) return NULL;
    made->next = f->all;
    f->all = made;
    return made + 1;
}

/* -- events ---------------------------------------------------------------------------------------------------------
 * */

static int before(const event *a, const event *b) {
    return a->time_ns < b->time_ns || (a->time_ns == b->time_ns && a->number < b->number);
}

static void schedule(fabric *f, int64_t time_ns, uint32_t kind, uint64_t value, void *what, void *other) {
    event made = {time_ns, ++f->scheduled, kind, value, what, other};
    uint64_t at = f->state.pending;
    if (at == f->room) {
        uint64_t room = f->room ? 2 * f->room : 256;
        event *more = realloc(f->events, room * sizeof *more);
        if (!more) {
            f->state.failed = RUN_NO_MEMORY;
            return;
        }
        f->events = more;
        f->room = room;
    }
    f->state.pending++;
    while (at && before(&made, &f->events[(at - 1) / 2])) {
        f->events[at] = f->events[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    f->events[at] = made;
}

static event next_event(fabric *f) {
    event first = f->events[0], last = f->events[--f->state.pending];
    uint64_t count = f->state.pending, at = 0, child;
    while ((child = 2 * at + 1) < count) {
        if (child + 1 < count && before(&f->events[child + 1], &f->events[child])) child++;
        if (!before(&f->events[child], &last)) break;
        f->events[at] = f->events[child];
        at = child;
    }
    f->events[at] = last;
    return first;
}

void fabric_at(fabric *f, int64_t time_ns, uint64_t value) {
    schedule(f, time_ns, CALL, value, NULL, NULL);
}

void fabric_call(fabric *f, int64_t time_ns, void (*function)(void *, uint64_t), void *what, uint64_t value) {
    schedule(f, time_ns, FUNCTION, value, what, (void *)function);
}

void fabric_tell(fabric *f, uint64_t value) {
    f->state.value = value;
    f->state.is_told = 1;
}

/* -- frames ---------------------------------------------------------------------------------------------------------
 * */

static uint8_t *bytes_of(fabric_frame *frame) {
    return (uint8_t *)(frame + 1);
}

static uint32_t size_of(uint32_t room) {
    uint32_t size = 0;
    while (LEAST_ROOM << size < room) size++;
    return size;
}

static fabric_frame *new_frame(fabric *f, const uint8_t *data, uint32_t length) {
    uint32_t size = size_of(length);
    fabric_frame *frame = NULL;
    if (size < SIZES && f->spare[size]) {
        frame = f->spare[size];
        f->spare[size] = frame->next;
    } else {
        uint32_t room = size < SIZES ? LEAST_ROOM << size : length;
        frame = own(f, sizeof *frame + room);
        if (!frame) {
            f->state.failed = RUN_NO_MEMORY;
            return NULL;
        }
        frame->room = room;
    }
    frame->next = NULL;
    frame->length = length;
    memcpy(bytes_of(frame), data, length);
    return frame;
}

static void give_back(fabric *f, fabric_frame *frame) {
    uint32_t size = size_of(frame->room);
    if (size >= SIZES) return;
    frame->next = f->spare[size];
    f->spare[size] = frame;
}

static void append(fabric_queue *queue, fabric_frame *frame) {
    frame->next = NULL;
    if (queue->first)
        queue->last->next = frame;
    else
        queue->first = frame;
    queue->last = frame;
}

static fabric_frame *pop(fabric_queue *queue) {
    fabric_frame *frame = queue->first;
    queue->first = frame->next;
    return frame;
}

/* -- wires ----------------------------------------------------------------------------------------------------------
 * */

static void transmit(fabric *f, fabric_wire *wire, fabric_frame *frame) {
    wire->sent_packets++;
    wire->sent_bytes += frame->length;
    schedule(
        f, pacer_charge(&wire->line, frame->length, f->state.now_ns) + wire->delay_ns, ARRIVAL, 0, wire, frame);
}

/* -- hosts ----------------------------------------------------------------------------------------------------------
 * */

static void wake_host(fabric_host *h) {
    if (h->awake) return;
    h->awake = 1;
    schedule(h->of, h->wire->line.free_ns, LINE_FREE, 0, h, NULL);
}

static void transmit_from(fabric_host *h, fabric_frame *frame) {
    h->packets_sent++;
    transmit(h->of, h->wire, frame);
    if (h->backlog_bytes) wake_host(h);
}

static fabric_ranked *ranked_by(fabric_host *h, uint64_t urgency) {
    uint32_t at;
    for (at = 0; at < h->ranked_count; at++)
        if (h->ranked[at].urgency == urgency) return &h->ranked[at];
    if (at == h->ranked_room) {
        uint32_t room = at ? 2 * at : 8;
        fabric_ranked *more = realloc(h->ranked, room * sizeof *more);
        if (!more) {
            h->of->state.failed = RUN_NO_MEMORY;
            return NULL;
        }
        h->ranked = more;
        h->ranked_room = room;
    }
    memset(&h->ranked[at], 0, sizeof h->ranked[at]);
    h->ranked[at].urgency = urgency;
    h->ranked_count++;
    return &h->ranked[at];
}

void fabric_send(fabric_host *h, const uint8_t *data, uint32_t length, uint64_t urgency) {
    fabric_frame *frame;
    fabric_ranked *ranked;
    if (!h->wire) {
        h->packets_dropped++;
        return;
    }
    frame = new_frame(h->of, data, length);
    if (!frame) return;
    if (!h->backlog_bytes && h->wire->line.free_ns <= h->of->state.now_ns) {
        transmit_from(h, frame);
        return;
    }
    if (!urgency) {
        append(&h->unranked, frame);
    } else {
        ranked = ranked_by(h, urgency);
        if (!ranked) return;
        append(&ranked->packets, frame);
    }
    h->backlog_bytes += length;
    wake_host(h);
}

uint32_t fabric_waits(const fabric_host *h, uint64_t urgency) {
    uint32_t at = 0;
    while (at < h->ranked_count && h->ranked[at].urgency != urgency) at++;
    return at < h->ranked_count;
}

void fabric_chosen(fabric_host *h, uint32_t place) {
    fabric_frame *frame = pop(&h->ranked[place].packets);
    h->is_rankeds_turn = 0;
    if (!h->ranked[place].packets.first) {
        h->ranked_count--;
        memmove(&h->ranked[place], &h->ranked[place + 1], (h->ranked_count - place) * sizeof *h->ranked);
    }
    h->backlog_bytes -= frame->length;
    transmit_from(h, frame);
}

/* Return whether the caller has to choose what is sent. */
static int on_line_free(fabric_host *h) {
    h->awake = 0;
    if (h->wire->line.free_ns > h->of->state.now_ns) {
        wake_host(h);
    } else if (!h->backlog_bytes) {
        return 0;
    } else if (h->unranked.first && !(h->ranked_count && h->is_rankeds_turn)) {
        fabric_frame *frame = pop(&h->unranked);
        h->is_rankeds_turn = 1;
        h->backlog_bytes -= frame->length;
        transmit_from(h, frame);
    } else if (h->ranked_count == 1) {
        fabric_chosen(h, 0);
    } else if (h->choose) {
        fabric_chosen(h, h->choose(h->receiver, h->of->state.now_ns, h->ranked, h->ranked_count));
    } else {
        return 1;
    }
    return 0;
}

/* -- switches -------------------------------------------------------------------------------------------------------
 * */

static void serve(fabric_outlet *o, int64_t now_ns);

static void wake_at(fabric_outlet *o, int64_t time_ns) {
    uint32_t at;
    for (at = 0; at < o->wakes; at++)
        if (o->wakes_ns[at] == time_ns) return;
    if (o->wakes == o->wakes_room) {
        uint32_t room = o->wakes_room ? 2 * o->wakes_room : 8;
        int64_t *more = realloc(o->wakes_ns, room * sizeof *more);
        if (!more) {
            o->of->of->state.failed = RUN_NO_MEMORY;
            return;
        }
        o->wakes_ns = more;
        o->wakes_room = room;
    }
    o->wakes_ns[o->wakes++] = time_ns;
    schedule(o->of->of, time_ns, WAKE, 0, o, NULL);
}

static void on_wake(fabric_outlet *o, int64_t time_ns) {
    uint32_t at = 0;
    while (o->wakes_ns[at] != time_ns) at++;
    o->wakes_ns[at] = o->wakes_ns[--o->wakes];
    serve(o, time_ns);
}

void fabric_wake(fabric_outlet *o) {
    wake_at(o, o->of->of->state.now_ns);
}

static fabric_outlet *outlet_of(const fabric_switch *s, uint32_t port) {
    return port < FABRIC_PORTS ? s->outlet[port] : NULL;
}

/* Outlets in the order in which they got their first packet. */
typedef struct {
    uint32_t count;
    fabric_outlet *outlet[FABRIC_PORTS];
} touched;

/* Queue packets that a program made. */
static void queue_up(fabric_switch *s, fabric_program *program, ss_packet *packet, int64_t now_ns, touched *got) {
    uint32_t at;
    got->count = 0;
    while (packet) {
        ss_packet *following = packet->next;
        fabric_outlet *o = outlet_of(s, packet->port);
        packet->holder[2] = (size_type)program;
        program->waiting++;
        if (!o) {
            s->unlinked++;
            schedule(s->of, now_ns, UNLINKED, 0, s, packet);
        } else if (tm_enqueue(o->queues, packet->queue, packet, now_ns)) {
            if (!o->is_listed) got->outlet[got->count++] = o;
            o->is_listed = 1;
        } else {
            s->dropped[packet->queue < o->queues->queues ? DROP_QUEUE_FULL : DROP_NO_QUEUE]++;
            program->waiting--;
            program->drop(program->state, packet);
        }
        packet = following;
    }
    for (at = 0; at < got->count; at++) got->outlet[at]->is_listed = 0;
}

static uint32_t listed(const ss_packet *packet) {
    uint32_t count = 0;
    for (; packet; packet = packet->next) count++;
    return count;
}

static void report(const fabric_program *program) {
    if (program->events && *program->events) program->report(program->number);
}

/* Run egress for a packet and send what it makes. Return the bytes on the outlet's own line; requeued tells whether
   something went back to a queue. */
static uint32_t depart(
    fabric_switch *s, fabric_outlet *outlet, ss_packet *packet, int64_t enqueued_ns, int64_t now_ns,
    uint32_t enq_qdepth, uint32_t deq_qdepth, int *requeued) {
    fabric_program *program = (fabric_program *)(size_type)packet->holder[2];
    ss_departure departures[FABRIC_DEPARTURES];
    uint32_t count, at, made = 0, sent_bytes = 0;
    program->waiting--;
    count = program->egress(
        program->state, packet, enqueued_ns, now_ns, enq_qdepth, deq_qdepth, departures, FABRIC_DEPARTURES);
    report(program);
    *requeued = 0;
    for (at = 0; at < count; at++) {
        const ss_departure *departure = &departures[at];
        if (departure->data) {
            fabric_outlet *way = outlet_of(s, departure->port);
            made++;
            if (!way) {
                s->dropped[DROP_NO_LINK]++;
            } else {
                fabric_frame *frame = new_frame(s->of, departure->data, departure->length);
                if (!frame) return 0;
                s->packets_out++;
                transmit(s->of, way->wire, frame);
                if (way == outlet) sent_bytes += departure->length;
            }
        }
        if (departure->requeue) {
            touched got;
            uint32_t one;
            made += listed(departure->requeue);
            *requeued = 1;
            queue_up(s, program, departure->requeue, now_ns, &got);
            for (one = 0; one < got.count; one++) wake_at(got.outlet[one], now_ns);
        }
    }
    if (made)
        s->replicated += made - 1;
    else
        s->dropped[DROP_EGRESS]++;
    return sent_bytes;
}

static void serve(fabric_outlet *o, int64_t now_ns) {
    int64_t ready_ns;
    tm_leaving leaving;
    int requeued = 0;
    while (!requeued && o->wire->line.free_ns <= now_ns && !o->of->of->state.failed) {
        uint32_t length, sent_bytes;
        tm_dequeue(o->queues, now_ns, &leaving);
        if (!leaving.packet) break;
        length = leaving.packet->length_bytes;
        sent_bytes = depart(
            o->of, o, leaving.packet, leaving.enqueued_ns, now_ns, leaving.enq_qdepth, leaving.deq_qdepth, &requeued);
        if (sent_bytes != length) tm_correct_line(o->queues, (int64_t)sent_bytes - length);
    }
    ready_ns = tm_next_ns(o->queues, now_ns);
    if (ready_ns >= 0) wake_at(o, ready_ns > o->wire->line.free_ns ? ready_ns : o->wire->line.free_ns);
}

void fabric_receive(fabric_switch *s, uint32_t port, const uint8_t *data, uint32_t length) {
    int64_t now_ns = s->of->state.now_ns;
    fabric_program *program = s->program;
    ss_packet *packet;
    touched got;
    uint32_t at;
    s->packets_in++;
    packet = program ? program->ingress(program->state, port, data, length, now_ns) : NULL;
    if (program) report(program);
    if (!packet) {
        s->dropped[DROP_INGRESS]++;
        return;
    }
    s->replicated += listed(packet) - 1;
    /* All copies are in their queues before any port chooses: the order of copies is not an order of service. */
    queue_up(s, program, packet, now_ns, &got);
    for (at = 0; at < got.count; at++) serve(got.outlet[at], now_ns);
}

/* -- runs -----------------------------------------------------------------------------------------------------------
 * */

/* Return whether the caller has to look at the frame. */
static int arrive(fabric *f, fabric_wire *wire, fabric_frame *frame) {
    fabric_host *h = wire->to_host;
    wire->delivered_packets++;
    if (!h) {
        fabric_receive(wire->to_switch, wire->to_port, bytes_of(frame), frame->length);
    } else {
        h->packets_received++;
        if (!h->receive || !h->receive(h->receiver, f->state.now_ns, bytes_of(frame), frame->length)) {
            f->state.host = h;
            f->state.data = bytes_of(frame);
            f->state.length = frame->length;
            f->arrived = frame;
            return 1;
        }
    }
    give_back(f, frame);
    return 0;
}

static uint32_t carry_out(fabric *f, const event *due) {
    int requeued;
    ss_packet *packet;
    fabric_switch *s;
    switch (due->kind) {
    case CALL:
        f->state.value = due->value;
        return RUN_CALL;
    case ARRIVAL:
        return arrive(f, due->what, due->other) ? RUN_RECEIVED : RUN_DONE;
    case LINE_FREE:
        f->state.host = due->what;
        return on_line_free(due->what) ? RUN_CHOOSE : RUN_DONE;
    case WAKE:
        on_wake(due->what, due->time_ns);
        return RUN_DONE;
    case UNLINKED:
        s = due->what;
        packet = due->other;
        s->unlinked--;
        depart(s, NULL, packet, due->time_ns, due->time_ns, 0, 0, &requeued);
        return RUN_DONE;
    default:
        ((void (*)(void *, uint64_t))due->other)(due->what, due->value);
        return RUN_DONE;
    }
}

uint32_t fabric_run(fabric *f, int64_t until_ns, uint64_t most) {
    fabric_state *state = &f->state;
    if (f->arrived) give_back(f, f->arrived);
    f->arrived = NULL;
    while (state->pending && f->events[0].time_ns <= until_ns) {
        uint32_t reason;
        event due;
        if (state->stopped || state->ran >= most) return RUN_STOPPED;
        due = next_event(f);
        state->now_ns = due.time_ns;
        state->ran++;
        reason = carry_out(f, &due);
        if (state->failed) return state->failed;
        if (reason != RUN_DONE) return reason;
        if (state->is_told) {
            state->is_told = 0;
            return RUN_TOLD;
        }
    }
    return RUN_DONE;
}

/* -- building -------------------------------------------------------------------------------------------------------
 * */

fabric *fabric_new(int64_t now_ns) {
    fabric *f = calloc(1, sizeof *f);
    if (f) f->state.now_ns = now_ns;
    return f;
}

fabric_state *fabric_state_of(fabric *f) {
    return &f->state;
}

fabric_host *fabric_add_host(fabric *f, uint32_t number) {
    fabric_host *h = own(f, sizeof *h);
    if (!h) return NULL;
    h->of = f;
    h->number = number;
    h->is_rankeds_turn = 1;
    h->next = f->hosts;
    return f->hosts = h;
}

fabric_switch *fabric_add_switch(fabric *f) {
    fabric_switch *s = own(f, sizeof *s);
    if (s) s->of = f;
    return s;
}

fabric_wire *fabric_add_wire(fabric *f, int64_t rate_bps, int64_t delay_ns) {
    fabric_wire *wire = own(f, sizeof *wire);
    if (!wire) return NULL;
    wire->line.rate_bps = rate_bps;
    wire->line.free_ns = f->state.now_ns;
    wire->delay_ns = delay_ns;
    return wire;
}

fabric_outlet *fabric_attach(fabric_switch *s, uint32_t port, tm_port *queues, fabric_wire *wire) {
    fabric_outlet *o = own(s->of, sizeof *o);
    if (!o) return NULL;
    o->of = s;
    o->port = port;
    o->queues = queues;
    o->wire = wire;
    o->next = s->of->outlets;
    s->of->outlets = o;
    return s->outlet[port] = o;
}

void fabric_free(fabric *f) {
    owned *one = f->all;
    fabric_host *h;
    fabric_outlet *o;
    for (h = f->hosts; h; h = h->next) free(h->ranked);
    for (o = f->outlets; o; o = o->next) free(o->wakes_ns);
    while (one) {
        owned *following = one->next;
        free(one);
        one = following;
    }
    free(f->events);
    free(f);
}
