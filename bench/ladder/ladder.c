/* The hosts of a ladder: what leaves and reaches them passes here. Its ports are ports.c, which takes the place of the
   tm.c that fabric.c includes. */

#include "fabric.c"

static uint8_t sent_frame[1 << 16];

/* Bring an acknowledgement to the source of its flow. */
static void deliver(void *what, uint64_t value) {
    fabric_host *h = what;
    fabric_frame *frame = (fabric_frame *)(size_type)value;
    /* It counts as sent and received at once, so that the accounts of the fabric add up at any time. */
    h->packets_sent++;
    h->packets_received++;
    h->receive(h->receiver, h->of->state.now_ns, bytes_of(frame), frame->length);
    give_back(h->of, frame);
}

static void put_stamp(const ladder_flow *flow, int64_t now_ns, uint8_t *stamp) {
    int64_t age_us = (now_ns - flow->reference_ns) / NS_PER_US;
    /* An age of 0 would say that nothing is known. */
    if (age_us < 1) age_us = 1;
    if (age_us > MOST_AGE_US) age_us = MOST_AGE_US;
    put_number(stamp, age_us, 4);
    put_number(stamp + 4, flow->memory, 2);
}

void ladder_send(void *nic, const uint8_t *data, uint32_t length, uint64_t urgency) {
    fabric_host *h = nic;
    ladder_flow *flow = flow_in(data, length);
    int64_t now_ns = h->of->state.now_ns;
    if (!flow) {
        fabric_send(h, data, length, urgency);
        return;
    }
    if (is_ack(data)) {
        fabric_host *source = flow->source;
        if (ladder.rung.free_acks && source && source->receive) {
            fabric_frame *frame = new_frame(h->of, data, length);
            if (frame) fabric_call(h->of, now_ns, deliver, source, (size_type)frame);
        } else {
            fabric_send(h, data, length, urgency);
        }
        return;
    }
    if (!flow->has_begun || flow->epoch != epoch_in(data)) {
        flow->has_begun = 1;
        flow->epoch = epoch_in(data);
        flow->missing_bytes = left_in(data);
        flow->unanswered = 0;
        flow->drains_from = 0;
        flow->source = h;
        ladder.started(flow - ladder.flows);
    }
    if (data[SHIM_AT] & FLAG_ALONE) flow->drains_from = 0;
    if (ladder.rung.true_stamps && flow->is_ranked) {
        memcpy(sent_frame, data, length);
        put_stamp(flow, now_ns, sent_frame + SHIM_END - 8);
        data = sent_frame;
    }
    fabric_send(h, data, length, urgency);
}

/* Change a packet of data for its receiver. The frame is the fabric's, which gives it up when it has arrived. */
static void change_arrived(ladder_flow *flow, uint8_t *data) {
    /* Flows keep their order where they wait in one queue, so none has to let its window run empty. By steps, ports
       say which of them have to. */
    if (flow->is_ranked && ladder.rung.order != ORDER_QUEUES) data[SHIM_AT] &= ~FLAG_DRAIN;
    if (flow->drains_from && left_in(data) <= flow->drains_from) data[SHIM_AT] |= FLAG_DRAIN;
    if (ladder.rung.ack_every && ++flow->unanswered >= ladder.rung.ack_every) {
        data[SHIM_AT + 7] |= MARK_PROMPT;
        flow->unanswered = 0;
    }
}

int ladder_receive(void *host, int64_t now_ns, const uint8_t *data, uint32_t length) {
    const ladder_host *own = host;
    ladder_flow *flow = flow_in(data, length);
    int is_finished = 0, taken;
    if (flow && !is_ack(data) && flow->epoch == epoch_in(data) && flow->missing_bytes > 0) {
        change_arrived(flow, (uint8_t *)data);
        flow->missing_bytes -= length;
        is_finished = flow->missing_bytes <= 0;
    }
    taken = own->receive(own->receiver, now_ns, data, length);
    if (is_finished) ladder.finished(flow - ladder.flows);
    return taken;
}

uint32_t ladder_choose(void *host, int64_t now_ns, const void *ranked, uint32_t count) {
    const ladder_host *own = host;
    return own->choose(own->receiver, now_ns, ranked, count);
}
