/* The switch between its ports: packets in, batches of packets to send out. softswitch/realtime/core.py says what an
   account holds.

   In real time no call comes at exactly the right instant. Therefore a port with a rate lives on its own time: before
   anything is queued, and whenever the switch is called, every step that was due on the port is done as of the instant
   at which it was due. Waking late delays packets but costs no rate and changes no order. */

enum { TURN = 128, DEPARTURES = 64, MOST_FRAME_BYTES = 1 << 18 };

static void count_drop(core *c, uint32_t reason, uint64_t packets, core_outlet *outlet) {
    c->dropped[reason] += packets;
    if (outlet) outlet->dropped += packets;
}

static void hold(core *c, core_program *program) {
    if (c->held == program) return;
    if (c->held && c->held->unlock) c->held->unlock(c->held->state);
    c->held = program;
    if (program && program->lock) program->lock(program->state);
}

void core_let_go(core *c) {
    hold(c, NULL);
}

static core_outlet *existing(core *c, uint32_t port) {
    return port < PORTS ? c->outlet[port] : NULL;
}

/* Return where packets for a port wait. */
static core_outlet *outlet_of(core *c, uint32_t port) {
    core_outlet *outlet = existing(c, port);
    return outlet && outlet->up ? outlet : &c->nowhere;
}

/* Whether whatever egress makes of a packet surely finds room. */
static int has_room(const core_outlet *outlet) {
    const core_batch *batch = outlet->filling;
    return !batch || (batch->count < BATCH_PACKETS - DEPARTURES && batch->bytes < BATCH_BYTES - 2 * MOST_FRAME_BYTES);
}

static int append(core_batch *batch, const uint8_t *data, uint32_t length) {
    if (batch->count == BATCH_PACKETS || length > BATCH_BYTES - batch->bytes) return 0;
    batch->start[batch->count] = batch->bytes;
    batch->length[batch->count++] = length;
    memcpy(batch->data + batch->bytes, data, length);
    batch->bytes += length;
    return 1;
}

static void serve(core *c, core_outlet *outlet, int64_t now_ns);

/* Queue a packet in a queue whose state is that of now_ns. */
static void put(core *c, core_program *program, ss_packet *packet, int64_t now_ns) {
    core_outlet *outlet = outlet_of(c, packet->port);
    if (packet->queue >= c->queues) {
        count_drop(c, DROP_NO_QUEUE, 1, outlet);
    } else {
        if (outlet->due_ns >= 0 && outlet->due_ns < now_ns && !outlet->queues->is_transparent) serve(c, outlet, now_ns);
        if (outlet->served_ns < now_ns) outlet->served_ns = now_ns;
        packet->holder[2] = (size_type)program;
        if (tm_enqueue(outlet->queues, packet->queue, packet, outlet->served_ns)) {
            program->waiting++;
            if (!outlet->blocked) outlet->due_ns = tm_next_ns(outlet->queues, outlet->served_ns);
            return;
        }
        count_drop(c, DROP_QUEUE_FULL, 1, outlet);
    }
    hold(c, program);
    program->drop(program->state, packet);
}

/* Run egress for a packet and pass on what it makes; return the bytes that leave by the outlet's own line. */
static uint32_t depart(
    core *c, core_program *program, ss_packet *packet, int64_t enqueued_ns, int64_t now_ns, uint32_t enq_qdepth,
    uint32_t deq_qdepth, core_outlet *outlet) {
    ss_departure departures[DEPARTURES];
    uint32_t count, at, made = 0, sent_bytes = 0;
    hold(c, program);
    count = program->egress(
        program->state, packet, enqueued_ns, now_ns, enq_qdepth, deq_qdepth, departures, DEPARTURES);
    for (at = 0; at < count; at++) {
        const ss_departure *departure = &departures[at];
        core_outlet *way = existing(c, departure->port);
        if (!departure->data) continue;
        made++;
        if (!way) {
            count_drop(c, DROP_NO_PORT, 1, NULL);
        } else if (!way->up) {
            count_drop(c, DROP_PORT_DOWN, 1, way);
        } else if (!append(way->filling, departure->data, departure->length)) {
            count_drop(c, DROP_QUEUE_FULL, 1, way);
        } else if (way == outlet) {
            sent_bytes += departure->length;
        }
    }
    for (at = 0; at < count; at++) {
        ss_packet *again = departures[at].requeue, *next;
        for (; again; again = next) {
            next = again->next;
            made++;
            put(c, program, again, now_ns);
        }
    }
    if (made)
        c->replicated += made - 1;
    else
        count_drop(c, DROP_EGRESS, 1, outlet);
    return sent_bytes;
}

/* Let packets leave the queues of a port, each at the instant at which its turn came. */
static void serve(core *c, core_outlet *outlet, int64_t now_ns) {
    int64_t due_ns = outlet->due_ns;
    uint32_t left = TURN;
    if (outlet->serving) return; /* each step in its turn, also if a packet goes round */
    outlet->serving = 1;
    while (left && due_ns >= 0 && due_ns <= now_ns && has_room(outlet)) {
        tm_leaving leaving;
        core_program *program;
        uint32_t length_bytes, sent_bytes;
        int64_t next_ns;
        tm_dequeue(outlet->queues, due_ns, &leaving);
        if (!leaving.packet) break;
        outlet->served_ns = due_ns;
        program = (core_program *)(size_type)leaving.packet->holder[2];
        length_bytes = leaving.packet->length_bytes;
        program->waiting--;
        sent_bytes = depart(
            c, program, leaving.packet, leaving.enqueued_ns, due_ns, leaving.enq_qdepth, leaving.deq_qdepth, outlet);
        if (sent_bytes != length_bytes) tm_correct_line(outlet->queues, (int64_t)sent_bytes - length_bytes);
        next_ns = tm_next_ns(outlet->queues, due_ns);
        left = next_ns == due_ns ? left - 1 : TURN;
        due_ns = next_ns;
    }
    if ((due_ns < 0 || due_ns > now_ns) && outlet->served_ns < now_ns) outlet->served_ns = now_ns;
    outlet->due_ns = due_ns;
    outlet->serving = 0;
}

static int is_open(const core *c, const core_outlet *outlet, const ss_packet *packet) {
    return outlet && outlet->up && !outlet->blocked && outlet->queues->is_transparent && !outlet->queues->packets &&
           packet->queue < c->queues && packet->queue < outlet->queues->queues && has_room(outlet);
}

/* Queue what ingress made of one packet, then let the ports choose. */
static void distribute(core *c, core_program *program, ss_packet *packet, int64_t now_ns) {
    core_outlet *touched = NULL, **end = &touched, *outlet = existing(c, packet->port);
    ss_packet *next = packet->next;
    if (!next && is_open(c, outlet, packet)) {
        tm_queue *queue = &outlet->queues->queue[packet->queue];
        queue->enqueued_packets++;
        queue->dequeued_packets++;
        queue->enqueued_bytes += packet->length_bytes;
        queue->dequeued_bytes += packet->length_bytes;
        depart(c, program, packet, now_ns, now_ns, 0, 0, outlet);
        return;
    }
    for (c->replicated--; packet; packet = next) {
        next = packet->next;
        c->replicated++;
        outlet = outlet_of(c, packet->port);
        if (!outlet->touched) {
            outlet->touched = 1;
            outlet->next_touched = NULL;
            *end = outlet;
            end = &outlet->next_touched;
        }
        put(c, program, packet, now_ns);
    }
    for (; touched; touched = touched->next_touched) {
        touched->touched = 0;
        if (touched->due_ns >= 0 && touched->due_ns <= now_ns) serve(c, touched, now_ns);
    }
}

void core_receive(core *c, uint32_t port, const uint8_t *data, uint32_t length, int64_t now_ns) {
    core_program *program = c->program;
    ss_packet *made = NULL;
    c->outlet[port]->packets_in++;
    c->outlet[port]->bytes_in += length;
    if (program) {
        hold(c, program);
        made = program->ingress(program->state, port, data, length, now_ns);
    }
    if (made)
        distribute(c, program, made, now_ns);
    else
        count_drop(c, DROP_INGRESS, 1, NULL);
}

int64_t core_serve_due(core *c, int64_t now_ns) {
    int64_t earliest_ns = -1;
    uint32_t at;
    for (at = 0; at <= c->outlets; at++) {
        core_outlet *outlet = at < c->outlets ? c->outlet[c->number[at]] : &c->nowhere;
        if (outlet->due_ns >= 0 && outlet->due_ns <= now_ns) serve(c, outlet, now_ns);
        /* A port whose batch is full goes on when it is sent. */
        if (outlet->due_ns >= 0 && (earliest_ns < 0 || outlet->due_ns < earliest_ns)) earliest_ns = outlet->due_ns;
    }
    return earliest_ns;
}

/* -- sending --------------------------------------------------------------------------------------------------------
 * */

void core_plan(core *c, core_outlet *outlet, int64_t now_ns) {
    (void)c;
    if (outlet->served_ns < now_ns) outlet->served_ns = now_ns;
    outlet->due_ns = outlet->blocked ? -1 : tm_next_ns(outlet->queues, outlet->served_ns);
}

static uint32_t unsent(const core_batch *batch) {
    return batch ? batch->count - batch->first : 0;
}

static void clear(core_batch *batch) {
    if (batch) batch->first = batch->count = batch->bytes = 0;
}

void core_sent(core_outlet *outlet, core_batch *batch, uint32_t packets) {
    for (; packets; packets--) {
        outlet->packets_out++;
        outlet->bytes_out += batch->length[batch->first++];
    }
    if (batch->first == batch->count) clear(batch);
}

void core_set_up(core *c, core_outlet *outlet, uint32_t up, int64_t now_ns) {
    outlet->up = up;
    outlet->blocked = 0;
    if (!up) {
        ss_packet *packet = tm_clear(outlet->queues), *next;
        uint64_t dropped = unsent(outlet->filling) + unsent(outlet->sending);
        for (; packet; packet = next, dropped++) {
            core_program *program = (core_program *)(size_type)packet->holder[2];
            next = packet->next;
            program->waiting--;
            hold(c, program);
            program->drop(program->state, packet);
        }
        count_drop(c, DROP_PORT_DOWN, dropped, outlet);
        clear(outlet->filling);
        clear(outlet->sending);
    }
    core_plan(c, outlet, now_ns);
}

/* Note that a port did not take the first packet to send, and why. */
void core_refused(core *c, core_outlet *outlet, uint32_t obstacle, int64_t now_ns) {
    core_batch *batch = unsent(outlet->sending) ? outlet->sending : outlet->filling;
    if (obstacle == OBSTACLE_FULL) {
        outlet->blocked = 1;
        core_plan(c, outlet, now_ns);
    } else if (obstacle == OBSTACLE_DOWN) {
        core_set_up(c, outlet, 0, now_ns);
    } else {
        count_drop(c, obstacle == OBSTACLE_NO_PEER ? DROP_NO_PEER : DROP_REFUSED, 1, outlet);
        if (++batch->first == batch->count) clear(batch);
    }
}

void core_unblock(core *c, core_outlet *outlet, int64_t now_ns) {
    outlet->blocked = 0;
    core_plan(c, outlet, now_ns);
}
